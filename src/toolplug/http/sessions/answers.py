"""What a plugin says of a request that it was sent: the result, an error, or how far it is."""

from __future__ import annotations

import orjson

from toolplug.catalog.call import ToolResult, ToolStatus
from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.sessions.found import session_of
from toolplug.http.sessions.models import ResultBody


async def answer_request(host: Host, exchange: Exchange) -> None:
    """Pass the answer on to the caller who waits for it. Raises `HttpProblem` and `SessionRefused`."""
    body = await read_json(exchange, ResultBody)
    session = await session_of(host, exchange)
    session.touch()
    if body.progress is not None:
        session.relay.progress(body.id, body.progress, body.total, body.message)
        await exchange.answer(200, orjson.dumps({"success": True, "id": body.id, "status": "progress"}))
        return
    session.relay.answer(body.id, _value(body))
    await exchange.answer(200, orjson.dumps({"success": True, "id": body.id, "status": "done"}))


def _value(body: ResultBody) -> object:
    """The result itself, which may be null, or a result that says what went wrong."""
    if body.error is None:
        return body.result
    text = body.error if isinstance(body.error, str) else body.error.message
    return ToolResult(output=text, status=ToolStatus.TOOL_ERROR)
