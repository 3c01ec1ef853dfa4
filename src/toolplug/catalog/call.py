"""The values of one call, its caller, and the tenant that code inside the call can ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, cast

Frame = tuple[str, int]
"""The tenant that is served, and how many tool calls are nested around this code."""

current_frame: ContextVar[Frame] = ContextVar("toolplug_frame", default=("default", 0))


def enter_frame(tenant: str) -> None:
    """Begin one more nested call for a tenant, in the context that is current: the call's own."""
    current_frame.set((tenant, current_frame.get()[1] + 1))


def current_tenant() -> str:
    """The tenant of the call or request that this code runs for; `default` outside of any."""
    return current_frame.get()[0]


EMPTY: Mapping[str, object] = MappingProxyType({})


class Credentials(dict[str, str]):
    """The secrets that a caller sends along for systems behind tools, by name in lower case; `repr` hides the values.

    Over HTTP each is a header `X-Toolplug-Credential-<name>`. They are never logged, stored or passed on, except by a
    provider whose configuration says so.
    """

    def __repr__(self) -> str:
        return f"Credentials({', '.join(self)})"


NO_CREDENTIALS = Credentials()


class ToolStatus(StrEnum):
    """How a call ended; also the value of the metric label `status` (docs/reference/statuses.md).

    `CANCELLED` is counted only: its caller went away, so there is no result to give.
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


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls. `agents` is the closed set of agents that the credential may act as; None means any."""

    subject: str = "anonymous"
    tenant: str = "default"
    scopes: frozenset[str] = frozenset()
    agents: frozenset[str] | None = None

    def has_scope(self, scope: str) -> bool:
        """Is the scope held, by name or through `admin`, which implies every scope."""
        return scope in self.scopes or "admin" in self.scopes


ANONYMOUS = Principal()

Report = Callable[[float, float | None, str | None], None]


def no_report(progress: float, total: float | None = None, message: str | None = None) -> None:
    """Drop the progress: nobody listens."""


class ToolCall(NamedTuple):
    """One call as a model makes it. `arguments`: an object, or its JSON text, which `run` decodes once."""

    id: str
    name: str
    arguments: Mapping[str, object] | str | bytes = EMPTY


class ToolResult(NamedTuple):
    """The one terminal result of a call.

    `output` is the text that the model sees; `structured` the JSON value behind it, where it is not plain text;
    `metadata` is for the caller and not shown to the model. A tool may return one with only `output`, `structured`,
    `metadata` and `status`: call id and name are filled in.
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
        """True for every status but `success`."""
        return self.status is not ToolStatus.SUCCESS


_Fields = tuple[object, ...]

quick_call: Callable[[type[ToolCall], _Fields], ToolCall] = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
quick_result: Callable[[type[ToolResult], _Fields], ToolResult] = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
"""Half the cost of the constructors, for the one call and one result that every call makes: all fields, in order."""


class CallContext(NamedTuple):
    """Everything about a call that is not the call: data only, but for `report`, which never blocks.

    `deadline` is loop time in seconds; a tool that asks for its context sees the effective one. `options` are the
    validated options of the built-in stub that stands for this tool. `request_id` is the one that audit lines carry.
    `credentials` are the caller's own for systems behind tools.
    """

    principal: Principal = ANONYMOUS
    session: str | None = None
    agent: str | None = None
    deadline: float | None = None
    idempotency_key: str | None = None
    approval: str | None = None
    options: Mapping[str, object] = EMPTY
    request_id: str = ""
    report: Callable[..., None] = no_report
    credentials: Mapping[str, str] = NO_CREDENTIALS

    def of_session(self, session: str) -> CallContext:
        """The same context with this session; a fifth of the cost of `_replace`."""
        return _quick_context(CallContext, (self[0], session, *self[2:]))


_quick_context: Callable[[type[CallContext], _Fields], CallContext] = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

ANONYMOUS_CONTEXT = CallContext()
"""The context of a call without one, where no principal is implied."""


Part = Mapping[str, object]


def is_image(part: Part) -> bool:
    """Return whether a model can be given the part as an image."""
    return part.get("type") == "image" and isinstance(part.get("data"), str) and isinstance(part.get("mimeType"), str)


def data_url(image: Part) -> str:
    """Return an image as a `data:` URL."""
    return f"data:{image['mimeType']};base64,{image['data']}"


def text_of_result(result: ToolResult) -> str:
    """Return the text of a result, with a line for each part; a model is given images in addition, no other part."""
    return "\n".join([*([result.output] if result.output else []), *map(_line, result.parts)])


def _line(part: Part) -> str:
    inner = part.get("resource")
    resource = cast("Part", inner) if isinstance(inner, Mapping) else EMPTY
    where = part.get("uri") or resource.get("uri")
    media = part.get("mimeType") or resource.get("mimeType")
    details = " ".join(str(each) for each in (part.get("name"), where and f"<{where}>", media) if each)
    left_out = "" if is_image(part) else "left out: "
    return " ".join(f"[{left_out}{part.get('type')} {details}".split()) + "]"
