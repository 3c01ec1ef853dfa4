"""One session's share of a toolset whose executors start what they need at their first call."""

from __future__ import annotations

import logging
from collections.abc import Callable

from toolplug.catalog.catalog import Catalog
from toolplug.execution.live import Joint, LiveCatalog
from toolplug.toolsets.around import Around
from toolplug.toolsets.toolset import OnDemand, Toolset

_LOG = logging.getLogger("toolplug.toolsets")


class OnDemandPart:
    """Lists what the session's own executor lists; `live` is that under the toolset's prefix, by `reshape`."""

    def __init__(
        self, toolset: Toolset, source: OnDemand, around: Around, reshape: Callable[[Catalog, Toolset], Catalog]
    ) -> None:
        self._name = toolset.id
        self._executor = source.make()
        self._joint = Joint(around.unknown, self._executor)
        self.live: LiveCatalog = self._joint.view(lambda catalog: reshape(catalog, toolset))

    async def aclose(self) -> None:
        """List nothing, and close the executor."""
        self._joint.join()
        try:
            await self._executor.aclose()
        except Exception:  # noqa: BLE001  a session's end must reach its other toolsets
            _LOG.exception("toolset %r: the executor of a session could not be closed", self._name)
