"""What goes over the wire as tables: the fields of a pydantic model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from docs.generator.markdown import code, sentences, table
from pydantic import TypeAdapter

Json = Mapping[str, Any]


def model(title: str, shape: type) -> str:
    """A section on the model, with its fields; a field whose type says nothing is any JSON value."""
    return f"## {title}\n\n{sentences(shape.__doc__)}\n\n" + table(("field", "type", "description"), _fields(shape))


def _fields(shape: type) -> Iterable[tuple[str, str, str]]:
    schema = TypeAdapter(shape).json_schema(mode="validation")
    for name, field in schema["properties"].items():
        optional = "" if name in schema.get("required", ()) else ", may be left out"
        yield code(name), _type(field, schema.get("$defs", {})) + optional, str(field.get("description", ""))


def _type(field: Json, models: Mapping[str, Json]) -> str:
    """The JSON type."""
    if "anyOf" in field:
        return " or ".join(kind for item in field["anyOf"] if (kind := _type(item, models)) != "null")
    if "const" in field:
        return code(field["const"])
    if "$ref" in field:
        return _type(models[str(field["$ref"]).rpartition("/")[2]], models)
    if field.get("type") == "array":
        return f"list of {_type(field['items'], models)}"
    return str(field.get("type", "any JSON value"))
