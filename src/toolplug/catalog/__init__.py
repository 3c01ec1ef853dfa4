"""Tools as data: definitions, plans, schemas and catalogs, and the functions that reshape catalogs."""

from toolplug.exports import loader, make_lister

HOMES = {
    "Tool": "toolplug.catalog.plan",
    "as_object": "toolplug.catalog.exact_json",
    "dump_json": "toolplug.catalog.exact_json",
    "load_json": "toolplug.catalog.exact_json",
    "wire_name": "toolplug.catalog.definition",
}
__getattr__ = loader("toolplug.catalog", HOMES)
__dir__ = make_lister("toolplug.catalog", HOMES)
