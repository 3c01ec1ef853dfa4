"""The limits that an operator may set for every tool, a provider, a toolset or one tool, and what holds in the end.

For timeouts and sizes the most specific level wins; counters do not override: each level that sets one must admit
(CONTRACT.md section 2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from toolplug.catalog.plan import Limiter, Retry, Setting
from toolplug.catalog.text import counted
from toolplug.config.units import Duration, RateLimit, Size, format_duration, format_rate, format_size
from toolplug.execution.accounting import CallAccounting, LevelKey

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 60.0
DEFAULT_DRAIN_S = 30.0
DEFAULT_RESULT_BYTES = 1024 * 1024
DEFAULT_BLOCKING = 16
DEFAULT_ORIGIN = "default"

_WIDER = 2
"""How many levels are wider than a toolset: that of every tool, and the provider's."""


class BreakerLimit(BaseModel):
    """Opens after so many panics and timeouts in a row."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True)

    failures: Annotated[int, Field(ge=1, description="panics and timeouts in a row that open it")]
    open_for: Annotated[Duration, Field(gt=0, description="how long it then refuses before one call may try")]


class Limits(BaseModel):
    """The knobs of one level; what is not set is left to the level above."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True)

    timeout: Annotated[Duration | None, Field(gt=0, description="how long a call may take, queueing included")] = None
    max_concurrency: Annotated[int | None, Field(ge=1, description="calls that may run at once")] = None
    queue: Annotated[int | None, Field(ge=0, description="calls that may wait for a place of max_concurrency")] = None
    rate: Annotated[RateLimit | None, Field(description="calls that may begin in any window of this length")] = None
    max_result_bytes: Annotated[Size | None, Field(ge=1, description="longest text that a result may have")] = None
    retries: Annotated[int | None, Field(ge=0, le=10, description="further attempts, where they are safe")] = None
    breaker: BreakerLimit | None = None
    drain: Annotated[Duration | None, Field(description="how long running calls may take to end")] = None
    artifacts: Annotated[bool | None, Field(description="keep results over max_result_bytes for read_result")] = None


NO_LIMITS = Limits()


class LimitLevel(NamedTuple):
    """The limits of one level and where each of its knobs was set."""

    level: LevelKey
    limits: Limits
    origin: Callable[[str], str]


class LimitSources(NamedTuple):
    """What the limits of one tool are drawn from: its levels, the widest first, and what is known of the tool itself.

    `layers` are those for every tool and of its provider, then, where there are any, of a toolset and of the tool.
    """

    layers: tuple[LimitLevel, ...]
    wished_timeout_s: float | None
    blocking: bool
    repeatable: bool

    def within(self, layer: LimitLevel) -> LimitSources:
        """With one level more: narrower than the provider's, wider than the tool's own."""
        return self._replace(layers=(*self.layers[:_WIDER], layer, *self.layers[_WIDER:]))

    def resolve(self, accounting: CallAccounting) -> ResolvedLimits:
        """What this comes to."""
        return resolve_limits(
            self.layers,
            accounting,
            wished_timeout_s=self.wished_timeout_s,
            blocking=self.blocking,
            repeatable=self.repeatable,
        )


class ResolvedLimits(NamedTuple):
    """What holds for one tool, with every knob as `explain` shows it."""

    timeout_s: float
    max_result_bytes: int
    drain_s: float
    artifacts: bool
    retry: Retry | None
    limiters: tuple[Limiter, ...]
    settings: tuple[Setting, ...]
    basis: LimitSources


def resolve_limits(
    layers: Sequence[LimitLevel],
    accounting: CallAccounting,
    *,
    wished_timeout_s: float | None,
    blocking: bool,
    repeatable: bool,
) -> ResolvedLimits:
    """What these layers (every tool, provider, toolset, tool: in this order) come to for one tool.

    `wished_timeout_s` is the tool author's own: it stands between the provider's setting and that for every tool.
    `blocking` tools have 16 places a provider where nothing else is said; retries need a `repeatable` tool.
    """
    knobs = _Knobs(layers)
    timeout = knobs.pick("timeout", DEFAULT_TIMEOUT_S, format_duration)
    if wished_timeout_s is not None and timeout.layer <= 0:
        timeout = _Picked(wished_timeout_s, 0)
        knobs.replace("timeout", format_duration(wished_timeout_s), "the tool's own timeout=")
    result_bytes = knobs.pick("max_result_bytes", DEFAULT_RESULT_BYTES, format_size)
    drain = knobs.pick("drain", DEFAULT_DRAIN_S, format_duration)
    artifacts = knobs.pick("artifacts", False, _yes_or_no)
    retries = knobs.pick("retries", 0, str)
    if retries.value and not repeatable:
        knobs.replace("retries", "0", "the tool is neither read-only nor idempotent")
    limiters = knobs.limiters(accounting, blocking)
    return ResolvedLimits(
        timeout.value,
        result_bytes.value,
        drain.value,
        artifacts.value,
        Retry(retries.value) if retries.value and repeatable else None,
        limiters,
        tuple(knobs.settings),
        LimitSources(tuple(layers), wished_timeout_s, blocking, repeatable),
    )


class _Picked(NamedTuple, Generic[T]):
    """A value and the index of the layer that set it; -1 where it is the default."""

    value: T
    layer: int


class _Knobs:
    """Collects what `explain` shows while the knobs are read."""

    def __init__(self, layers: Sequence[LimitLevel]) -> None:
        self._layers = layers
        self.settings: list[Setting] = []

    def pick(self, knob: str, default: T, shown: Callable[[T], str]) -> _Picked[T]:
        """The most specific setting of a knob that overrides."""
        for index in reversed(range(len(self._layers))):
            value: T | None = getattr(self._layers[index].limits, knob)
            if value is not None:
                self.settings.append(Setting(knob, shown(value), self._layers[index].origin(knob)))
                return _Picked(value, index)
        self.settings.append(Setting(knob, shown(default), DEFAULT_ORIGIN))
        return _Picked(default, -1)

    def replace(self, knob: str, value: str, origin: str) -> None:
        """Show another value of a knob that has been picked."""
        self.settings = [Setting(knob, value, origin) if item.knob == knob else item for item in self.settings]

    def limiters(self, accounting: CallAccounting, blocking: bool) -> tuple[Limiter, ...]:
        """Every level's breaker, then every rate, then every concurrency limit; the most specific level first.

        So a call that its own tool's limit refuses takes nothing from the limits above.
        """
        breakers: list[Limiter] = []
        rates: list[Limiter] = []
        permits: list[Limiter] = []
        for layer in reversed(self._layers):
            limits = layer.limits
            if limits.breaker is not None:
                failures, open_for = limits.breaker.failures, limits.breaker.open_for
                breakers.append(accounting.breaker(layer.level, failures, open_for))
                self._show("breaker", f"{counted(failures, 'failure')}, open for {format_duration(open_for)}", layer)
            if limits.rate is not None:
                rates.append(accounting.rate(layer.level, limits.rate.count, int(limits.rate.per_s)))
                self._show("rate", format_rate(limits.rate), layer)
            if limits.max_concurrency is not None:
                permits.append(accounting.permits(layer.level, limits.max_concurrency, limits.queue or 0))
                self._show("max_concurrency", str(limits.max_concurrency), layer)
                self._show("queue", str(limits.queue or 0), layer, "queue" if limits.queue is not None else None)
        source = self._layers[1]
        if blocking and source.limits.max_concurrency is None:
            permits.append(accounting.permits(source.level, DEFAULT_BLOCKING, source.limits.queue or 0))
            self.settings.append(Setting("max_concurrency", str(DEFAULT_BLOCKING), "default for synchronous tools"))
        return (*breakers, *rates, *permits)

    def _show(self, knob: str, value: str, layer: LimitLevel, set_by: str | None = "") -> None:
        origin = DEFAULT_ORIGIN if set_by is None else layer.origin(set_by or knob)
        self.settings.append(Setting(knob, value, origin))


def _yes_or_no(value: bool) -> str:
    return "true" if value else "false"
