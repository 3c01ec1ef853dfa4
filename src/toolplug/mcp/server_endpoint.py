"""The server side of MCP as a transport sees it: reading messages, answering them, and the caller behind them.

`sdk` is the one implementation; nothing else imports the SDK, so a host that no client asks pays nothing for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, NamedTuple, NotRequired, Protocol, cast

import orjson
from typing_extensions import TypedDict

from toolplug.catalog.call import CallContext
from toolplug.catalog.catalog import Catalog
from toolplug.execution.approvals import Approvals
from toolplug.execution.executor import ToolExecutor
from toolplug.mcp.connection import import_with_sdk
from toolplug.mcp.list_changed import Watch


def _nobody(catalog: Catalog) -> None:
    """Nobody wants to know."""


class Caller(NamedTuple):
    """Everything that answering a request needs to know of the one who asks.

    `context` is that of the caller's calls. `catalog` gives what they list, once everything that lists later is open;
    it raises what the host raises for a caller who may not. `watch` follows it from now on. `listed` hears of each
    catalog from which the caller was shown a page. `approvals` has the calls that wait for a person.
    """

    executor: ToolExecutor
    context: CallContext
    approvals: Approvals
    catalog: Callable[[], Awaitable[Catalog]]
    watch: Callable[[], Watch]
    listed: Callable[[Catalog], None] = _nobody


RequestId = str | int

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

INITIALIZE = "initialize"
LISTEN = "subscriptions/listen"
CALL_TOOL = "tools/call"
CANCEL = "notifications/cancelled"

Headers = Sequence[tuple[bytes, bytes]]
"""As they came, lower-case names."""

Notify = Callable[[bytes], Awaitable[None]]
"""Sends a notification (a complete JSON message) on the response stream and waits until it is written."""


class Message(NamedTuple):
    """One message of a client: a request, or a notification, which has no id."""

    id: RequestId | None
    method: str
    params: Mapping[str, object] | None


class ClientAnswer(NamedTuple):
    """What a client answers to a request of ours; `result` is None for an error."""

    id: RequestId
    result: Mapping[str, object] | None


class Questions:
    """Requests of ours that one client of the older era has not answered yet."""

    def __init__(self) -> None:
        self._waiting: dict[RequestId, asyncio.Future[Mapping[str, object] | None]] = {}
        self._asked = 0

    async def ask(self, send: Callable[[str], Awaitable[None]]) -> Mapping[str, object] | None:
        """Send a request under the id that `send` gets, and wait for its result; None for an error."""
        self._asked += 1
        question = f"toolplug-{self._asked}"
        answer = self._waiting[question] = asyncio.get_running_loop().create_future()
        try:
            await send(question)
            return await answer
        finally:
            del self._waiting[question]

    def take(self, answer: ClientAnswer) -> None:
        """Pass a response to the request that waits for it; drop a response to no pending request."""
        waiting = self._waiting.get(answer.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer.result)


class Client(NamedTuple):
    """What a client has said of itself: the version that it speaks, and two objects as it sent them."""

    version: str
    info: object
    capabilities: object


class Reply(NamedTuple):
    """The message that answers a request, as JSON, and the HTTP status that fits it."""

    status: int
    body: bytes


class RpcError(TypedDict):
    """What is wrong with a message."""

    code: int
    message: str
    data: NotRequired[object]


class RpcRefusal(TypedDict):
    """The answer to a message that cannot be served."""

    jsonrpc: Literal["2.0"]
    id: int | str | None
    error: RpcError


class McpServerEndpoint(Protocol):
    """The protocol in both its eras: with a handshake (2025-11-25 and before), and without state (2026-07-28)."""

    def read(self, body: bytes) -> Message | ClientAnswer | Reply:
        """The message or the answer, or the refusal of what is neither."""
        ...

    def is_stateless(self, message: Message, version: str | None) -> bool:
        """Is it of the era without a handshake; `version` is what its header says."""
        ...

    def stateless_client(self, message: Message, headers: Headers) -> Client | Reply:
        """Who sent a message of that era, or why it cannot be answered."""
        ...

    async def initialize(self, message: Message, caller: Caller) -> tuple[Reply, Client | None]:
        """Answer `initialize`: the client, where the handshake is done."""
        ...

    async def answer(
        self,
        message: Message,
        client: Client,
        caller: Caller,
        notify: Notify,
        headers: Headers = (),
        questions: Questions | None = None,
    ) -> Reply:
        """Answer any other request.

        `headers` are those that must agree with it. `questions`: of a client that can be asked something meanwhile.
        """
        ...

    async def serve_stdio(self, caller: Caller) -> None:
        """Answer one client of either era on standard input and output, until it hangs up."""
        ...


def refusal(status: int, code: int, message: str, to: RequestId | None = None) -> Reply:
    """An error as an answer."""
    answer: RpcRefusal = {"jsonrpc": "2.0", "id": to, "error": {"code": code, "message": message}}
    return Reply(status, orjson.dumps(answer))


_ANSWERING = "toolplug.mcp.sdk.answering"


def mcp_server_endpoint() -> McpServerEndpoint:
    """The endpoint that the SDK implements. Raises `ModuleNotFoundError` without the extra `mcp`."""
    # A module that is imported by name has no types.
    return cast("McpServerEndpoint", import_with_sdk(_ANSWERING).SdkServerEndpoint())
