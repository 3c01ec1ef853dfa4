"""The error tree.

    ToolplugError
    ├── ConfigError            wrong configuration: every problem at once
    ├── ToolError              a tool says "this did not work" to the model; its text is shown
    │   └── QuotaExceeded      the tenant or the key has as much as it may (one of the store is a StoreError too)
    ├── InvalidArguments       arguments that their schema or model refuses
    ├── InvalidJson            a text that is no JSON, or has a duplicate key
    ├── InvalidDefinition      a tool, route or name that cannot be listed
    │   └── HiddenCharacter    a name, pattern or constant with a character that nobody can see
    ├── UnmatchedStub          a built-in stub that no active provider declares (strict expansion)
    ├── ProviderError          a provider package that cannot be loaded, built or started
    ├── NoSuchProvider         a provider key that the configuration does not have
    ├── ApiError               a request that cannot be done as asked; `param` is its part at fault
    │   ├── ResponseRefused    one for a response
    │   └── BackendFailed      the model's server did not answer, or not with what can be read
    ├── AccessError            a catalog that this principal cannot have
    │   ├── AgentRequired      its credential names several agents; the request must name one of them
    │   ├── AgentNotAllowed    its credential does not name this agent
    │   ├── InvalidSessionCode a code that no session could have
    │   ├── SessionNotFound    no such session, or another tenant's
    │   └── SessionGone        the session has expired or was ended
    ├── HostError              what a client of a host is told, or not told
    │   ├── HostUnreachable    no host answers, or it cannot answer now
    │   └── HostRefused        the host refuses a request, in its own words
    │       └── SessionOver    the session takes nothing more from this client: final
    └── StoreError
        ├── StoreConflict      the record has another revision than expected
        ├── StoreUnavailable   busy, full, locked or gone: try again
        ├── StoreInUse         another process serves the store
        ├── StoreRefused       corrupt, or written by a newer toolplug: the file is left untouched
        └── StoreMisused       a URL, key, size or limit that no store takes: the caller must change it

Data are attributes; no error knows an HTTP status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

GoneState = Literal["session_expired", "session_ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong, with its place and how to fix it.

    `line` and `column` count from 1; 0 means that the place has no position (an environment variable, a whole file).
    """

    code: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    path: str = ""
    hint: str = ""

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        text = f"{place}: " if place else ""
        text += f"{self.path}: {self.message}" if self.path else self.message
        return f"{text} ({self.hint})" if self.hint else text


class ToolplugError(Exception):
    """The base class of toolplug's own errors."""


class ConfigError(ToolplugError):
    """The configuration is wrong; `problems` holds every problem found, in file order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ToolError(ToolplugError):
    """Raised by a tool to tell the model that the call did not work; the text is what the model sees.

    `retry_after_s`: seconds after which the same call may work; toolplug retries it itself where retries are
    configured and safe. `metadata`: JSON values for the caller, not shown to the model.
    """

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, metadata: Mapping[str, object] | None = None
    ) -> None:
        self.retry_after_s = retry_after_s
        self.metadata: dict[str, object] = dict(metadata or {})
        super().__init__(message)


class QuotaExceeded(ToolError):
    """The tenant, or the key, has as much as it may; `quota` names what. A tool may pass it on to the model."""

    def __init__(self, quota: str, message: str, retry_after_s: float) -> None:
        self.quota = quota
        super().__init__(message, retry_after_s=retry_after_s)


class InvalidArguments(ToolplugError):
    """Arguments that a schema or a model refuses; `lines` are `/pointer: message`, values masked, at most 20."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines: tuple[str, ...] = tuple(lines)
        super().__init__("\n".join(self.lines))


class InvalidJson(ToolplugError):
    """A text that is no JSON, or not unambiguous: `duplicate_key` is true where an object has two equal keys."""

    def __init__(self, message: str, *, duplicate_key: bool = False) -> None:
        self.duplicate_key = duplicate_key
        super().__init__(message)


class InvalidDefinition(ToolplugError):
    """A definition that cannot be listed: a bad name, schema, route or prefix; `at` is the key to blame, if one is."""

    def __init__(self, message: str, *, at: str = "") -> None:
        self.at = at
        super().__init__(message)


class HiddenCharacter(InvalidDefinition):
    """A name, pattern or constant in a stranger's definition that is not what it looks like."""


class UnmatchedStub(ToolplugError):
    """A built-in stub that no active provider declares, or an option that its provider does not support.

    `index` is the entry's position in the request's tools, `type` the stub's type.
    """

    def __init__(self, message: str, *, index: int, type: str) -> None:  # noqa: A002  the name of the stub's own key
        self.index = index
        self.type = type
        super().__init__(message)


class ProviderError(ToolplugError):
    """A provider package that cannot be loaded, built or started; names distribution and version.

    `at` is the path below the provider's entry that is to blame, empty for the entry as a whole. `summary` says the
    same without the text of an exception, which may hold anything, for readers who are not operators.
    """

    def __init__(self, message: str, *, state: str, fix: str = "", at: tuple[str, ...] = (), summary: str = "") -> None:
        self.summary: str = summary or message
        self.state = state
        self.fix = fix
        self.at = at
        super().__init__(message)


class NoSuchProvider(ToolplugError):
    """The configuration has no entry of this key; `hint` names the nearest one."""

    def __init__(self, key: str, hint: str = "") -> None:
        self.key = key
        self.hint = hint
        super().__init__(f"no provider {key!r} in the configuration" + (f" ({hint})" if hint else ""))


class ApiError(ToolplugError):
    """A request that cannot be done as asked; nothing has changed.

    * `code` says why to programs, the text to people; `toolplug.http.errors` has the status of each.
    * `param` is the path of the part at fault.
    * `retry_after_s`: seconds after which the same request may work; None where it never will.
    * `details` are JSON values for programs, sent next to the error.
    """

    def __init__(
        self,
        code: str,
        message: str,
        param: str | None = None,
        *,
        retry_after_s: float | None = None,
        details: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        self.details = details
        super().__init__(message)


class ResponseRefused(ApiError):
    """A request for a response that cannot be honoured; nothing was run."""


class BackendFailed(ApiError):
    """The model's server could not be asked, or gave no answer that can be used; `retry_after_s` where it says so."""


class AccessError(ToolplugError):
    """A catalog that this principal cannot have."""


class AgentRequired(AccessError):
    """The credential names several agents, so the request must name one of `agents`; or it has an empty list."""

    def __init__(self, agents: Sequence[str]) -> None:
        self.agents: tuple[str, ...] = tuple(agents)
        named = f"one of several agents; name one of {', '.join(self.agents)}" if agents else "no agent"
        super().__init__(f"this credential acts as {named}")


class AgentNotAllowed(AccessError):
    """The credential does not name this agent."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        super().__init__(f"this credential may not act as agent {agent!r}")


class SessionNotFound(AccessError):
    """No such session, or another tenant's: one answer for both."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__("no such session")


class InvalidSessionCode(AccessError):
    """Text that is no session code."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__("a session code is 8 of the characters A-Z and 2-7")


class SessionGone(AccessError):
    """The session has expired or was ended; told for one more time to live, to those who could use it."""

    def __init__(self, code: str, state: GoneState) -> None:
        self.code = code
        self.state: GoneState = state
        how = "has expired: its application gave no sign for too long" if state == "session_expired" else "was ended"
        super().__init__(f"the session {how}; create a new one with POST /api/sessions")


class HostError(ToolplugError):
    """What a client of a host is told, or not told."""


class HostUnreachable(HostError):
    """Nobody answers at the URL, or no toolplug host, or one that cannot answer now: the same may work later."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class HostRefused(HostError):
    """The host refuses a request; `code` is its word for why, `param` the part of the request to blame.

    `retry_after_s`: seconds after which the same request may work; None where it never will.
    """

    def __init__(
        self, code: str, message: str, *, param: str | None = None, retry_after_s: float | None = None
    ) -> None:
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        super().__init__(message)


class SessionOver(HostRefused):
    """The session has ended or expired, is not there, or does not take this client's credential (any more)."""


class StoreError(ToolplugError):
    """Any failure of the store."""


class StoreConflict(StoreError):
    """The record's revision is not the expected one; `actual` is the one it has (0: there is no record)."""

    def __init__(self, key: str, *, expected: int, actual: int) -> None:
        self.key = key
        self.expected = expected
        self.actual = actual
        super().__init__(f"record {key!r} has revision {actual}, not {expected}")


class StoreUnavailable(StoreError):
    """The store cannot answer now: busy, full, locked, read-only or closed; nothing was written."""


class StoredBytesExceeded(QuotaExceeded, StoreError):
    """The tenant, or the key, keeps as many bytes as it may; nothing was written."""


class StoreInUse(StoreError):
    """Another process serves this store; `pid` is its id on the machine or in the container `machine`."""

    def __init__(self, store: Path, pid: int, machine: str) -> None:
        self.pid = pid
        self.machine = machine
        self.what: str = f"{store} is served by process {pid} on {machine}"
        super().__init__(
            f"{self.what}; one process serves a store: stop that one, name another file in `store`, or run one worker"
        )


class StoreRefused(StoreError):
    """The store's file is corrupt or was written by a newer toolplug; it is left as it is."""


class StoreMisused(StoreError):
    """A store's URL, or an argument, that no store takes: trying again does not help, and nothing was written."""
