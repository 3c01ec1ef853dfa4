"""The metrics of one open part of a plugin."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector


class PartMetrics(CollectorRegistry):
    """The metrics of one open part of a plugin, which the host has as one collector.

    So the part that a reload opens in place of another has metrics of the same names before that one is closed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._own: dict[Collector, None] = {}
        self._shown_in: CollectorRegistry | None = None

    def register(self, collector: Collector) -> None:
        """Add a collector. Raises `ValueError` for a name that is taken, once the part is open in the host as well."""
        super().register(collector)
        self._own[collector] = None
        if (host := self._shown_in) is None:
            return
        host.unregister(self)  # it checks names only when a collector is registered
        try:
            host.register(self)
        except ValueError:
            self.unregister(collector)
            host.register(self)
            raise

    def show_in(self, host: CollectorRegistry | None) -> None:
        """Have the metrics in the host's, None: no longer. Raises `ValueError` for a name that is taken."""
        if self._shown_in is not None:
            self._shown_in.unregister(self)
        if host is not None:
            host.register(self)
        self._shown_in = host

    def unregister(self, collector: Collector) -> None:
        """Remove a collector."""
        super().unregister(collector)
        del self._own[collector]

    def describe(self) -> Iterator[Metric]:
        """Yield the families of its collectors, so that none of another's name is taken into the host."""
        for each in [*self._own]:
            yield from getattr(each, "describe", tuple)()
