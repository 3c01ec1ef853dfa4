"""A listing with stub types of one tool and of two, and the entries that they become."""

from __future__ import annotations

from typing import NamedTuple

from tests.plain_tools import plain_tool

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import Hosted
from toolplug.catalog.plan import Tool
from toolplug.catalog.schema import Schema
from toolplug.model_apis.stubs import Expansion


class Listing(NamedTuple):
    """Anything with a catalog."""

    catalog: Catalog


def listing(*tools: Tool) -> Listing:
    return Listing(Catalog(tools))


QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
SIZES = {
    "type": "object",
    "properties": {"size": {"enum": ["low", "high"]}, "domains": {"type": "array"}},
    "additionalProperties": False,
}
SEARCH = plain_tool(
    "search",
    source="web",
    description="Search the web.",
    parameters=QUERY,
    hosted=Hosted(("seek", "seek_preview"), Schema(SIZES)),
)
READ = plain_tool("read", source="files", hosted=Hosted(("archive",)))
FIND = plain_tool(
    "find", source="files", hosted=Hosted(("archive",), Schema({"properties": {"limit": {"minimum": 1}}}))
)
PLAIN = plain_tool("plain", source="files")
ALL = listing(SEARCH, READ, PLAIN, FIND)

SEARCH_ENTRY = {
    "type": "function",
    "function": {"name": "search", "description": "Search the web.", "parameters": QUERY},
}
NOTHING = {"type": "object", "properties": {}}
READ_ENTRY = {"type": "function", "function": {"name": "read", "description": "", "parameters": NOTHING}}
FIND_ENTRY = {"type": "function", "function": {"name": "find", "description": "", "parameters": NOTHING}}
OWN = {"type": "function", "function": {"name": "mine", "parameters": NOTHING}}


def choosing(name: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": name}}


def codes(expansion: Expansion) -> list[tuple[str, int, str]]:
    return [(each.code, each.index, each.type) for each in expansion.warnings]
