"""Parses the arguments of a tool from a command line: `key=value` words, or one JSON object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, TypeAlias, cast

import typer

from toolplug.catalog.exact_json import as_list, as_object, load_json
from toolplug.catalog.schema import Schema
from toolplug.cli.completion import complete_argument
from toolplug.errors import InvalidDefinition, InvalidJson

Json = Mapping[str, object]
_EXPECTED: Mapping[str, str] = {
    "array": "a JSON array",
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "object": "a JSON object",
    "value": "one of its values in JSON",
}
"""The types of JSON in words."""

ArgumentWords: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="key=value… | JSON",
        help="Its arguments: text where the tool's schema says string, else JSON; or one JSON object.",
        show_default=False,
        autocompletion=complete_argument,
    ),
]


def arguments_from(words: Sequence[str], schema: Json) -> dict[str, object]:
    """Parse the words by the schema of the tool's parameters. Raises `typer.BadParameter`.

    The value in `key=value` is text if the schema says string, else JSON. If the schema allows a string or another
    type, JSON of the other type is parsed. The value of an unknown key is JSON if it parses, else text.
    """
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return _json_object(words[0])
    arguments: dict[str, object] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{word!r} is neither key=value nor a JSON object")
        if key in arguments:
            raise typer.BadParameter(f"{key!r} is given twice")
        arguments[key] = _value(key, text, schema)
    return arguments


def _json_object(text: str) -> dict[str, object]:
    try:
        value = load_json(text.encode(errors="surrogatepass"))
    except InvalidJson as error:
        what = f"have the {error}" if error.duplicate_key else f"are not JSON: {error}"
        raise typer.BadParameter(f"the arguments {what}") from None
    if not isinstance(value, dict):
        raise typer.BadParameter("the arguments must be one JSON object")
    return cast("dict[str, object]", value)


def _value(key: str, text: str, schema: Json) -> object:
    wanted = as_object(as_object(schema.get("properties")).get(key))
    kinds = _kinds(wanted, schema)
    if kinds == {"string"}:
        return text
    try:
        value = load_json(text.encode(errors="surrogatepass"))
    except InvalidJson:
        if "string" in kinds or not kinds:
            return text
        expected = " or ".join(_EXPECTED.get(kind, kind) for kind in sorted(kinds))
        raise typer.BadParameter(f"{key} must be {expected}, not {text!r}") from None
    # The value is JSON, but not what the schema has: `123` for text or null is the text.
    if "string" in kinds and not _admits(wanted, schema, value):
        return text
    return value


def _kinds(wanted: Json, schema: Json, depth: int = 0) -> set[str]:
    """Return the JSON types that a schema names in references, unions and values; empty if it names none."""
    # A schema may refer to itself without end.
    if depth > 16:
        return set()
    target = wanted.get("$ref")
    if isinstance(target, str) and target.startswith("#/$defs/"):
        return _kinds(as_object(as_object(schema.get("$defs")).get(target.removeprefix("#/$defs/"))), schema, depth + 1)
    named = wanted.get("type")
    kinds = {named} if isinstance(named, str) else {str(kind) for kind in as_list(named)}
    values = as_list(wanted.get("enum")) + ([wanted["const"]] if "const" in wanted else [])
    if not kinds and values:
        kinds = {"string" if isinstance(value, str) else "value" for value in values}
    for union in ("anyOf", "oneOf", "allOf"):
        for member in as_list(wanted.get(union)):
            kinds |= _kinds(as_object(member), schema, depth + 1)
    return kinds


def _admits(wanted: Json, schema: Json, value: object) -> bool:
    whole = {**wanted, "$defs": as_object(schema.get("$defs"))}
    try:
        return not Schema(whole).refusals(value)
    except InvalidDefinition:
        return False
