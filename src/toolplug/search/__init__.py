"""Tool search: an index of deferred tools, the tools that find and call them, and what a conversation has found."""

from toolplug.exports import loader, make_lister

HOMES = {
    "ToolIndexes": "toolplug.search.index",
    "make_indexes": "toolplug.search.index",
    "search": "toolplug.search.ranking",
}
__getattr__ = loader("toolplug.search", HOMES)
__dir__ = make_lister("toolplug.search", HOMES)
