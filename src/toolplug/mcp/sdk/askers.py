"""Passing on what a server of 2025-11-25 asks during a call to the user of that call's caller.

    server ─ elicitation/create ─▶ `Askers.before` ─▶ the `ask` of the only running call ─▶ client of the caller

The protocol does not say which call a request of the server belongs to, so that it is refused unless there is just one.
A call that ended without an answer may still run at the server; after it, nothing is passed on over this connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import mcp_types as types
from mcp.shared.dispatcher import DispatchContext, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.transport_context import TransportContext
from pydantic import TypeAdapter, ValidationError

from toolplug.catalog.call import Ask, CannotAsk, UserAnswer
from toolplug.catalog.definition import MAX_DESCRIPTION_BYTES
from toolplug.catalog.sanitise import RemovedParts, sanitise_schema
from toolplug.catalog.schema import Schema
from toolplug.catalog.text import cleaned
from toolplug.errors import InvalidDefinition

_ELICIT = "elicitation/create"
_SAMPLE = "sampling/createMessage"
_NO_MODEL = "sampling is not offered: toolplug has no model, and does not pass the request on to the caller's client"
_params: TypeAdapter[types.ElicitRequestParams] = TypeAdapter(types.ElicitRequestParams)


def offering_forms(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of `initialize` with the capability to ask users by forms."""
    return {**params, "capabilities": {**params.get("capabilities", {}), "elicitation": {"form": {}}}}


class Askers:
    """The running requests of one connection, each with what asks its caller."""

    def __init__(self) -> None:
        self._running: list[_Asker] = []
        self._abandoned = False

    @contextmanager
    def running(self, ask: Ask) -> Generator[None]:
        """Let the server ask `ask` during the block; at its end, a question that is still open is withdrawn."""
        asker = _Asker(ask)
        self._running.append(asker)
        try:
            yield
        except asyncio.CancelledError:
            self._abandoned = True
            raise
        finally:
            self._running.remove(asker)
            asker.withdraw()

    def before(self, on_request: OnRequest) -> OnRequest:
        """Return a handler of the server's requests that answers questions, and leaves the others to `on_request`."""

        async def answer(
            context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            if method == _SAMPLE:
                raise MCPError(types.INVALID_REQUEST, _NO_MODEL)
            if method != _ELICIT:
                return await on_request(context, method, params)
            try:
                answer = await self._answer(params or {})
            except CannotAsk as error:
                raise MCPError(types.INVALID_REQUEST, f"the user cannot be asked: {error}") from None
            content = {"content": dict(answer.content)} if answer.action == "accept" else {}
            return {"action": answer.action, **content}

        return answer

    async def _answer(self, params: Mapping[str, Any]) -> UserAnswer:
        question, schema = _read(params)
        if self._abandoned:
            raise CannotAsk("an earlier call ended without an answer, and the question may belong to it")
        if not self._running:
            raise CannotAsk("no call is running")
        if len(self._running) > 1:
            raise CannotAsk(f"{len(self._running)} calls run over this connection, and the question may belong to each")
        return await self._running[0].answer(question, schema)


class _Asker:
    """One running request, and its open questions."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._open: set[asyncio.Future[UserAnswer]] = set()

    async def answer(self, question: str, schema: Mapping[str, object]) -> UserAnswer:
        """Ask, until the request ends. Raises `CannotAsk`."""
        asking = asyncio.ensure_future(self._ask(question, schema))
        self._open.add(asking)
        try:
            await asyncio.wait({asking})
        finally:
            self._open.discard(asking)
            asking.cancel()
        if asking.cancelled():
            raise CannotAsk("the call has ended")
        return asking.result()

    def withdraw(self) -> None:
        """Withdraw the open questions."""
        for asking in self._open:
            asking.cancel()


def _read(params: Mapping[str, Any]) -> tuple[str, dict[str, object]]:
    """Return the question and its schema, cleaned. Raises `CannotAsk` for a URL and for what is over the limits."""
    try:
        asked = _params.validate_python(params, by_name=False)
    except ValidationError:
        raise CannotAsk("the question does not follow the protocol") from None
    if isinstance(asked, types.ElicitRequestURLParams):
        raise CannotAsk("only forms are passed on, and this is a URL")
    if len(asked.message.encode(errors="ignore")) > MAX_DESCRIPTION_BYTES:
        raise CannotAsk(f"the question has more than {MAX_DESCRIPTION_BYTES} bytes")
    try:
        schema = sanitise_schema(asked.requested_schema, ("requestedSchema",), RemovedParts())
        Schema(schema).check()
    except InvalidDefinition as error:
        raise CannotAsk(f"the schema of its form cannot be passed on: {error}") from None
    return cleaned(asked.message), schema
