"""YAML with positions, and the types of settings."""

from toolplug.config.document import Document, Value, parse_document
from toolplug.config.units import Duration, FileMapping

__all__ = [
    "Document",
    "Duration",
    "FileMapping",
    "Value",
    "parse_document",
]
