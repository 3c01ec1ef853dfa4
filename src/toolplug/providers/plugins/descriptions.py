"""Descriptions that depend on the caller: what plugins say of their own tools beside the others of a catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

from toolplug.catalog.catalog import CachedValue, Catalog
from toolplug.crashes import CodeOwner, log_crash


class ToolDescriber(NamedTuple):
    """An implementation of `describe_tools`, the plugin that it comes from, and the key of that plugin's tools."""

    ask: Callable[[Catalog], object]
    owner: CodeOwner
    key: str

    def describe(self, catalog: Catalog) -> Catalog:
        """Return the catalog with the plugin's descriptions of its own tools; as it was if the plugin fails."""
        if not any(tool.definition.ref.source == self.key for tool in catalog.values()):
            return catalog
        try:
            texts = self.ask(catalog)
            if texts is None:
                return catalog
            if not isinstance(texts, Mapping):
                raise TypeError(f"{type(texts).__name__} is no mapping")
            return catalog.with_descriptions(self._own(catalog, cast("Mapping[object, object]", texts)))
        except Exception as error:  # noqa: BLE001  code of a plugin
            log_crash("describe_tools()", error, self.owner, then="its tools are described as always")
            return catalog

    def _own(self, catalog: Catalog, texts: Mapping[object, object]) -> Mapping[str, str]:
        return {
            tool.definition.name: str(texts[tool.definition.name])
            for tool in catalog.values()
            if tool.definition.ref.source == self.key and tool.definition.name in texts
        }


class ToolDescriptions:
    """Asks the plugins with `describe_tools`, for each catalog once."""

    def __init__(self) -> None:
        self.use(())

    def use(self, describers: Sequence[ToolDescriber]) -> None:
        """Ask these from now on."""

        def describe(catalog: Catalog) -> Catalog:
            for each in describers:
                catalog = each.describe(catalog)
            return catalog

        self._described: CachedValue | None = CachedValue(describe) if describers else None

    def describe(self, catalog: Catalog) -> Catalog:
        """Return the catalog with the descriptions that fit it."""
        return catalog if self._described is None else self._described(catalog)
