"""Notes on the tools of a saved toolset."""

from __future__ import annotations

import orjson

from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.http.json_body import read_json
from toolplug.http.saved.asking import asking
from toolplug.http.saved.models import AddNotesBody, RemoveNotesBody


async def add_notes(host: Host, exchange: Exchange) -> None:
    """Attach notes to a tool. Raises `HttpProblem` and `SavedToolsetRefused`; then nothing has changed."""
    body = await read_json(exchange, AddNotesBody)
    added = await host.saved_toolsets.add_notes(
        await asking(host, exchange),
        body.tool_ref.reference,
        [note.value for note in body.notes],
        toolset=exchange.params["name"],
        replace_existing=body.if_exists == "replace",
    )
    await exchange.answer(200, orjson.dumps(added.fields()))


async def remove_notes(host: Host, exchange: Exchange) -> None:
    """Take notes off a tool. Raises `HttpProblem` and `SavedToolsetRefused`; then nothing has changed."""
    body = await read_json(exchange, RemoveNotesBody)
    removed = await host.saved_toolsets.remove_notes(
        await asking(host, exchange), exchange.params["name"], body.tool_ref.reference, body.names
    )
    await exchange.answer(200, orjson.dumps(removed.fields()))
