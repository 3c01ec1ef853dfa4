"""The validated entry of one provider in the configuration, with the places of its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from toolplug.catalog.definition import Offer, ToolDefinition
from toolplug.config.run_settings import IN_PROCESS, RunSettings
from toolplug.config.yaml_tree import shown_path
from toolplug.crashes import CodeOwner, mask_nothing
from toolplug.errors import Problem, ProviderError
from toolplug.execution.isolated_hooks import OnFailure
from toolplug.execution.plans import ToolRule
from toolplug.execution.resolved_limits import NO_LIMITS, Limits
from toolplug.execution.user_auth import UserAuth
from toolplug.providers.provider import FunctionProvider


class ProviderState(StrEnum):
    """The state of a provider (docs/reference/http.md)."""

    ACTIVE = "active"
    INSTALLED_NOT_ENABLED = "installed-not-enabled"
    DISABLED = "disabled"
    IMPORT_FAILED = "import-failed"
    CONFIG_INVALID = "config-invalid"
    START_FAILED = "start-failed"
    RESTARTING = "restarting"
    WAITING = "waiting"
    SHADOWED = "shadowed"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRecord:
    """The status of one provider. `tools` are the names that it lists, `routes` are `METHOD /path`, `hooks` the names
    of the hooks that it implements.

    `summary` is the reason without the text of an exception, for readers other than operators.

    ```python
    import asyncio

    from toolplug import ProviderRecord, open_host, tool

    @tool
    def price(item: str) -> str:
        "Say what an item costs."
        return f"{item}: 3.50 EUR"

    async def main():
        async with open_host({"store": "memory://"}, providers=[price]) as host:
            record: ProviderRecord = host.records()[0]
            assert (record.key, record.state, record.tools) == ("price", "active", ("price",))

    asyncio.run(main())
    ```
    """

    key: str
    type: str
    state: ProviderState
    reason: str = ""
    fix: str = ""
    tools: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    distribution: str = ""
    version: str = ""
    summary: str = ""
    hooks: tuple[str, ...] = ()


class Place(NamedTuple):
    """The place of a setting; line and column count from 1, and are 0 if unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


def from_code(path: Sequence[str | int]) -> Place:
    """Return the place of a setting that is not from a file."""
    return Place("code")


_NOWHERE = Place("")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEntry:
    """One enabled entry of `providers:`. If two are equal, the running provider is kept.

    `settings` are the provider's own: an instance of its Config model, or a mapping if it has none; `host_limits` apply
    to each of its tools. `offer` is how models are offered those whose rules say nothing of it.
    `mount` is the path prefix of its routes, or empty. `run`: where it runs, and what it may use there; `python` is the
    interpreter of its own environment, or empty for the host's. `on_failure` is the effect of a check around calls that
    fails. `user_auth` says where `context.credential()` comes from.
    `package` is the top-level name of the provider's modules. `place` returns the place of a path below the entry,
    `host_place` of one below the root; `masked` masks the entry's secrets in a text.
    """

    key: str
    type: str
    required: bool = True
    public_routes: bool = False
    offer: Offer = "always"
    mount: str = ""
    run: RunSettings = IN_PROCESS
    python: str = ""
    on_failure: OnFailure = "deny"
    limits: Limits = NO_LIMITS
    host_limits: Limits = NO_LIMITS
    tools: Mapping[str, ToolRule] = field(default_factory=lambda: MappingProxyType({}))
    user_auth: UserAuth | None = None
    settings: object = None
    distribution: str = ""
    version: str = ""
    package: str = ""
    # Not compared: a line that has moved in the file is no reason to restart the provider.
    place: Callable[[Sequence[str | int]], Place] = field(default=from_code, compare=False)
    host_place: Callable[[Sequence[str | int]], Place] = field(default=from_code, compare=False)
    masked: Callable[[str], str] = field(default=mask_nothing, compare=False)

    @property
    def apart(self) -> bool:
        """Whether it runs in a process of its own, or in workers that dial in."""
        return self.run.apart

    @property
    def dialled(self) -> bool:
        """Whether its processes are workers that dial in."""
        return self.run.dialled

    @property
    def owner(self) -> CodeOwner:
        """The owner of the provider's code, for the log."""
        return CodeOwner(self.key, self.package, self.distribution, self.version, self.masked)

    @property
    def in_file(self) -> bool:
        """Whether the configuration has the entry; one of the host's own code has no place in it."""
        return self.place is not from_code

    def origin(self, *path: str) -> str:
        """Return the place of a path below the entry, as `explain` shows it."""
        return str(self.place(path))

    def host_origin(self, *path: str) -> str:
        """Return the place of a path below the root of the configuration, as `explain` shows it."""
        return str(self.host_place(path))

    def problem(self, code: str, message: str, hint: str, at: tuple[str | int, ...] = ()) -> Problem:
        """Return a problem of this entry, or of a path below it."""
        file, line, column = self.place(at) if self.in_file else _NOWHERE
        path = shown_path(("providers", self.key, *at))
        return Problem(code=code, message=message, file=file, line=line, column=column, path=path, hint=hint)

    def failure(self, error: ProviderError) -> Problem:
        """Return the problem that keeps the provider from running."""
        return self.problem(error.state.replace("-", "_"), str(error), error.fix, error.at)


class DesiredProvider(NamedTuple):
    """A provider that should run: created by `build`, or, without it, only recorded.

    `inspected`: a failure is only recorded; it stops nothing and is not logged. `single` is a module or an object, of
    which there is only one; None for a class or function. `scopes` are those that its routes declare, None if only a
    start can tell. `release` gives back what waits for `build`, where it is not called. `check_tools` raises
    `ProviderError` for tools that it must not offer.
    """

    entry: ProviderEntry
    build: Callable[[], FunctionProvider] | None
    record: ProviderRecord | None = None
    inspected: bool = False
    single: object = None
    scopes: frozenset[str] | None = None
    release: Callable[[], None] = lambda: None
    check_tools: Callable[[Iterable[ToolDefinition]], None] = lambda _: None


def record_of(entry: ProviderEntry, state: ProviderState, reason: str = "", fix: str = "") -> ProviderRecord:
    return ProviderRecord(
        key=entry.key,
        type=entry.type,
        state=state,
        reason=reason,
        fix=fix,
        distribution=entry.distribution,
        version=entry.version,
    )


def failed_record(entry: ProviderEntry, error: ProviderError) -> ProviderRecord:
    """Return the record of an entry whose package or start failed."""
    return replace(record_of(entry, ProviderState(error.state), str(error), error.fix), summary=error.summary)
