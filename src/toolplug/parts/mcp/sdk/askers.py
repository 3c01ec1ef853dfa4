"""What a call goes through before a server has answered it: questions to the user of its caller, and extensions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import mcp_types as types
from mcp.shared.dispatcher import DispatchContext, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, encode_header_value
from mcp.shared.transport_context import TransportContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from toolplug.catalog.call import Ask, CannotAsk, Report, UserAnswer
from toolplug.catalog.definition import MAX_DESCRIPTION_BYTES
from toolplug.catalog.exact_json import as_object
from toolplug.catalog.schema import Schema
from toolplug.catalog.text import clean_text
from toolplug.errors import InvalidDefinition
from toolplug.foreign.sanitise import RemovedParts, sanitise_schema
from toolplug.mcp_extensions import ExtensionRefused, Fields, McpExtension
from toolplug.parts.mcp.client.connection import BadAnswer, InputRequired, Question, Repetition, ServerRefused
from toolplug.parts.mcp.sdk.readable_results import readable_call

_ELICIT = "elicitation/create"
_SAMPLE = "sampling/createMessage"
NO_MODEL = "sampling is not offered: toolplug has no model, and does not pass the request on to the caller's client"
_NO_ROOTS = "roots are not offered: a host has no folders to show"
MAX_QUESTIONS = 8
"""Of one round."""

CAN_ASK = "toolplug/can-ask"
"""In the `_meta` of a call of 2026-07-28 on its way to `with_capabilities_of_call`: its caller's user can be asked."""

_params: TypeAdapter[types.ElicitRequestParams] = TypeAdapter(types.ElicitRequestParams)


def offering_forms(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of `initialize` with the capability to ask users by forms."""
    return {**params, "capabilities": {**params.get("capabilities", {}), "elicitation": {"form": {}}}}


EXTENSIONS = "toolplug/extensions"
"""There as well: the extensions of which its server is told, by name."""


def with_capabilities_of_call(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a request; if its user can be asked, with the capability to ask by forms."""
    meta = as_object(params.get("_meta"))
    added: dict[str, object] = {"elicitation": {"form": {}}} if CAN_ASK in meta else {}
    if EXTENSIONS in meta:
        added["extensions"] = meta[EXTENSIONS]
    if not added:
        return params
    capabilities = {**as_object(meta.get(types.CLIENT_CAPABILITIES_META_KEY)), **added}
    kept = {key: value for key, value in meta.items() if key not in (CAN_ASK, EXTENSIONS)}
    return {**params, "_meta": {**kept, types.CLIENT_CAPABILITIES_META_KEY: capabilities}}


def repeated_fields(repetition: Repetition | None) -> dict[str, Any]:
    """Return the fields of the parameters of `tools/call` that make it the repetition of a call."""
    if repetition is None:
        return {}
    responses = {key: _result_of(answer) for key, answer in repetition.answers.items()}
    return {"input_responses": responses or None, "request_state": repetition.state}


def answers_by_key(answers: Mapping[str, UserAnswer]) -> dict[str, object]:
    """Return answers in the protocol's form."""
    return {
        key: _result_of(answer).model_dump(by_alias=True, mode="json", exclude_none=True)
        for key, answer in answers.items()
    }


def _result_of(answer: UserAnswer) -> types.ElicitResult:
    content = dict(answer.content) if answer.action == "accept" else None
    return types.ElicitResult.model_validate({"action": answer.action, "content": content})


def required_input(result: Mapping[str, object]) -> InputRequired:
    """Return what a server asks by a result that is not complete.

    Raises `BadAnswer` for another kind of result, and `CannotAsk` for what cannot be passed on.
    """
    try:
        required = types.InputRequiredResult.model_validate(result, by_name=False)
    except ValidationError:
        raise BadAnswer("its answer is of no kind that can be read") from None
    requests = required.input_requests or {}
    if len(requests) > MAX_QUESTIONS:
        raise CannotAsk(f"it asks {len(requests)} questions at once, {MAX_QUESTIONS} are allowed")
    return InputRequired({key: _question(request) for key, request in requests.items()}, required.request_state)


def _question(request: types.InputRequest) -> Question:
    if isinstance(request, types.CreateMessageRequest):
        raise CannotAsk(NO_MODEL)
    if isinstance(request, types.ListRootsRequest):
        raise CannotAsk(_NO_ROOTS)
    return read_question(request.params.model_dump(by_alias=True, mode="json", exclude_none=True))


class Askers:
    """The running requests of one connection, each with what asks its caller."""

    def __init__(self) -> None:
        self._running: list[_OpenQuestions] = []
        self._abandoned = False

    @contextmanager
    def running(self, ask: Ask) -> Generator[None]:
        """Let the server ask `ask` during the block; at its end, a question that is still open is withdrawn."""
        asker = _OpenQuestions(ask)
        self._running.append(asker)
        try:
            yield
        except asyncio.CancelledError:
            # From here on a question may belong to the call that was given up: nobody could say whose it is.
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
                raise MCPError(types.INVALID_REQUEST, NO_MODEL)
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
        question, schema = read_question(params)
        if self._abandoned:
            raise CannotAsk("an earlier call ended without an answer, and the question may belong to it")
        if not self._running:
            raise CannotAsk("no call is running")
        # Refused rather than guessed: the wrong user would be asked, and would answer for another one's call.
        if len(self._running) > 1:
            raise CannotAsk(f"{len(self._running)} calls run over this connection, and the question may belong to each")
        return await self._running[0].answer(question, schema)


class _OpenQuestions:
    """One running request, and its open questions."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._open: set[asyncio.Future[UserAnswer]] = set()

    async def answer(self, question: str, schema: Mapping[str, object]) -> UserAnswer:
        """Ask, until the request ends. Raises `CannotAsk`."""
        # A task, so that it can be withdrawn when the call ends, without cancelling the handler of the SDK.
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
        for asking in self._open:
            asking.cancel()


def read_question(params: Mapping[str, Any]) -> Question:
    """Return the question, cleaned. Raises `CannotAsk` for a URL and for what is over the limits."""
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
    return Question(clean_text(asked.message), schema)


def told_extensions(extensions: Sequence[McpExtension], version: str) -> Sequence[McpExtension]:
    """Return those of which a server of this version is told: what completes no result is of no use to it."""
    if version not in MODERN_PROTOCOL_VERSIONS:
        return ()
    return [each for each in extensions if each.result_types and each.since <= version]


class _RawAnswer(Protocol):
    root: dict[str, object]


class ServerOfCall:
    """The server of one call, for the extension that completes its result. Implements `ExtensionServer`."""

    def __init__(
        self,
        send: Callable[[str, Mapping[str, object]], Awaitable[_RawAnswer]],
        report: Report,
        ask: Ask,
        sending: Callable[[Mapping[str, str]], AbstractContextManager[None]],
        headers: Mapping[str, str],
    ) -> None:
        self._send = send
        self._ask = ask
        self._sending = sending
        self._headers = headers
        self.report: Report = report

    async def request(self, method: str, params: Fields, name: str = "") -> Fields:
        """Send a request with the headers of the caller, and return its result."""
        named = {MCP_NAME_HEADER: encode_header_value(name)} if name else {}
        # Those of the call as well: a request about a task is made as the caller who has it.
        with self._sending({**self._headers, **named}):
            try:
                return (await self._send(method, params)).root
            except ServerRefused as refused:
                raise ExtensionRefused(refused.code, str(refused)) from None

    async def ask(self, requests: Fields) -> Fields:
        """Ask the user of the call, one question after the other. Raises `CannotAsk`."""
        questions = required_input({"resultType": "input_required", "inputRequests": requests}).questions
        return answers_by_key({key: await self._ask(item.text, item.schema) for key, item in questions.items()})


async def finish_result(extension: McpExtension, result: Fields, server: ServerOfCall) -> dict[str, Any]:
    """Return the complete result of `tools/call`. Raises `ServerRefused`, `BadAnswer` and what ends the call."""
    try:
        whole = readable_call(dict(await extension.finish(result, server)))
        types.CallToolResult.model_validate(whole, by_name=False)
    except ExtensionRefused as error:
        raise ServerRefused(error.code, str(error)) from None
    except (MCPError, ValidationError):
        raise BadAnswer("the result of its task cannot be read") from None
    return whole
