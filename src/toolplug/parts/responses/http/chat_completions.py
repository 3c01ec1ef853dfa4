"""`POST /v1/chat/completions`: a whole turn of an agent in the form of that API, or as a stream of chunks."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import cast

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from toolplug.catalog.exact_json import dump_json
from toolplug.errors import BackendFailed
from toolplug.http.bodies.foreign_requests import IgnoredParts, warning_header
from toolplug.http.bodies.request_body import OrjsonResponse, read_json
from toolplug.http.errors import HttpProblem, api_problem
from toolplug.http.event_stream import EventStreamResponse, ServedEventStream
from toolplug.http.requests import ClientWatch, HostRequest
from toolplug.http.routing import CALL, JSON_OR_EVENTS, answers, route
from toolplug.net.sse import frame
from toolplug.parts.responses.builder import Event
from toolplug.parts.responses.http.chat_bodies import (
    ChatCompletion,
    ChatPiece,
    ChatRequest,
    Completion,
    forwarded_chat,
    read_messages,
    response_request,
)
from toolplug.parts.responses.http.create import CALLER, END, response_caller, send_chunk, service_of
from toolplug.parts.responses.http.tolerance import Warnings

_PATH = "/v1/chat/completions"
_LOG = logging.getLogger("toolplug.responses")


@route("POST", _PATH, CALL, "A model's answer to messages, with the caller's tools", ChatRequest, parameters=CALLER)
@answers(ChatCompletion, errors=(404, 410, 429, 502, 503), content_types=JSON_OR_EVENTS)
async def create_chat_completion(request: HostRequest) -> Response:
    """Answer the completion; its work is cancelled when the client hangs up.

    Raises `HttpProblem`, `AccessError`, `ResponseRefused`, `BackendFailed`, `StoreError` and `ClientDisconnect`.
    """
    ignored = IgnoredParts(_PATH, _LOG)
    body = await read_json(request, ChatRequest, check=lambda fields: ignored.leave_out(fields, ChatRequest))
    forwarded = forwarded_chat(body, read_messages(body.messages, ignored))
    asked = response_request(body)
    service = await service_of(request)
    caller = response_caller(request, asked, ignored.list_warnings())
    await request.state["host"].quotas.count_call(request.state["principal"])
    events = service.events(asked, request.state["principal"].tenant, caller.tool_caller, forwarded)
    if body.stream:
        counts = body.stream_options is not None and body.stream_options.include_usage is True
        return EventStreamResponse(partial(_stream_chunks, events, request.state["request_id"], counts))
    with ClientWatch(request.receive):
        completion = Completion()
        pieces: list[ChatPiece] = []
        try:
            async with aclosing(events):
                async for event in events:
                    pieces += completion.read(event)
        except (BackendFailed, HttpProblem) as error:
            raise _failure(error, completion) from error
        whole = completion.whole(pieces)
        return OrjsonResponse(whole, headers=_headers(completion))
    raise ClientDisconnect


async def _stream_chunks(
    events: AsyncGenerator[Event], request_id: str, counts: bool, stream: ServedEventStream
) -> None:
    """Send the chunks; with `counts`, the last one has the tokens.

    What fails before the model has said or called something is an error of the request, later a chunk with the error.
    """
    completion = Completion()

    async def send(chunk: dict[str, object]) -> None:
        await send_chunk(stream, frame("", dump_json({**chunk, "usage": None} if counts else chunk)))

    async def begin() -> None:
        stream.set_headers(_headers(completion))
        await send({**completion.chunk(ChatPiece({"role": "assistant", "content": ""})), **_own(completion)})

    async with aclosing(events):
        try:
            async for event in events:
                pieces = [*completion.read(event)]
                if not stream.started and (pieces or completion.has_called):
                    await begin()
                for piece in pieces:
                    await send(completion.chunk(piece))
        except (BackendFailed, HttpProblem) as error:
            if not stream.started:
                raise
            await send_chunk(stream, frame("", dump_json(_failure(error, completion).answer(request_id))))
        else:
            if not stream.started:
                await begin()
            await send({**completion.chunk(ChatPiece({}), completion.finish_reason), **_own(completion)})
            if counts:
                await send_chunk(stream, frame("", dump_json(completion.count())))
        await stream.send(END)


def _failure(error: BackendFailed | HttpProblem, completion: Completion) -> HttpProblem:
    """Return the error of a response that has failed. Clients repeat 5xx by themselves, and with it what has run."""
    problem = error if isinstance(error, HttpProblem) else api_problem(error)
    if not completion.has_called:
        return problem
    message = f"{problem.message}; tools were called before, so repeat this only if they may be called again"
    return HttpProblem(422, "failed_after_calls", message)


def _headers(completion: Completion) -> Mapping[str, str]:
    """Return the header that names the warnings, also those about tools."""
    return warning_header(cast("Warnings", completion.toolplug.get("warnings") or ()))


def _own(completion: Completion) -> Mapping[str, object]:
    return {"toolplug": completion.toolplug} if completion.toolplug else {}
