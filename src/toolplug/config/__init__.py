"""YAML with positions, and the types of settings."""

from toolplug.exports import loader, make_lister

HOMES = {
    "Document": "toolplug.config.document",
    "Duration": "toolplug.config.units",
    "FileMapping": "toolplug.config.units",
    "Value": "toolplug.config.yaml_tree",
    "parse_document": "toolplug.config.document",
}
__getattr__ = loader("toolplug.config", HOMES)
__dir__ = make_lister("toolplug.config", HOMES)
