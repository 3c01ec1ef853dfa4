"""The error tree.

    ToolplugError
    ├── ConfigError            wrong configuration: every problem at once
    ├── ToolError              a tool says "this did not work" to the model; its text is shown
    │   └── QuotaExceeded      a quota of the tenant or the credential is used up (of the store: a StoreError too)
    ├── InvalidArguments       arguments that their schema or model refuses
    ├── InvalidJson            a text that is no JSON, or has a duplicate key
    ├── InvalidDefinition      a tool, route or name that cannot be listed
    │   └── HiddenCharacter    a name, pattern or constant with an invisible character
    ├── UnmatchedStub          a built-in stub that no active provider declares (strict expansion)
    ├── ProviderError          a provider package that cannot be loaded, built or started
    ├── NoSuchProvider         a provider key that the configuration does not have
    ├── ApiError               a request that cannot be fulfilled; `param` is the part at fault
    │   ├── ResponseRefused    a request for a response
    │   └── BackendFailed      the model server cannot be reached, or its answer is not usable
    ├── AccessError            a catalog that this principal cannot have
    │   ├── AgentRequired      its credential names several agents; the request must name one of them
    │   ├── AgentNotAllowed    its credential does not name this agent
    │   ├── InvalidSessionCode text that is not a session code
    │   ├── SessionNotFound    no such session, or another tenant's
    │   └── SessionGone        the session has expired or was ended
    ├── HostError              an error of a client of a host
    │   ├── HostUnreachable    no host answers, or it cannot answer now
    │   └── HostRefused        the host refuses a request
    │       └── SessionOver    the session cannot be used by this client: final
    └── StoreError
        ├── StoreConflict      the record has another revision than expected
        ├── StoreUnavailable   busy, full, locked or closed: try again
        ├── StoreInUse         another process serves the store
        ├── StoreRefused       corrupt, or written by a newer toolplug: the file is left untouched
        │   └── RecordDamaged  one record is corrupt: it counts as none
        └── StoreMisused       an invalid URL, key, size or limit: the caller must change it

Data are attributes; no error has an HTTP status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

GoneState = Literal["session_expired", "session_ended"]
Values = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One error of a configuration, with its place and a hint on how to fix it.

    `line` and `column` count from 1; 0 means no position (an environment variable, a whole file). `path` is the dotted
    path of the setting.

    ```python
    from toolplug.errors import Problem

    problem = Problem(code="unknown_key", message="unknown key", file="providers.yaml", line=3, path="limits.tmeout")
    assert str(problem) == "providers.yaml:3: limits.tmeout: unknown key"
    ```
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
    """Base class of the errors that toolplug raises."""


class ConfigError(ToolplugError):
    """The configuration is invalid; `problems` has every error, in file order.

    ```python
    import asyncio

    from toolplug import ConfigError, open_host

    async def main():
        try:
            async with open_host({"limits": {"timeout": "soon"}}):
                pass
        except ConfigError as error:
            assert [problem.path for problem in error.problems] == ["limits.timeout"]

    asyncio.run(main())
    ```
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ToolError(ToolplugError):
    """A failed call, raised by a tool; the text is sent to the model.

    * `retry_after_s`: seconds after which the same call may succeed; it is retried if retries are configured and safe
    * `metadata`: JSON values for the caller, not sent to the model

    ```python
    import asyncio

    from toolplug import FunctionRegistry, ToolError, tool

    @tool
    def price(item: str) -> str:
        "Say what an item costs."
        raise ToolError(f"there is no {item!r}; try 'tea'", retry_after_s=60)

    async def main():
        async with FunctionRegistry([price]) as registry:
            result = await registry.call("price", item="gold")
            assert (result.status, result.output) == ("tool_error", "there is no 'gold'; try 'tea'")

    asyncio.run(main())
    ```
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None, metadata: Values | None = None) -> None:
        self.retry_after_s = retry_after_s
        self.metadata: dict[str, object] = dict(metadata or {})
        super().__init__(message)


class ToolUnavailable(ToolplugError):
    """What a known tool needs is out of reach, such as its server; the call ends as `unavailable`, with this reason.

    * `code`: a word for programs, in the metadata of the result
    * `retry_after_s`: seconds after which it may be available; None if unknown, or if the tool may have had its effect
    * `metadata`: further JSON values for the caller, not sent to the model

    ```python
    import asyncio

    from toolplug import FunctionRegistry, ToolUnavailable, tool

    @tool
    def price(item: str) -> str:
        raise ToolUnavailable("the shop is closed", code="closed", retry_after_s=3600)

    async def main():
        async with FunctionRegistry([price]) as registry:
            assert (await registry.call("price", item="tea")).metadata["code"] == "closed"

    asyncio.run(main())
    ```
    """

    def __init__(
        self, reason: str, *, code: str, retry_after_s: float | None = None, metadata: Values | None = None
    ) -> None:
        self.code = code
        self.retry_after_s = retry_after_s
        self.metadata: dict[str, object] = dict(metadata or {})
        super().__init__(reason)


class QuotaExceeded(ToolError):
    """A quota of the tenant or the credential is used up; `quota` is its name. A tool may let it reach the model."""

    def __init__(self, quota: str, message: str, retry_after_s: float) -> None:
        self.quota = quota
        super().__init__(message, retry_after_s=retry_after_s)


class InvalidArguments(ToolplugError):
    """Arguments that a schema or a model refuses; `lines` are `/pointer: message`, values masked, at most 20."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines: tuple[str, ...] = tuple(lines)
        super().__init__("\n".join(self.lines))


class InvalidJson(ToolplugError):
    """A text that is not JSON, or has an object with two equal keys (`duplicate_key`)."""

    def __init__(self, message: str, *, duplicate_key: bool = False) -> None:
        self.duplicate_key = duplicate_key
        super().__init__(message)


class InvalidDefinition(ToolplugError):
    """A definition with an invalid name, schema, route or prefix; `at` is the key at fault, empty if unknown.

    ```python
    from toolplug import FunctionRegistry
    from toolplug.errors import InvalidDefinition

    try:
        FunctionRegistry({"shop": 3.5})
    except InvalidDefinition as error:
        print(error)
    else:
        raise AssertionError("a number is a provider")
    ```
    """

    def __init__(self, message: str, *, at: str = "") -> None:
        self.at = at
        super().__init__(message)


class HiddenCharacter(InvalidDefinition):
    """A name, pattern or constant in a definition has an invisible character, so that it looks like another one."""


class UnmatchedStub(ToolplugError):
    """A built-in stub that no active provider declares, or with an option that its provider does not support.

    `index` is the position in the request's tools, from 0; `type` is the stub's type.

    ```python
    from toolplug import FunctionRegistry, UnmatchedStub, expand_builtin_tools

    try:
        expand_builtin_tools([{"type": "tarot"}], FunctionRegistry(), strict=True)
    except UnmatchedStub as refused:
        assert (refused.type, refused.index) == ("tarot", 0)
    ```
    """

    def __init__(self, message: str, *, index: int, type: str) -> None:  # noqa: A002  the stub's own key
        self.index = index
        self.type = type
        super().__init__(message)


class ProviderError(ToolplugError):
    """A provider that cannot be loaded, created or started; the text names its distribution and version.

    * `state`: the state of the provider after the error
    * `fix`: what the operator can do, empty if unknown
    * `at`: the path below the provider's entry that is at fault, empty for the whole entry
    * `summary`: the text without that of an exception, which may have secrets, for readers other than operators
    """

    def __init__(
        self, message: str, *, state: str, fix: str = "", at: tuple[str | int, ...] = (), summary: str = ""
    ) -> None:
        self.summary: str = summary or message
        self.state = state
        self.fix = fix
        self.at = at
        super().__init__(message)


class NoSuchProvider(ToolplugError):
    """The configuration has no provider of this key; `hint` names the nearest one."""

    def __init__(self, key: str, hint: str = "") -> None:
        self.key = key
        self.hint = hint
        super().__init__(f"no provider {key!r} in the configuration" + (f" ({hint})" if hint else ""))


class ApiError(ToolplugError):
    """A request that cannot be fulfilled; nothing has changed.

    * `code`: the reason for programs; `toolplug.http.errors` maps it to a status
    * `param`: the path of the part at fault, None for the whole request
    * `retry_after_s`: seconds after which the same request may succeed, None if it never will
    * `details`: JSON values for programs, sent with the error
    """

    def __init__(
        self,
        code: str,
        message: str,
        param: str | None = None,
        *,
        retry_after_s: float | None = None,
        details: Values = MappingProxyType({}),
    ) -> None:
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        self.details = details
        super().__init__(message)


class ResponseRefused(ApiError):
    """A request for a response that cannot be fulfilled; no model or tool was called."""


class BackendFailed(ApiError):
    """The model server cannot be reached, refuses the request, or sends an answer that cannot be used.

    `retry_after_s` is the one that the server sent, else None.
    """


class AccessError(ToolplugError):
    """The principal may not have the catalog that it asks for."""


class AgentRequired(AccessError):
    """The request must name one of `agents`, since the credential has several; no agent works if there are none."""

    def __init__(self, agents: Sequence[str]) -> None:
        self.agents: tuple[str, ...] = tuple(agents)
        named = f"one of several agents; name one of {', '.join(self.agents)}" if agents else "no agent"
        super().__init__(f"this credential acts as {named}")


class AgentNotAllowed(AccessError):
    """The credential may not act as this agent."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        super().__init__(f"this credential may not act as agent {agent!r}")


class SessionNotFound(AccessError):
    """There is no session of this code, or it is another tenant's: both have the same text."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__("no such session")


class InvalidSessionCode(AccessError):
    """A text that is not a session code: 8 of the characters A-Z and 2-7."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__("a session code is 8 of the characters A-Z and 2-7")


class SessionGone(AccessError):
    """The session has expired or was ended.

    After one more time to live it is `SessionNotFound`, as it is at once for principals that could not use it.
    """

    def __init__(self, code: str, state: GoneState) -> None:
        self.code = code
        self.state: GoneState = state
        how = "has expired: its application gave no sign for too long" if state == "session_expired" else "was ended"
        super().__init__(f"the session {how}; create a new one with POST /api/sessions")


class HostError(ToolplugError):
    """Base class of the errors of `toolplug.client`, a client of a host."""


class HostUnreachable(HostError):
    """No toolplug host answers at the URL, or it cannot answer now; the same request may succeed later.

    `retry_after_s`: seconds that the host asks to wait, None if it does not say.

    ```python
    import asyncio

    from toolplug.client import Application, HostUnreachable

    async def main():
        try:
            async with Application("http://127.0.0.1:9", plugin_type="notes"):  # no host listens there
                pass
        except HostUnreachable as error:
            print(error)
        else:
            raise AssertionError("there is a host")

    asyncio.run(main())
    ```
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class HostRefused(HostError):
    """The host refuses a request; `code` is its reason, `param` the part of the request at fault.

    `retry_after_s`: seconds after which the same request may succeed, None if it never will.
    """

    def __init__(
        self, code: str, message: str, *, param: str | None = None, retry_after_s: float | None = None
    ) -> None:
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        super().__init__(message)


class SessionOver(HostRefused):
    """The session has ended, has expired, does not exist, or does not accept this client's credential."""


class StoreError(ToolplugError):
    """Base class of the errors of stores."""


class StoreConflict(StoreError):
    """The record has the revision `actual` (0: there is no record), not the expected one; nothing was written.

    ```python
    from contextlib import suppress

    from toolplug.errors import StoreConflict

    async def count(store) -> int:
        while True:
            record = await store.read("count")
            number, revision = (int(record.value) + 1, record.revision) if record else (1, 0)
            with suppress(StoreConflict):  # another writer was first: read again
                await store.commit("count", b"%d" % number, expected=revision)
                return number
    ```
    """

    def __init__(self, key: str, *, expected: int, actual: int) -> None:
        self.key = key
        self.expected = expected
        self.actual = actual
        super().__init__(f"record {key!r} has revision {actual}, not {expected}")


class StoreUnavailable(StoreError):
    """The store is busy, full, locked, read-only or closed; trying again may succeed.

    Nothing was written, unless the message says that it may have been.
    """


class StoredBytesExceeded(QuotaExceeded, StoreError):
    """The tenant or the key has as many bytes in the store as it may; nothing was written."""


class StoreInUse(StoreError):
    """Another process serves this store: `pid` on the machine or in the container `machine`; 0 if several share it."""

    def __init__(self, store: Path, pid: int, machine: str) -> None:
        self.pid = pid
        self.machine = machine
        others = f"process {pid}" if pid else "processes that share it"
        self.what: str = f"{store} is served by {others} on {machine}"
        super().__init__(
            f"{self.what}; one process serves a store, unless all share it: stop that one, name another one in `store`,"
            " add `?shared=true` to the sqlite URL of each, or run one `toolplug serve --workers`"
        )


class StoreRefused(StoreError):
    """The file of the store is corrupt or was written by a newer toolplug; it is not changed."""


class RecordDamaged(StoreRefused):
    """One record cannot be read; the others can."""


class StoreMisused(StoreError):
    """An invalid URL, key, size or limit of a store: nothing was written, and trying again does not help."""


class HostKeyError(ToolplugError):
    """The key of the host is missing, unreadable or not that of its store.

    ```python
    from toolplug import ProviderContext, Sealer
    from toolplug.errors import HostKeyError

    async def sealer_of(site: ProviderContext) -> Sealer | None:
        try:
            return await site.sealer()
        except HostKeyError:
            return None  # go on without what needs it
    ```
    """


class Unsealable(ToolplugError):
    """What was sealed cannot be opened: it was changed, sealed for something else, or with a key that is gone.

    ```python
    from toolplug import Sealer
    from toolplug.errors import Unsealable

    def opened(sealer: Sealer, kept: bytes) -> bytes | None:
        try:
            return sealer.unseal(kept, b"note 1")
        except Unsealable:
            return None  # as if it had not been kept
    ```
    """
