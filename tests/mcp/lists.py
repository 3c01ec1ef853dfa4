"""Catalogs of plain tools, by their names."""

from __future__ import annotations

from tests.plain_tools import plain_tool

from toolplug import Catalog


def catalog_of(*names: str) -> Catalog:
    return Catalog(plain_tool(name) for name in names)
