"""The limits that an operator may set for every tool, a provider, a toolset or one tool, and their resolution.

For timeouts and sizes the most specific level wins; counters do not override: each level that sets one must admit
(reference/configuration). The metadata of a field of `Limits` says which of the two it is. A new limit needs only its
field here and the place where it is applied, which reads it from `plan.limits`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NamedTuple, Self, TypedDict, TypeVar, cast

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from toolplug import library_types
from toolplug.catalog.plan import Limiter, Retry, Setting
from toolplug.catalog.text import pluralize
from toolplug.config.units import (
    DEFAULT_ORIGIN,
    Duration,
    FileMapping,
    RateLimit,
    Size,
    format_duration,
    format_rate,
    format_size,
)
from toolplug.execution.accounting import CallAccounting, LevelKey, what_of
from toolplug.execution.limiters import Uncounted

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 60.0
DEFAULT_RESULT_BYTES = 1024 * 1024
DEFAULT_DRAIN_S = 30.0
DEFAULT_BLOCKING = 16

_WIDER = 2
"""The number of levels that are wider than a toolset: that of every tool, and the provider's."""


class MostSpecific(NamedTuple):
    """A limit of which the most specific setting applies, else the `default`; `text` formats a value for `explain`.

    A `repeatable` limit applies only to tools that may be called again.
    """

    default: object
    text: Callable[[Any], str]
    repeatable: bool = False


class EveryLevel(NamedTuple):
    """A counter of each level that sets it; those of the lowest `order` must admit a call first.

    `limiter` returns the counter of a level with its limits, `text` formats the value for `explain`. One `of_failures`
    counts failures, so that one tenant's applications and servers must not affect other tenants.
    """

    order: int
    limiter: Callable[[CallAccounting, LevelKey, Limits], Limiter]
    text: Callable[[Any], str]
    of_failures: bool = False


class PartOf(NamedTuple):
    """A parameter of the counters of other fields; if the level does not set it, `default`, or nothing to show."""

    fields: tuple[str, ...]
    default: object = None


def _breaker(accounting: CallAccounting, level: LevelKey, limits: Limits) -> Limiter:
    assert limits.breaker is not None
    return accounting.breaker(level, limits.breaker.failures, limits.breaker.open_for)


def _rate(accounting: CallAccounting, level: LevelKey, limits: Limits) -> Limiter:
    assert limits.rate is not None
    count, per_s = limits.rate.count, int(limits.rate.per_s)
    if limits.scope == "cluster" and accounting.cluster is not None:
        return accounting.cluster.rate(level, what_of(level), count, per_s, share=limits.without_store == "share")
    return accounting.rate(level, count, per_s)


def _concurrency_limit(accounting: CallAccounting, level: LevelKey, limits: Limits) -> Limiter:
    assert limits.max_concurrency is not None
    size, queue = limits.max_concurrency, limits.queue or 0
    if limits.scope == "cluster" and accounting.cluster is not None:
        return accounting.cluster.permits(level, what_of(level), size, queue, share=limits.without_store == "share")
    return accounting.concurrency_limit(level, size, queue)


def _breaker_text(limit: BreakerLimit) -> str:
    return f"{pluralize(limit.failures, 'failure')}, open for {format_duration(limit.open_for)}"


class BreakerLimit(FileMapping):
    """The parameters of a breaker; `open_for` in seconds."""

    failures: Annotated[int, Field(ge=1, description="panics and timeouts in a row that open it")]
    open_for: Annotated[Duration, Field(gt=0, description="how long it then refuses before one call may try")]


class Limits(FileMapping):
    """The limits that one level sets; None leaves a limit to the wider levels. Times in seconds."""

    timeout: Annotated[
        Duration | None,
        Field(gt=0, description="how long a call may take, queueing included"),
        MostSpecific(DEFAULT_TIMEOUT_S, format_duration),
    ] = None
    max_concurrency: Annotated[
        int | None, Field(ge=1, description="calls that may run at once"), EveryLevel(2, _concurrency_limit, str)
    ] = None
    queue: Annotated[
        int | None,
        Field(ge=0, description="calls that may wait for a place of max_concurrency"),
        PartOf(("max_concurrency",), 0),
    ] = None
    rate: Annotated[
        RateLimit | None,
        Field(description="calls that may begin in any window of this length"),
        EveryLevel(1, _rate, format_rate),
    ] = None
    scope: Annotated[
        Literal["process", "cluster"] | None,
        Field(description="whether rate and max_concurrency count the calls of one process, or of all on one store"),
        PartOf(("rate", "max_concurrency")),
    ] = None
    without_store: Annotated[
        Literal["refuse", "share"] | None,
        Field(description="for scope: cluster while the store is down; share: each process admits its part"),
        PartOf(("rate", "max_concurrency")),
    ] = None
    max_result_bytes: Annotated[
        Size | None,
        Field(ge=1, description="longest text that a result may have"),
        MostSpecific(DEFAULT_RESULT_BYTES, format_size),
    ] = None
    retries: Annotated[
        int | None,
        Field(ge=0, le=10, description="further attempts, where they are safe"),
        MostSpecific(0, str, repeatable=True),
    ] = None
    breaker: Annotated[BreakerLimit | None, EveryLevel(0, _breaker, _breaker_text, of_failures=True)] = None
    drain: Annotated[
        Duration | None,
        Field(description="how long running calls may take to end"),
        MostSpecific(DEFAULT_DRAIN_S, format_duration),
    ] = None
    artifacts: Annotated[
        bool | None,
        Field(description="keep results over max_result_bytes for read_result"),
        MostSpecific(False, json.dumps),
    ] = None

    @model_validator(mode="after")
    def _counts_something(self) -> Self:
        """Refuse a scope where no call is counted, and a rule for the store where no store counts them."""
        if self.scope is not None and self.rate is None and self.max_concurrency is None:
            raise PydanticCustomError("scope_alone", "scope needs rate or max_concurrency here, whose calls it counts")
        if self.without_store is not None and self.scope != "cluster":
            raise PydanticCustomError("without_store_alone", "without_store needs scope: cluster; else no store counts")
        return self


NO_LIMITS = Limits()


def _fields(kind: type[T]) -> list[tuple[str, T]]:
    fields = Limits.model_fields.items()
    return [(name, item) for name, field in fields for item in field.metadata if isinstance(item, kind)]


_MOST_SPECIFIC = sorted(_fields(MostSpecific), key=lambda item: item[1].repeatable)
"""In the order of `explain`: limits that depend on the tool are last."""
_EVERY_LEVEL = sorted(_fields(EveryLevel), key=lambda item: item[1].order)
_PARTS = _fields(PartOf)


class LimitLevel(NamedTuple):
    """The limits of one level; `origin` returns the file and line that sets one of them."""

    key: LevelKey
    limits: Limits = NO_LIMITS
    origin: Callable[[str], str] = lambda _: DEFAULT_ORIGIN

    def counter_settings(self) -> Iterator[Setting]:
        """Yield the settings of the counters of this level, as `explain` shows them."""
        for name, rule in _EVERY_LEVEL:
            value = getattr(self.limits, name)
            if value is None:
                continue
            yield Setting(name, rule.text(value), self.origin(name))
            for part, of in _PARTS:
                number = getattr(self.limits, part)
                if name not in of.fields:
                    continue
                if number is not None:
                    yield Setting(part, str(number), self.origin(part))
                elif of.default is not None:
                    yield Setting(part, str(of.default), DEFAULT_ORIGIN)


class DefaultTimeout(NamedTuple):
    """The timeout of one kind of tool where no level sets one; a caller may ask for up to `longest_s` instead."""

    seconds: float
    longest_s: float
    origin: str


class LimitSources(NamedTuple):
    """The levels that the limits of one tool are resolved from, the widest first, and the properties of the tool.

    levels: those of every tool, of its provider, and, if any, of a toolset and of the tool itself
    author_timeout_s: the tool author's timeout; ranks between the provider's setting and that for every tool
    blocking: the tool is synchronous; by default 16 calls of such tools may run per provider
    repeatable: the tool may be called again, so that retries apply
    of_one_tenant: the source belongs to one tenant (a session's application, a server that the tenant added), so
        failures count in its own breakers only; wider breakers, which other tenants share, may only refuse calls
    default_timeout: that of the tool's kind, None for the general one
    """

    levels: tuple[LimitLevel, ...]
    author_timeout_s: float | None = None
    blocking: bool = False
    repeatable: bool = False
    of_one_tenant: bool = False
    default_timeout: DefaultTimeout | None = None

    def within(self, level: LimitLevel) -> LimitSources:
        """Return the sources with a level that is narrower than the provider's and wider than the tool's own."""
        return self._replace(levels=(*self.levels[:_WIDER], level, *self.levels[_WIDER:]))

    def resolve(self, accounting: CallAccounting) -> ResolvedLimits:
        """Return the limits that apply to the tool; the counters are those of `accounting` for each level."""
        values: dict[str, Any] = {}
        settings: list[Setting] = []
        for name, rule in _MOST_SPECIFIC:
            value, origin = self._value(name, rule)
            values[name] = value
            settings.append(Setting(name, rule.text(value), origin))
        settings += [setting for level in reversed(self.levels) for setting in level.counter_settings()]
        limiters = list(self._limiters(accounting))
        # Level 1 is the provider, whose synchronous tools share this counter.
        if self.blocking and self.levels[1].limits.max_concurrency is None:
            key, limits, _ = self.levels[1]
            limiters.append(accounting.concurrency_limit(key, DEFAULT_BLOCKING, limits.queue or 0))
            settings.append(Setting("max_concurrency", str(DEFAULT_BLOCKING), "default for synchronous tools"))
        return ResolvedLimits(Limits.model_construct(**values), tuple(limiters), tuple(settings), self)

    def _value(self, name: str, rule: MostSpecific) -> tuple[object, str]:
        """Return the value of a limit and the origin of its setting."""
        for index in reversed(range(len(self.levels))):
            # Index 0 is the level of every tool, which ranks below the timeout of the author.
            if index == 0 and name == "timeout" and self.author_timeout_s is not None:
                break
            level = self.levels[index]
            value = getattr(level.limits, name)
            if value is not None:
                if value and rule.repeatable and not self.repeatable:
                    return rule.default, "the tool is neither read-only nor idempotent"
                return value, level.origin(name)
        if name == "timeout" and self.author_timeout_s is not None:
            return self.author_timeout_s, "the tool's own timeout="
        if name == "timeout" and self.default_timeout is not None:
            return self.default_timeout.seconds, self.default_timeout.origin
        return rule.default, DEFAULT_ORIGIN

    def _limiters(self, accounting: CallAccounting) -> Iterator[Limiter]:
        """Yield the counters in the order of a call; of each kind the most specific level is first.

        A call that the tool's own limit refuses therefore takes nothing from the wider limits.
        """
        for name, rule in _EVERY_LEVEL:
            for level in reversed(self.levels):
                if getattr(level.limits, name) is not None:
                    limiter = rule.limiter(accounting, level.key, level.limits)
                    yield Uncounted(limiter) if rule.of_failures and self._shares(level) else limiter

    def _shares(self, level: LimitLevel) -> bool:
        """Return True if the tool belongs to one tenant and the level has tools of others."""
        # The key of the provider's own tools begins with that of the provider.
        own = self.levels[1].key
        return self.of_one_tenant and level.key[: len(own)] != own


class ResolvedLimits(NamedTuple):
    """The limits that apply to one tool: `values` has each `MostSpecific` limit, set or by default.

    `settings` has every limit as `explain` shows it.
    """

    values: Limits
    limiters: tuple[Limiter, ...]
    settings: tuple[Setting, ...]
    sources: LimitSources

    @property
    def drain_s(self) -> float:
        """Seconds for which running calls may go on when their source is switched off."""
        return cast("float", self.values.drain)

    def in_plan(self, artifacts: library_types.Artifacts | None) -> PlanLimits:
        """Return the fields of a plan under these limits; with the limit `artifacts` it stores large results there."""
        values, default = self.values, self.sources.default_timeout
        unset = default is not None and Setting("timeout", format_duration(default.seconds), default.origin)
        return {
            "longest_s": default.longest_s if default is not None and unset in self.settings else None,
            "timeout_s": cast("float", values.timeout),
            "max_result_bytes": cast("int", values.max_result_bytes),
            "limiters": self.limiters,
            "retry": Retry(values.retries) if values.retries else None,
            "artifacts": artifacts if values.artifacts else None,
            "limits": self,
        }


class PlanLimits(TypedDict):
    """The fields of a plan that limits decide."""

    timeout_s: float
    longest_s: float | None
    max_result_bytes: int
    limiters: tuple[Limiter, ...]
    retry: Retry | None
    artifacts: library_types.Artifacts | None
    limits: ResolvedLimits
