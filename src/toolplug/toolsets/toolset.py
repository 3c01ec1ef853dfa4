"""A toolset: an id, a prefix, and the source of its tools."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.definition import Offer, Offered, ToolDefinition
from toolplug.catalog.offering import EMPTY_OFFERING, Offering
from toolplug.errors import InvalidDefinition
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.resolved_limits import LimitLevel

TOOLSET_ID = r"^[a-z][a-z0-9_-]{0,63}$"

FROM_CODE = "code"

Made = ToolExecutor | AbstractAsyncContextManager[ToolExecutor]
Factory = Callable[[], Made | Awaitable[Made]]
"""Makes the executor of one session. What it gives may be waited for, and is closed by leaving it where it can be
entered (`async with`), else by its `aclose()` where it has one."""

_ID = re.compile(TOOLSET_ID)


def _nothing() -> None:
    """Ignore that a session begins to use the toolset."""


def no_offering() -> Offering:
    """Return an offering without prompts and resources."""
    return EMPTY_OFFERING


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSource:
    """One executor for all callers, which no session closes; `offering` returns its prompts and resources."""

    executor: ToolExecutor
    offering: Callable[[], Offering] = field(default=no_offering, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerSession:
    """A factory that runs once for each session. `tools` are listed before; with None it must run first."""

    factory: Factory
    tools: tuple[ToolDefinition, ...] | None = None


class SessionExecutor(ToolExecutor, Protocol):
    """A tool executor of one session."""

    async def aclose(self) -> None:
        """Release what its calls have started."""
        ...

    @property
    def offering(self) -> Offering:
        """The prompts and resources of the session's own source."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDemand:
    """Executors that list their tools at once, and start what they need at the first call.

    `make` returns one for each session when it is first needed, which is closed once, with the session. `lone` is that
    of callers without a session, which is never closed, and `offering` returns their prompts and resources.
    """

    lone: ToolExecutor
    make: Callable[[], SessionExecutor]
    offering: Callable[[], Offering] = field(default=no_offering, compare=False)


Source = SharedSource | PerSession | OnDemand


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Toolset:
    """One registration. Raises `InvalidDefinition` for an invalid id or prefix (docs/reference/names.md).

    `limits` apply to its tools together, in addition to those of their source. `offered` is how models are offered the
    tools whose own rules say nothing of it; None: as their source says. `used` is called when a session begins to use
    the toolset. `shown` names the source of its tools, and `origin` the line of the configuration, or the call,
    that registered it.
    """

    id: str
    prefix: str
    source: Source
    limits: LimitLevel | None = None
    offered: Offered | None = None
    used: Callable[[], None] = _nothing
    shown: str = FROM_CODE
    origin: str = FROM_CODE

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise InvalidDefinition(
                f"{self.id!r} is no toolset id; a lower-case letter, then up to 63 of a-z 0-9 _ - are allowed", at="id"
            )
        try:
            EMPTY_CATALOG.prefixed(self.prefix)
        except InvalidDefinition as error:
            raise InvalidDefinition(str(error), at="prefix") from None

    def rename_tools(self, catalog: Catalog) -> Catalog:
        """Return the tools of the source under the prefix, and offered as `offered` says."""
        return (catalog if self.offered is None else catalog.offered(self.offered)).prefixed(self.prefix)


def coded_toolset(
    name: str,
    prefix: str,
    source: ToolExecutor | Factory,
    tools: Iterable[ToolDefinition] | None,
    offer: Offer | None,
) -> Toolset:
    """Return a toolset of the host's code. Raises `InvalidDefinition`, and `TypeError` for an invalid source."""
    offered = None if offer is None else Offered(offer, FROM_CODE)
    # A class has the methods of the protocol as well, but is a factory.
    if not isinstance(source, type) and isinstance(source, ToolExecutor):
        if tools is not None:
            raise TypeError("tools are for a factory; an executor lists its own")
        return Toolset(id=name, prefix=prefix, source=SharedSource(executor=source), offered=offered)
    if not callable(source):
        raise TypeError(f"a {type(source).__name__} is neither a ToolExecutor nor a factory of one")
    declared = None if tools is None else tuple(tools)
    return Toolset(id=name, prefix=prefix, source=PerSession(factory=source, tools=declared), offered=offered)
