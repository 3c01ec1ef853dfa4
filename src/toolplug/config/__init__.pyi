"""YAML with positions, and the types of settings."""

from toolplug.config.document import Document, parse_document
from toolplug.config.units import Duration, FileMapping
from toolplug.config.yaml_tree import Value

__all__ = [
    "Document",
    "Duration",
    "FileMapping",
    "Value",
    "parse_document",
]
