"""What comes from elsewhere: tools, made harmless and valid, and the files of MCP servers of other programs."""

from toolplug.exports import loader, make_lister

HOMES = {
    "clean_text": "toolplug.catalog.text",
    "cleaned_description": "toolplug.catalog.text",
    "in_one_line": "toolplug.catalog.text",
}
__getattr__ = loader("toolplug.foreign", HOMES)
__dir__ = make_lister("toolplug.foreign", HOMES)
