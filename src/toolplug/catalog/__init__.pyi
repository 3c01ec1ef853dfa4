"""Tools as data: definitions, plans, schemas and catalogs, and the functions that reshape catalogs."""

from toolplug.catalog.definition import wire_name
from toolplug.catalog.exact_json import as_object, dump_json, load_json
from toolplug.catalog.plan import Tool

__all__ = [
    "Tool",
    "as_object",
    "dump_json",
    "load_json",
    "wire_name",
]
