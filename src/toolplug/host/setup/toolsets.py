"""What a host gives its toolsets: the memory and the rules around calls of its providers' tools."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from toolplug.execution.knobs import Layer
from toolplug.host.file.configuration import Configuration
from toolplug.providers.registry import UNKNOWN, FunctionRegistry
from toolplug.toolsets.around import Around


def toolsets_around(registry: FunctionRegistry, configuration: Callable[[], Configuration]) -> Around:
    """The surroundings of tools that toolsets declare; `configuration()` gives the one that holds now."""
    around = registry.around

    def limits() -> Layer:
        now = configuration()
        return Layer((), now.settings.limits, partial(now.origin, "limits"))

    return Around(
        unknown=around.ledger.series(UNKNOWN, UNKNOWN),
        ledger=around.ledger,
        carrier=around.lanes,
        limits=limits,
        hooks=lambda: registry.hooks,
        replay=around.replay,
        approvals=around.approvals,
        artifacts=around.artifacts,
    )
