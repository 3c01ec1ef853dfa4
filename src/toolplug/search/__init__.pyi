"""Tool search: an index of deferred tools, the tools that find and call them, and what a conversation has found."""

from toolplug.search.index import ToolIndexes, make_indexes
from toolplug.search.ranking import search

__all__ = [
    "ToolIndexes",
    "make_indexes",
    "search",
]
