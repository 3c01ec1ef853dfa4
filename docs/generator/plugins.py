"""`plugins.md`: the plugins that toolplug knows."""

from __future__ import annotations

from docs.generator.markdown import code, page, table

from toolplug.cli.plugins import ListedPlugin, read_known_plugins

_HEAD = """
The plugins that `toolplug plugins` knows, with what each brings and what it reaches. The list is
`src/toolplug/cli/known_plugins.toml` in the repository;
[the listing rule](../how-to/publish-a-package.md#listing) says how a package gets there. What a plugin reaches is what
its author says; `run` of its entry is [what it is granted](../how-to/run-providers-apart.md).
"""


def plugins_page() -> str:
    """Render the page of the list."""
    rows = [_row(plugin) for plugin in read_known_plugins()]
    return page("Plugins", _HEAD, table(("package", "type", "what it does", "brings", "reaches"), rows))


def _row(plugin: ListedPlugin) -> tuple[str, ...]:
    address = plugin.page if "://" in plugin.page else f"../{plugin.page}"
    return (
        f"[{code(plugin.package)}]({address})",
        ", ".join(map(code, plugin.types)),
        plugin.summary,
        ", ".join(plugin.capabilities),
        "; ".join(plugin.permissions.describe()) or "nothing",
    )
