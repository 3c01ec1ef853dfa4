"""The server side of MCP for a transport: reading messages and answering them for a caller.

`sdk` is the only implementation; no other module imports the SDK, so that a host without MCP clients does not load it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from typing import Literal, NamedTuple, NotRequired, Protocol, TextIO, cast

import orjson
from typing_extensions import TypedDict

from toolplug.catalog.call import CallContext
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import EQUIP_TOOLSET
from toolplug.catalog.offering import EMPTY_OFFERING, OfferedKind, Offering
from toolplug.execution.executor import ToolExecutor
from toolplug.mcp_extensions import McpExtension
from toolplug.part_protocols.approvals import HostApprovals
from toolplug.parts.mcp.client.connection import SDK
from toolplug.parts.mcp.input_rounds import OpenRounds
from toolplug.parts.mcp.serving.notifications import ResourceSubscriptions, Watch
from toolplug.search.tools import FoundTools

LIST_TTL_MS = 3_000
"""A client that listens is notified of a change at once."""


class McpCaller(NamedTuple):
    """The caller of a request, and the services for it.

    `context` is that of its calls, `scope` that of the credentials that it brings. `catalog` returns its tools, after
    opening sources that list later; it raises the host's errors for a caller without permission. `watch` follows the
    catalog. `listed` is called with each catalog of which the caller has received a page. `approvals` has the calls
    that wait for approval, `rounds` the questions that wait for answers. `offering` returns the caller's prompts and
    resources; `offered` is called with each that it has received a page of. `subscriptions` are the resources that it
    follows; None before it can follow any. `found` are the deferred tools that the searches of a client of the older
    era have found, None without a conversation. `url` is that of the host for browsers, empty if it is not known.
    `extensions` returns those that the host has now.
    """

    executor: ToolExecutor
    context: CallContext
    approvals: HostApprovals
    rounds: OpenRounds
    catalog: Callable[[], Awaitable[Catalog]]
    watch: Callable[[], Watch]
    listed: Callable[[Catalog], None] = lambda _: None
    offering: Callable[[], Offering] = lambda: EMPTY_OFFERING
    offered: Callable[[OfferedKind, Offering], None] = lambda kind, offering: None
    subscriptions: ResourceSubscriptions | None = None
    found: FoundTools | None = None
    scope: str = ""
    url: str = ""
    extensions: Callable[[], Sequence[McpExtension]] = tuple

    @property
    def list_ttl_ms(self) -> int:
        """How long its client may keep a list without asking; not at all where a call of its own can change it."""
        if self.context.session is not None:
            return 0
        tools = self.executor.catalog.definitions()
        return 0 if any(tool.ref.name == EQUIP_TOOLSET for tool in tools) else LIST_TTL_MS


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
    """A client's request, or notification, which has no id."""

    id: RequestId | None
    method: str
    params: Mapping[str, object] | None


class ClientAnswer(NamedTuple):
    """A client's answer to one of our requests; `result` is None for an error."""

    id: RequestId
    result: Mapping[str, object] | None


class Questions:
    """Our pending requests to one client of the older era."""

    def __init__(self) -> None:
        self._waiting: dict[RequestId, asyncio.Future[Mapping[str, object] | None]] = {}
        self._asked = 0
        self._name = "toolplug"

    def name_after(self, process: str) -> None:
        """Make the ids of requests unique among the processes that serve the client."""
        self._name = f"toolplug-{process}"

    async def ask(self, send: Callable[[str], Awaitable[None]]) -> Mapping[str, object] | None:
        """Send a request with the id that `send` gets, and wait for its result; None for an error."""
        self._asked += 1
        question = f"{self._name}-{self._asked}"
        answer = self._waiting[question] = asyncio.get_running_loop().create_future()
        try:
            await send(question)
            return await answer
        finally:
            del self._waiting[question]

    def take(self, answer: ClientAnswer) -> bool:
        """Pass a response to the request that waits for it; False for a response to no pending request."""
        waiting = self._waiting.get(answer.id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(answer.result)
        return True


class Client(NamedTuple):
    """A client's own description: its protocol version, and its info and capabilities as it sent them."""

    version: str
    info: object
    capabilities: object


class Reply(NamedTuple):
    """The answer to a request as JSON, with its HTTP status."""

    status: int
    body: bytes


class RpcError(TypedDict):
    """A JSON-RPC error."""

    code: int
    message: str
    data: NotRequired[object]


class RpcRefusal(TypedDict):
    """The answer to a message that cannot be served."""

    jsonrpc: Literal["2.0"]
    id: int | str | None
    error: RpcError


class McpServerEndpoint(Protocol):
    """MCP in both eras: with a handshake (2025-11-25 and earlier), and stateless (2026-07-28)."""

    def read(self, body: bytes) -> Message | ClientAnswer | Reply:
        """Return the message or the answer, or the refusal of an invalid one."""
        ...

    def is_stateless(self, message: Message, version: str | None) -> bool:
        """Return whether the message is of the stateless era; `version` is that of its header."""
        ...

    def stateless_client(self, message: Message, headers: Headers) -> Client | Reply:
        """Return the client of a stateless message, or the refusal."""
        ...

    async def initialize(self, message: Message, caller: McpCaller) -> tuple[Reply, Client | None]:
        """Answer `initialize`, and return the client if the handshake succeeds."""
        ...

    async def answer(
        self,
        message: Message,
        client: Client,
        caller: McpCaller,
        notify: Notify,
        headers: Headers = (),
        questions: Questions | None = None,
    ) -> Reply:
        """Answer any other request; `headers` must agree with it. `questions`: of a client that can answer them."""
        ...

    async def serve_stdio(self, caller: McpCaller, out: TextIO) -> None:
        """Serve one client of either era on standard input and output until it closes its end."""
        ...


def refusal(status: int, code: int, message: str, to: RequestId | None = None) -> Reply:
    """Return an error as an answer."""
    answer: RpcRefusal = {"jsonrpc": "2.0", "id": to, "error": {"code": code, "message": message}}
    return Reply(status, orjson.dumps(answer))


_ANSWERING = "toolplug.parts.mcp.sdk.answering"


def mcp_server_endpoint() -> McpServerEndpoint:
    """Return the SDK's implementation. Raises `ModuleNotFoundError` without the extra `mcp`."""
    import_module(SDK)  # as a whole first (`import_in_thread`)
    # A module that is imported by name has no types.
    return cast("McpServerEndpoint", import_module(_ANSWERING).SdkServerEndpoint())
