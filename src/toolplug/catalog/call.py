"""The values of one call: the call, its caller, its context and its result; and the tenant that is served."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, NamedTuple, Self, cast

from toolplug import library_types
from toolplug.errors import InvalidSessionCode, ToolUnavailable

Frame = tuple[str, int]
"""The tenant that is served, and the number of tool calls that are nested around this code."""

# One variable for both: setting a second one would cost each call as much again.
current_frame: ContextVar[Frame] = ContextVar("toolplug_frame", default=("default", 0))


def enter_frame(tenant: str) -> None:
    """Enter one more nested call, for this tenant, in the current `contextvars` context."""
    current_frame.set((tenant, current_frame.get()[1] + 1))


def current_tenant() -> str:
    """Return the tenant of the call or request that this code runs for; `default` outside of both."""
    return current_frame.get()[0]


EMPTY: Mapping[str, object] = MappingProxyType({})

CODE_PATTERN = "^[A-Z2-7]{8}$"
"""What the code of a session looks like, the `session` of a `CallContext`."""
_CODE = re.compile(CODE_PATTERN.strip("^$"))


def check_code(code: str) -> None:
    """Raise `InvalidSessionCode` for text that is not a session code."""
    if not _CODE.fullmatch(code):
        raise InvalidSessionCode(code)


# A class of its own for its `repr` alone: contexts are logged and shown by debuggers.
class Credentials(dict[str, str]):
    """A caller's secrets for the systems behind tools, by name in lower case; `repr` hides the values.

    Over HTTP each is a header `X-Toolplug-Credential-<name>`. They are never logged or stored, and passed on only by a
    provider that is configured to do so. `request` are the headers of the caller's HTTP request, of which the host
    alone makes use.
    """

    request: Mapping[bytes, bytes] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"Credentials({', '.join(self)})"


NO_CREDENTIALS = Credentials()

NO_TRACE_CONTEXT: Mapping[str, str] = MappingProxyType({})

CREDENTIAL_NEEDED = "credential_needed"
"""The code of a call that needs a credential of its caller, where no link can be given."""
SIGN_IN_NEEDED = "sign_in_needed"
"""The code of a call whose caller has to sign in first; `sign_in` in the metadata has the link."""
NOT_SENT = frozenset({CREDENTIAL_NEEDED, SIGN_IN_NEEDED})
"""Codes of calls that were not made for want of a credential."""


class ToolStatus(StrEnum):
    """The outcome of a call, and the value of the metric label `status` (docs/reference/statuses.md).

    `CANCELLED` is only counted: the caller has disconnected, so no result is returned.

    ```python
    import asyncio

    from toolplug import FunctionRegistry, ToolStatus, tool

    @tool
    def price(item: str) -> str:
        "Say what an item costs."
        return f"{item}: 3.50 EUR"

    async def main():
        async with FunctionRegistry([price]) as registry:
            assert (await registry.call("price", item="tea")).status is ToolStatus.SUCCESS
            assert (await registry.call("price", item=7)).status is ToolStatus.INVALID_ARGUMENTS
            assert (await registry.call("prize", item="tea")).status is ToolStatus.UNKNOWN_TOOL

    asyncio.run(main())
    ```
    """

    SUCCESS = "success"
    TOOL_ERROR = "tool_error"
    PANIC = "panic"
    INVALID_ARGUMENTS = "invalid_arguments"
    UNKNOWN_TOOL = "unknown_tool"
    TIMEOUT = "timeout"
    DENIED = "denied"
    UNAVAILABLE = "unavailable"
    LIMITED = "limited"
    CANCELLED = "cancelled"


ADMIN = "admin"
"""The scope that manages the caller's own tenant."""
OPERATOR = "operator"
"""The scope for what concerns the whole host or another tenant: who runs the host has it, on the command line too."""
DELEGATE = "delegate"
"""The scope of a linked host's key: its calls may name the tenant and subject that they are for."""
WORKER = "worker"
"""The scope of a worker that dials in: it gets the settings of its entry, and answers the calls of all tenants."""
DECIDE_SCOPE = "approvals:write"
"""The scope of a person who decides on calls that wait."""
SEE_APPROVALS = "approvals:read"
"""The scope that sees the calls that wait and the grants; `approvals:write` implies it."""
HOST_SCOPES = (
    "tools:read",
    "tools:call",
    "sessions:write",
    SEE_APPROVALS,
    DECIDE_SCOPE,
    ADMIN,
    OPERATOR,
    DELEGATE,
    WORKER,
)
"""The scopes that the host itself asks for; a provider's routes may declare others."""
# An administrator of a tenant gives itself any scope of its own tenant, but these reach beyond it.
_ONLY_BY_NAME = frozenset({OPERATOR, DELEGATE, WORKER})


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller: subject, tenant and scopes. `agents` are those it may act as; None means any.

    `credential` is a digest of what it was authenticated by over HTTP, empty for a caller of the host's own code: what
    was asked for by a credential cannot be decided by the same one.

    ```python
    from toolplug import Principal

    ada = Principal("ada", tenant="acme", scopes=frozenset({"tools:call"}))
    assert ada.has_scope("tools:call") and not ada.has_scope("admin")
    ```
    """

    subject: str = "anonymous"
    tenant: str = "default"
    scopes: frozenset[str] = frozenset()
    agents: frozenset[str] | None = None
    # Not compared: two keys of one subject are one caller, whose cached catalogs are the same.
    credential: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in "scopes", "agents":
            given: object = getattr(self, name)
            if isinstance(given, str):
                raise TypeError(f"{name} is a set of names, not one text: frozenset({{{given!r}}})")
            if isinstance(given, (set, list, tuple)):
                object.__setattr__(self, name, frozenset(cast("Iterable[str]", given)))

    def has_scope(self, scope: str) -> bool:
        """Return True if the principal has this scope, or one that implies it.

        `admin` implies all but `operator`, `delegate` and `worker`, `approvals:write` implies `approvals:read`.
        """
        if scope in self.scopes or (ADMIN in self.scopes and scope not in _ONLY_BY_NAME):
            return True
        return scope == SEE_APPROVALS and DECIDE_SCOPE in self.scopes

    @property
    def delegates(self) -> bool:
        """Whether its requests may name the tenant and subject that they are for."""
        return DELEGATE in self.scopes


ANONYMOUS = Principal()

Report = Callable[[float, float | None, str | None], None]


def no_report(progress: float, total: float | None = None, message: str | None = None) -> None:
    """Ignore the progress of a call that no caller follows."""


class CannotAsk(Exception):
    """The user of a call's caller cannot be asked; the text says why.

    ```python
    from toolplug import CallContext, CannotAsk, tool

    @tool
    async def delete_notes(context: CallContext) -> str:
        "Delete all notes."
        try:
            answer = await context.ask("Delete all notes?", {"type": "object", "properties": {}})
        except CannotAsk as why:
            return f"nothing was deleted: {why}"
        return "deleted" if answer.action == "accept" else "nothing was deleted"
    ```
    """


class UserAnswer(NamedTuple):
    """What a user did with a question; `content` are the values of the form, if it was accepted.

    ```python
    from toolplug import CallContext, UserAnswer

    async def agree(question, schema):
        return UserAnswer("accept", {"sure": True})

    context = CallContext(ask=agree)  # for a test of a tool that asks
    ```
    """

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, object] = EMPTY


Ask = Callable[[str, Mapping[str, object]], Awaitable[UserAnswer]]


class NobodyToAsk:
    """An `Ask` that raises `CannotAsk` with this reason. `approves`: a user is there, who may decide on approvals."""

    __slots__ = ("approves", "reason")

    def __init__(self, reason: str, *, approves: bool = False) -> None:
        self.reason: str = reason
        self.approves: bool = approves

    async def __call__(self, question: str, schema: Mapping[str, object]) -> UserAnswer:
        raise CannotAsk(self.reason)


ask_nobody: Ask = NobodyToAsk("its caller is not an MCP client, and only those can ask a user")


# A tuple, not a frozen dataclass, which sets each field through `object.__setattr__`: every call makes one.
class ToolCall(NamedTuple):
    """One call as a model makes it; `arguments` is an object or its JSON text, which is decoded once.

    ```python
    from toolplug import ToolCall

    call = ToolCall("call_1", "price", {"item": "tea"})
    same = ToolCall("call_1", "price", '{"item": "tea"}')  # as model APIs send it
    ```
    """

    id: str
    name: str
    arguments: Mapping[str, object] | str | bytes = EMPTY


class ToolResult(NamedTuple):
    """The one terminal result of a call.

    * `output`: the text that the model sees
    * `structured`: the JSON value of the output, None for plain text
    * `parts`: content blocks of the Model Context Protocol, such as images
    * `metadata`: JSON values for the caller, not shown to the model
    * `retry_after_s`: seconds after which the same call may succeed; None if unknown

    A tool may return one without `call_id` and `name`, which are filled in.

    ```python
    from toolplug import ToolResult, tool

    @tool
    def price(item: str) -> ToolResult:
        "Say what an item costs."
        return ToolResult(output=f"{item}: 3.50 EUR", structured={"cents": 350}, metadata={"source": "list of May"})
    ```
    """

    call_id: str = ""
    name: str = ""
    output: str = ""
    status: ToolStatus = ToolStatus.SUCCESS
    structured: object = None
    parts: tuple[Mapping[str, object], ...] = ()
    metadata: Mapping[str, object] = EMPTY
    retry_after_s: float | None = None

    @property
    def is_error(self) -> bool:
        """True for every status except `success`."""
        return self.status is not ToolStatus.SUCCESS


_Fields = tuple[object, ...]

quick_call: Callable[[type[ToolCall], _Fields], ToolCall] = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
quick_result: Callable[[type[ToolResult], _Fields], ToolResult] = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
"""Constructors from a tuple of all fields, in order, at half the cost: every call makes one call and one result."""


# A float, so that code which compares and subtracts deadlines need not know of it.
class Deadline(float):
    """A deadline in loop time that knows its length: a call that exceeds it says so, not what was left of it."""

    within_s: float

    @classmethod
    def after(cls, now: float, within_s: float) -> Self:
        """Return the deadline so many seconds from now, which is the time of the loop."""
        made = cls(now + within_s)
        made.within_s = within_s
        return made


class TaskDeadline(Deadline):
    """The deadline of a call that goes on after its client has been answered: the tool's own timeout does not end it.

    No request can make one: a plugin does, within a time that the operator has set.

    ```python
    import asyncio

    from toolplug import CallContext
    from toolplug.mcp_extensions import ExtendedCall, TaskDeadline

    async def run_for_an_hour(call: ExtendedCall):
        now = asyncio.get_running_loop().time()
        return await call.run(call.context._replace(deadline=TaskDeadline.after(now, 3_600)))
    ```
    """


def no_tools(context: CallContext) -> library_types.ModelTools:
    """Raise `LookupError`: no call runs with this context."""
    raise LookupError(
        "context.tools is there for a tool that runs, in the context that it is given; "
        "elsewhere use host.executor_for(principal), or the registry"
    )


class CallerAuth(NamedTuple):
    """The `user_auth` of the entry of a tool: `get` returns the caller's credential, `format` is that of its header.

    `get(context, refused)` is `CallContext.credential`.
    """

    get: Callable[[CallContext, str], Awaitable[str]]
    header: str
    format: str

    def headers(self, credential: str) -> Mapping[str, str]:
        """Return the header of a request that carries the credential."""
        return {self.header: self.format.replace("{}", credential)}


class CallContext(NamedTuple):
    """The circumstances of a call: data, except `report`, which sends progress and never blocks, and `ask`.

    * `session`, `agent`: the code of the session and the name of the agent, None for none
    * `approval`: the ticket of an approved call, None for none
    * `options`: the validated options of the built-in stub that the tool implements
    * `request_id`: the id in the audit log
    * `credentials`: the caller's secrets for the systems behind tools
    * `conversation`: the key of the conversation that a response continues (`previous_response_id`); empty elsewhere
    * `via`: the ids of the hosts through which the call came, the first one first; empty for a call of a client
    * `ask`: asks the user of the caller's MCP client, by a text and the JSON schema of a form; raises `CannotAsk`
    * `trace_context`: the W3C headers `traceparent` and `tracestate` of the caller, or of the call's span if a plugin
      traces calls; empty for none
    * `tools`: the caller's own tools, for a tool that runs; a call of one is an ordinary call of this caller
    * `user_auth`: for a tool that runs, how its entry says that the caller acts as itself; None if it does not
    * `deadline`: loop time in seconds; a tool gets the effective one, None for no limit

    ```python
    import asyncio

    from toolplug import CallContext, FunctionRegistry, Principal, tool

    @tool
    async def add(text: str, context: CallContext) -> str:
        "Write a note."
        context.report(1, 1, "written")
        return f"written for {context.principal.subject}"

    async def main():
        async with FunctionRegistry([add]) as registry:
            context = CallContext(Principal("ada"))
            assert (await registry.call("add", {"text": "milk"}, context)).output == "written for ada"

    asyncio.run(main())
    ```
    """

    principal: Principal = ANONYMOUS
    session: str | None = None
    agent: str | None = None
    idempotency_key: str | None = None
    approval: str | None = None
    options: Mapping[str, object] = EMPTY
    request_id: str = ""
    report: Callable[..., None] = no_report
    credentials: Mapping[str, str] = NO_CREDENTIALS
    ask: Ask = ask_nobody
    conversation: str = ""
    via: tuple[str, ...] = ()
    user_auth: CallerAuth | None = None
    trace_context: Mapping[str, str] = NO_TRACE_CONTEXT
    tools_of: Callable[[CallContext], library_types.ModelTools] = no_tools
    deadline: float | None = None

    @property
    def tools(self) -> library_types.ModelTools:
        """The caller's tools, as they are listed for it now; their calls are the caller's, until the same deadline.

        Policies, limits, hooks, the audit log and metrics see ordinary calls. Raises `LookupError` in a context that
        no running tool was given.
        """
        return self.tools_of(self)

    async def credential(self, refused: str = "") -> str:
        """Return the caller's own credential for the system behind the tool, as `user_auth` of its entry says.

        `refused` is the one that the system has refused, for another one. Never log, store or return it. Raises
        `ToolUnavailable` without one: leave it to the host, which tells the caller what to do.
        """
        if self.user_auth is None:
            reason = "the entry of its provider has no user_auth, which says where a caller's credential comes from"
            raise ToolUnavailable(reason, code=CREDENTIAL_NEEDED)
        return await self.user_auth.get(self, refused)

    def of_tool(self, tools_of: Callable[[CallContext], library_types.ModelTools], deadline: float) -> CallContext:
        """Return the context for the tool, with its deadline in loop time; much faster than `_replace`.

        `tools_of` gives `tools`, unless the request has limited them.
        """
        # The two are the last fields for this line's sake.
        if self.tools_of is not no_tools:
            tools_of = self.tools_of
        return _quick_context(CallContext, self[:-2] + (tools_of, deadline))  # noqa: RUF005  a list takes longer

    def of_session(self, session: str) -> CallContext:
        """Return the context with this session; takes a fifth of the time of `_replace`."""
        return _quick_context(CallContext, (self[0], session, *self[2:]))

    def of_trace(self, trace_context: Mapping[str, str]) -> CallContext:
        """Return the context with this trace context, as fast as `of_session`."""
        return _quick_context(CallContext, (*self[:-3], trace_context, *self[-2:]))


_quick_context: Callable[[type[CallContext], _Fields], CallContext] = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

ANONYMOUS_CONTEXT = CallContext()
"""The context of a call without one."""

Part = Mapping[str, object]


def is_image(part: Part) -> bool:
    """Return True if the part is an image that can be sent to a model."""
    return part.get("type") == "image" and isinstance(part.get("data"), str) and isinstance(part.get("mimeType"), str)


def data_url(image: Part) -> str:
    """Return an image as a `data:` URL."""
    return f"data:{image['mimeType']};base64,{image['data']}"


def own_parts(output: str, parts: Sequence[Part]) -> Sequence[Part]:
    """Return the parts without texts that are the output once more, each of them or all of them as its lines.

    Tools write the texts of their parts into the output, as the results of MCP servers have them.
    """
    texts = [part.get("text") for part in parts if part.get("type") == "text"]
    if not texts:
        return parts
    is_output = "\n".join(map(str, texts)) == output
    return [part for part in parts if part.get("type") != "text" or not (is_output or part.get("text") == output)]


def text_of_result(result: ToolResult) -> str:
    """Return the output and a line for each other part; of the parts, only images are sent to a model in addition."""
    parts = [_line(part) for part in own_parts(result.output, result.parts)]
    return "\n".join([*([result.output] if result.output else []), *parts])


def _line(part: Part) -> str:
    text = part.get("text")
    if part.get("type") == "text" and isinstance(text, str):
        return text
    inner = part.get("resource")
    resource = cast("Part", inner) if isinstance(inner, Mapping) else EMPTY
    where = part.get("uri") or resource.get("uri")
    media = part.get("mimeType") or resource.get("mimeType")
    details = " ".join(str(each) for each in (part.get("name"), where and f"<{where}>", media) if each)
    # Models are told what they do not see; an image reaches those that can see it.
    left_out = "" if is_image(part) else "left out: "
    return " ".join(f"[{left_out}{part.get('type')} {details}".split()) + "]"
