"""What sessions see of the rest of their host."""

from __future__ import annotations

from collections.abc import Callable

from toolplug.catalog.call import Principal
from toolplug.execution.executor import ToolExecutor
from toolplug.providers.registry import FunctionRegistry

DefaultTools = Callable[[str], ToolExecutor | None]
"""The tools of a tenant's sessions in which nothing is registered."""


class Neighbours:
    """The names that are taken in a tenant's catalogs, and the tools of a session that has none of its own.

    `prefixes` gives those of the toolsets that a tenant can see now.
    """

    def __init__(
        self, registry: FunctionRegistry, prefixes: Callable[[str], frozenset[str]], default_tools: DefaultTools
    ) -> None:
        self._registry = registry
        self._prefixes = prefixes
        self._default_tools = default_tools

    def taken(self, tenant: str, name: str) -> str | None:
        """Whose name this is already in the catalogs of the tenant; None: it is free."""
        catalog = self._registry.catalog.visible_to(Principal(tenant=tenant))
        tool = catalog.find(name)
        if tool is not None:
            return f"provider {tool.definition.ref.source!r}"
        prefix, dot, _ = name.partition(".")
        if dot and (prefix in self._prefixes(tenant) or prefix in catalog.prefixes):
            return f"the toolset of the prefix {prefix!r}"
        return None

    def default_tools(self, tenant: str) -> ToolExecutor | None:
        """The tools of a session whose plugin has registered nothing."""
        return self._default_tools(tenant)
