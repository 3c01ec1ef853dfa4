"""What a host gives its saved toolsets, and how providers get at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from toolplug.catalog.plan import Tool
from toolplug.execution.artifacts import SOURCE
from toolplug.execution.ledger import Ledger
from toolplug.host.file.configuration import Configuration
from toolplug.host.gates.equipped import EquippedGate
from toolplug.providers.planning import KIND
from toolplug.providers.registry import UNKNOWN
from toolplug.providers.site import Services
from toolplug.stores.store import Store
from toolplug.toolsets.saved.equipment import Equipment
from toolplug.toolsets.saved.owner import Owner
from toolplug.toolsets.saved.service import CatalogOf, SavedToolsets

MANAGING = "toolsets"
"""The type of the providers whose tools stay in every catalog: with them another toolset is equipped, or none."""

S = TypeVar("S")


class Stays:
    """Which tools no equipped toolset leaves out: those that choose toolsets, and what reads the results of any."""

    def __init__(self, configuration: Configuration) -> None:
        self._keys = _managing(configuration)

    def configure(self, configuration: Configuration) -> None:
        """Go by this configuration from now on."""
        self._keys = _managing(configuration)

    def __call__(self, tool: Tool) -> bool:
        ref = tool.definition.ref
        return ref.source == SOURCE or (ref.source in self._keys and ref.kind == KIND)


class Saved(NamedTuple):
    """The saved toolsets of one entered host."""

    stays: Stays
    equipment: Equipment
    toolsets: SavedToolsets

    @property
    def services(self) -> Services:
        """What providers may ask for."""
        return _offered({SavedToolsets: self.toolsets})

    def gate(self, owner: Owner) -> EquippedGate | None:
        """What the owner has equipped, as a gate; None where that is nothing."""
        toolset = self.equipment.of(owner)
        return None if toolset is None else EquippedGate(toolset, self.stays)


def saved_setup(configuration: Configuration, store: Store, ledger: Ledger, catalog_of: CatalogOf) -> Saved:
    """Saved toolsets that are not entered yet; `catalog_of` is asked by calls and requests only."""
    stays = Stays(configuration)
    equipment = Equipment(ledger.series(UNKNOWN, UNKNOWN), stays)
    return Saved(stays, equipment, SavedToolsets(store, equipment, catalog_of))


def _offered(services: Mapping[type, object]) -> Services:
    def service(kind: type[S], /) -> S:
        found = services.get(kind)
        if not isinstance(found, kind):
            raise LookupError(f"this host does not offer {kind.__name__}")
        return found

    return service


def _managing(configuration: Configuration) -> frozenset[str]:
    return frozenset(key for key, wanted in configuration.providers.wanted.items() if wanted.entry.type == MANAGING)
