"""A list of tools in pages, as the bytes that the catalog keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.render import fragment

PAGE_TOOLS = 1_000
"""So many that clients which never ask for a second page lose nothing that a model could use."""
PAGE_BYTES = 4 * 1024 * 1024


class Page(NamedTuple):
    """A JSON array of tools, and where the next page begins: None after the last one."""

    tools: bytes
    next_cursor: str | None


def page(catalog: Catalog, cursor: str | None) -> Page | None:
    """The first page, or the one that a cursor stands for; None where the catalog has no such place.

    A cursor is the name after which the page begins, so it holds while other tools come and go.
    """
    if cursor is None and len(catalog) <= PAGE_TOOLS:
        whole = catalog.render("mcp")
        if len(whole) <= PAGE_BYTES:
            return Page(whole, None)
    names = iter(catalog)
    if cursor is not None and cursor not in names:  # the search leaves the iterator behind the cursor
        return None
    return _page_of(catalog, names)


def _page_of(catalog: Catalog, names: Iterator[str]) -> Page:
    tools: list[bytes] = []
    size, last = 0, ""
    for name in names:
        tool = fragment(catalog[name].definition, "mcp")
        size += len(tool) + 1
        if tools and (len(tools) == PAGE_TOOLS or size > PAGE_BYTES):
            return Page(b"[%b]" % b",".join(tools), last)
        tools.append(tool)
        last = name
    return Page(b"[%b]" % b",".join(tools), None)
