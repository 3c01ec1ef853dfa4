"""The protocol between two hosts: addresses and requests of this one, and the answers of the other.

Answers are untrusted: they are bounded, checked, and turned into results or errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, TypeAlias
from urllib.parse import urlencode

import httpx2
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from toolplug import CallContext, ToolError, ToolResult, ToolsetLink, ToolStatus, ToolUnavailable

CONNECT_S = 5.0
VIA = "Toolplug-Via"
PRINCIPAL = "Toolplug-Principal"
_NO_READ_LIMIT = httpx2.Timeout(None, connect=CONNECT_S, write=30.0, pool=CONNECT_S)


class Address(NamedTuple):
    """Another host: the URL of its application without a trailing slash, and whose tools: an agent's, or None."""

    base: str
    agent: str | None

    @property
    def shown(self) -> str:
        """The address for messages, which holds no secrets."""
        return self.base


def address_of(text: str) -> Address:
    """Return the address that `from: host:URL` or `host:URL?agent=NAME` names. Raises `ValueError`."""
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise ValueError(f"host: should be followed by a URL: {error}") from None
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.fragment:
        raise ValueError(
            "host: should be followed by an http or https URL without credentials and fragment,"
            " such as host:https://tools.example.org"
        )
    agents = url.params.get_list("agent")
    if set(url.params) - {"agent"} or len(agents) > 1:
        raise ValueError("the URL after host: may have one parameter, agent")
    base = str(url.copy_with(query=None)).rstrip("/")
    return Address(base, agents[0] if agents else None)


def headers_of(link: ToolsetLink, via: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the headers of every request: the key, and the hosts on the way to this one with this one last."""
    headers = {"User-Agent": "toolplug-remote", VIA: ", ".join((*via, link.host))}
    if link.api_key is not None:
        headers["Authorization"] = f"Bearer {link.api_key.get_secret_value()}"
    return headers


def call_headers(link: ToolsetLink, context: CallContext, *, delegate: bool) -> dict[str, str]:
    """Return the headers of a call: also its caller, if the key may `delegate`, its trace and its request."""
    headers = {**headers_of(link, context.via), **context.trace_context, "Accept": "text/event-stream"}
    if delegate:
        principal = context.principal
        headers[PRINCIPAL] = urlencode({"tenant": principal.tenant, "subject": principal.subject})
    if context.request_id:
        headers["X-Request-Id"] = context.request_id
    return headers


def request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    content: bytes | None = None,
    *,
    read_s: float | None = None,
) -> httpx2.Request:
    """Return a request with the timeouts of this plugin; `read_s` is the longest silence, None for any."""
    timeout = {**_NO_READ_LIMIT.as_dict(), "read": read_s}
    return httpx2.Request(method, url, headers=headers, content=content, extensions={"timeout": timeout})


MAX_BYTES = 16 * 1024 * 1024
"""Of one event of a catalog."""
MAX_RESULT_BYTES = 4 * 1024 * 1024
"""Of a result, which has its value as text and as JSON, or of another answer to a call."""
MAX_VALUES = 64 * 1024
"""Texts in a result, names included, and values of its lists and objects; to read so many takes up to 20 ms."""
MAX_SMALL_BYTES = 64 * 1024
"""Of a report of progress, of an error and of the end of a stream."""
MAX_SHOWN = 200
"""Characters of a host's own words in a message."""

BAD_ANSWER = "bad_answer"


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class Progress(_Answer):
    """The data of a `progress` event."""

    progress: float
    total: float | None = None
    message: str | None = None


class CallAnswer(_Answer):
    """The data of a `result` event."""

    output: str
    status: ToolStatus = Field(strict=False)
    structured: Any = None
    parts: list[dict[str, Any]] = []
    metadata: dict[str, Any] = {}
    retry_after_s: float | None = None


HostId: TypeAlias = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]
Ways: TypeAlias = dict[str, Annotated[list[HostId], Field(max_length=16)]]
"""The hosts between a host and each of its tools that is elsewhere; a call goes through five at most."""


class Connected(_Answer):
    """The data of a `connected` event: the whole catalog, or none if the stream resumes."""

    host: HostId
    delegate: bool = False
    revision: int
    resumed: bool = False
    tools: list[dict[str, Any]] = []
    via: Ways = {}


class Changed(_Answer):
    """The data of a `tools-changed` event: all names in order, and the tools that are new or changed."""

    revision: int
    names: list[str]
    tools: list[dict[str, Any]]
    via: Ways = {}


class Ended(_Answer):
    """The data of an `error` event, with which a host ends the stream."""

    code: str
    message: str


class _Error(_Answer):
    code: str
    message: str


class _ErrorBody(_Answer):
    error: _Error


def result_of(data: str, host: str) -> ToolResult:
    """Return the result in a `result` event of that host. Raises `ToolError` for one that cannot be read.

    The status is the other host's own, so a `denied` says whose it is.
    """
    if _has_too_many_values(data):
        raise unreadable(f"the result has more than {MAX_VALUES:,} values")
    try:
        answer = CallAnswer.model_validate(from_json(data, allow_inf_nan=False))
    except ValidationError as error:
        raise unreadable(f"the result has {error.error_count()} invalid fields") from None
    except ValueError:
        raise unreadable("the result is no JSON") from None
    if answer.status is ToolStatus.CANCELLED:
        raise unreadable("the result has the status 'cancelled'")
    parts: tuple[Mapping[str, object], ...] = tuple(answer.parts)
    whose = f"denied by the host {host!r} of this toolset: " if answer.status is ToolStatus.DENIED else ""
    return ToolResult(
        output=f"{whose}{answer.output}",
        status=answer.status,
        structured=answer.structured,
        parts=parts,
        metadata=answer.metadata,
        retry_after_s=answer.retry_after_s,
    )


def _has_too_many_values(text: str) -> bool:
    """Return whether a JSON text has more than `MAX_VALUES`, by its punctuation: nothing is built yet."""
    if text.count(",") + text.count(":") + text.count("{") + text.count("[") <= MAX_VALUES:
        return False
    bare = text.replace(r"\\", "").replace(r"\"", "")
    if bare.count('"') > 2 * MAX_VALUES:
        return True
    outside = "".join(bare.split('"')[::2])
    return outside.count(",") + outside.count("{") + outside.count("[") > MAX_VALUES


def unreadable(why: str) -> ToolError:
    """Return the error for an answer that is not one of a toolplug host."""
    return ToolError(f"its host gave no answer that can be read: {why}", metadata={"code": BAD_ANSWER})


def refusal_of(response: httpx2.Response, body: bytes) -> str:
    """Return what a host says in an answer that is no success, for operators; what it could be if it is not ours."""
    if response.has_redirect_location:
        target = response.headers.get("location", "")[:MAX_SHOWN]
        return f"it redirects to {target!r}, which is not followed; write that URL"
    return _error_of(response, body)


def _error_of(response: httpx2.Response, body: bytes) -> str:
    """Return the error in an answer; it has no address, so that callers may read it too."""
    status = response.status_code
    try:
        error = _ErrorBody.model_validate_json(body if len(body) <= MAX_SMALL_BYTES else b"").error
    except ValidationError:
        media_type = response.headers.get("content-type", "no content type")[:MAX_SHOWN]
        return f"it answers HTTP {status} with {media_type}, as no toolplug host does; check the URL"
    if status == 401:
        return "it does not accept the key; set api_key of the toolset to a key of that host"
    return f"it answers HTTP {status} {error.code[:MAX_SHOWN]}: {error.message[:MAX_SHOWN]}"


def not_called(response: httpx2.Response, body: bytes) -> ToolResult | ToolUnavailable | ToolError:
    """Return what a call ends with whose request a host has refused before it reached a tool.

    Callers read it: it does not say where the host is, or where it redirects to.
    """
    elsewhere = "it redirects to another address, which is not followed"
    why = elsewhere if response.has_redirect_location else _error_of(response, body)
    pause = response.headers.get("retry-after", "")
    wait_s = float(pause) if pause.isdecimal() and len(pause) < 6 else None
    if response.status_code == 429:
        text = f"its host limits the calls of this toolset: {why}"
        return ToolResult(output=text, status=ToolStatus.LIMITED, retry_after_s=1.0 if wait_s is None else wait_s)
    if response.status_code in (400, 409, 413, 422):
        return ToolError(f"its host refuses the call: {why}", metadata={"code": "call_refused"})
    if response.status_code == 200:
        media_type = response.headers.get("content-type", "no content type")[:MAX_SHOWN]
        return unreadable(f"it is {media_type} instead of an event stream")
    # Only what the host says: a gateway's own 502 or 504 can come after the tool has run, and a time invites a retry.
    retry_after_s = wait_s if response.status_code >= 500 else None
    return ToolUnavailable(f"its host refuses: {why}", code="host_refused", retry_after_s=retry_after_s)
