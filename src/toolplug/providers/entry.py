"""What the operator wrote for one provider, checked and with its origins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, NamedTuple

from toolplug.crashes import CodeOwner, unmasked
from toolplug.errors import Problem, ProviderError
from toolplug.execution.plans import ToolRule
from toolplug.execution.resolved_limits import NO_LIMITS, Limits
from toolplug.providers.provider import FunctionProvider

OnFailure = Literal["deny", "allow"]
"""What a host-wide hook that fails means for the call."""


class ProviderState(StrEnum):
    """Every provider is in exactly one of these (docs/reference/http.md)."""

    ACTIVE = "active"
    INSTALLED_NOT_ENABLED = "installed-not-enabled"
    DISABLED = "disabled"
    IMPORT_FAILED = "import-failed"
    CONFIG_INVALID = "config-invalid"
    START_FAILED = "start-failed"
    SHADOWED = "shadowed"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRecord:
    """One provider as an operator sees it. `tools` are the names that it lists, `routes` are `METHOD /path`.

    `summary` is the reason without the text of an exception, for readers who are not operators.
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


class Place(NamedTuple):
    """Where something was said; line and column count from 1, and are 0 where the place has none."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


def from_code(path: Sequence[str]) -> Place:
    """The place of what no file says."""
    return Place("code")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEntry:
    """One enabled entry of `providers:`. Two that are equal need no new generation.

    `settings` are the provider's own, checked: an instance of its Config model, or a mapping where it has none;
    `host_limits` those that hold for every tool. `on_request`: its tools are offered to the model of a response only
    where the request names them. `mount` is the path that its routes are below, empty without one. `on_failure` says
    what its failing `before_call` means. `package` is the top-level name of the provider's modules. `place` says where
    a path below the entry stands, `host_place` one below the root; `masked` takes the entry's secrets out of a text.
    """

    key: str
    type: str
    required: bool = True
    public_routes: bool = False
    on_request: bool = False
    mount: str = ""
    on_failure: OnFailure = "deny"
    limits: Limits = NO_LIMITS
    host_limits: Limits = NO_LIMITS
    tools: Mapping[str, ToolRule] = field(default_factory=lambda: MappingProxyType({}))
    settings: object = None
    distribution: str = ""
    version: str = ""
    package: str = ""
    place: Callable[[Sequence[str]], Place] = field(default=from_code, compare=False)
    host_place: Callable[[Sequence[str]], Place] = field(default=from_code, compare=False)
    masked: Callable[[str], str] = field(default=unmasked, compare=False)

    @property
    def owner(self) -> CodeOwner:
        """Whose code the provider is, for the log."""
        return CodeOwner(self.key, self.package, self.distribution, self.version, self.masked)

    def origin(self, *path: str) -> str:
        """The place of a path below the entry, as `explain` shows it."""
        return str(self.place(path))

    def host_origin(self, *path: str) -> str:
        """The place of a path below the root of the configuration."""
        return str(self.host_place(path))

    def problem(self, code: str, message: str, hint: str, at: tuple[str, ...] = ()) -> Problem:
        """A problem of this entry, or of a path below it."""
        file, line, column = self.place(at)
        path = ".".join(("providers", self.key, *at))
        return Problem(code=code, message=message, file=file, line=line, column=column, path=path, hint=hint)

    def failure(self, error: ProviderError) -> Problem:
        """The problem of this entry that keeps its provider from running."""
        return self.problem(error.state.replace("-", "_"), str(error), error.fix, error.at)


class DesiredProvider(NamedTuple):
    """One provider as it should be: built anew by `build`, or, without it, only recorded.

    `inspected`: a failure is only recorded; it stops nothing, and the log leaves it to the one who inspects.
    """

    entry: ProviderEntry
    build: Callable[[], FunctionProvider] | None
    record: ProviderRecord | None = None
    inspected: bool = False


def recorded(entry: ProviderEntry, state: ProviderState, reason: str = "", fix: str = "") -> ProviderRecord:
    """The record of an entry in this state."""
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
    """The record of an entry whose package or start failed."""
    return replace(recorded(entry, ProviderState(error.state), str(error), error.fix), summary=error.summary)
