"""Parameters of a function as a pydantic model and as a terse JSON Schema."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, Optional, cast, get_origin

import orjson
from pydantic import BaseModel, Field, PydanticUserError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import CoreSchema
from pydantic_core.core_schema import DecimalSchema

from toolplug.catalog.schema_walk import subschemas
from toolplug.errors import InvalidDefinition
from toolplug.runtime.duplicates import first_repeated
from toolplug.signatures.annotations import UnresolvedAnnotation

JsonSchema = dict[str, object]


class TerseSchema(GenerateJsonSchema):
    """Generates schemas without titles that repeat a name, and without defaults that are not JSON."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  as pydantic declares it

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    # Before 2.14 pydantic gives decimals a pattern that looks ahead, which no engine matches in bounded time.
    def decimal_schema(self, schema: DecimalSchema) -> JsonSchemaValue:
        made = super().decimal_schema(schema)
        for part in (made, *made.get("anyOf", ())):
            if "(?" in part.get("pattern", ""):
                del part["pattern"]
        return made

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        made = super().generate(schema, mode)
        made.pop("title", None)
        for name, definition in made.get("$defs", {}).items():
            # Pydantic names a definition after its module if two models have one name; the title is then still the end
            # of it.
            if name.endswith(self.normalize_name(definition.get("title", ""))):
                definition.pop("title", None)
        return made


def schema_of_model(model: type[BaseModel]) -> dict[str, object]:
    """Return the JSON Schema of the model's input, with nested models inlined."""
    return inline_models(model.model_json_schema(schema_generator=TerseSchema))


MAX_INLINED_SCHEMAS = 500
MAX_INLINED_LEVELS = 12
MAX_INLINED_BYTES = 16 * 1024
"""Above these a schema keeps its references: a model that is used often would be sent as often, in every request."""
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})


def inline_models(schema: JsonSchema) -> JsonSchema:
    """Return a schema of pydantic with nested models in the place of their references, which many clients cannot read.

    Models that contain themselves stay in `$defs`. The same object is returned if nothing is inlined.
    """
    if "$defs" not in schema:
        return schema
    try:
        inlined = _Inlining(cast("dict[str, JsonSchema]", schema["$defs"])).of(schema)
        if len(orjson.dumps(inlined)) <= max(MAX_INLINED_BYTES, len(orjson.dumps(schema))):
            return inlined
    except (_TooLarge, orjson.JSONEncodeError):  # an author may add what is no JSON, which is refused elsewhere
        pass
    return schema


class _TooLarge(Exception):
    """The schema has too many or too deep references."""


class _Inlining:
    """Inlines the definitions of one schema, except those that contain themselves."""

    def __init__(self, definitions: Mapping[str, JsonSchema]) -> None:
        self._definitions = definitions
        self._schemas = 0
        named = {name: set(_models_in(definition)) for name, definition in definitions.items()}
        self._recursive = {name for name in named if _leads_to(name, named)}

    def of(self, schema: JsonSchema) -> JsonSchema:
        """Return the whole schema. Raises `_TooLarge`."""
        whole = self._inline({key: value for key, value in schema.items() if key != "$defs"}, 0)
        kept = {name: self._inline(self._definitions[name], 0) for name in self._definitions if name in self._recursive}
        return {**whole, "$defs": kept} if kept else whole

    def _inline(self, schema: JsonSchema, level: int) -> JsonSchema:
        self._schemas += 1
        if self._schemas > MAX_INLINED_SCHEMAS or level > MAX_INLINED_LEVELS:
            raise _TooLarge
        name = _model_of(schema.get("$ref"))
        if name is not None and name in self._definitions and name not in self._recursive:
            own = {key: value for key, value in schema.items() if key != "$ref"}
            model = self._inline(self._definitions[name], level)
            # Other keywords apply besides those of the model, and must not replace them.
            return {**model, **own} if _ANNOTATIONS.issuperset(own) else {**own, "allOf": [model]}
        made = dict(schema)
        for _, (keyword, *place), inner in subschemas(schema):
            if isinstance(inner, dict):
                inlined = self._inline(cast("JsonSchema", inner), level + 1)
                _put(made, schema, (keyword, *place), inlined)
        if isinstance(told := schema.get("discriminator"), dict):
            made["discriminator"] = self._discriminator(cast("JsonSchema", told))
        return made

    def _discriminator(self, told: JsonSchema) -> JsonSchema:
        """Return it without the places of models that are inlined."""
        mapping = cast("dict[str, object]", told.get("mapping") or {})
        kept = {value: place for value, place in mapping.items() if _model_of(place) in self._recursive}
        return {key: value for key, value in {**told, "mapping": kept}.items() if value}


def _put(made: JsonSchema, schema: JsonSchema, path: tuple[str, ...], inlined: JsonSchema) -> None:
    """Put an inlined schema at its place in a copy of its parent, whose containers are copied first."""
    keyword, *place = path
    if not place:
        made[keyword] = inlined
        return
    if made[keyword] is schema[keyword]:
        made[keyword] = copy(schema[keyword])
    holder = made[keyword]
    if isinstance(holder, list):
        holder[int(place[0])] = inlined
    else:
        cast("JsonSchema", holder)[place[0]] = inlined


def _models_in(schema: JsonSchema) -> Iterator[str]:
    """Yield the names of the models that a schema refers to, at any depth."""
    if (name := _model_of(schema.get("$ref"))) is not None:
        yield name
    for _, _, inner in subschemas(schema):
        if isinstance(inner, dict):
            yield from _models_in(cast("JsonSchema", inner))


def _model_of(reference: object) -> str | None:
    if not isinstance(reference, str) or not reference.startswith(_DEFINITIONS):
        return None
    return reference.removeprefix(_DEFINITIONS)


_DEFINITIONS = "#/$defs/"


def _leads_to(name: str, named: Mapping[str, set[str]]) -> bool:
    """Return True if a model contains itself."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        for inner in named.get(waiting.pop(), ()):
            if inner == name:
                return True
            if inner not in seen:
                seen.add(inner)
                waiting.append(inner)
    return False


Parameters = Mapping[str, tuple[object, object]]
"""Maps each parameter to its type and default; the default is `inspect.Parameter.empty` if there is none."""


@dataclass(frozen=True, slots=True)
class DescribedArguments:
    """A model of the parameters; `names` maps each to its name in the schema, `raw` is pydantic's schema."""

    model: type[BaseModel]
    names: Mapping[str, str]
    raw: JsonSchema

    def schema(self, texts: Mapping[str, str]) -> JsonSchema:
        """Return the schema, its keys in the usual order; `texts` are descriptions of parameters without their own."""
        properties = cast("dict[str, JsonSchema]", self.raw.get("properties", {}))
        arranged = {name: dict(schema) for name, schema in properties.items()}
        for name, text in texts.items():
            described = arranged.get(self.names.get(name, ""))
            if described is not None and text:
                described.setdefault("description", text)
        schema: JsonSchema = {"type": "object", "properties": arranged}
        if "required" in self.raw:
            schema["required"] = self.raw["required"]
        schema["additionalProperties"] = False
        if "$defs" in self.raw:
            schema["$defs"] = self.raw["$defs"]
        return inline_models(schema)


def described_arguments(parameters: Parameters, place: str) -> DescribedArguments:
    """Describe the parameters of a method; `place` names the method in errors.

    Raises `InvalidDefinition` with the parameter whose type has no schema, or `UnresolvedAnnotation` if it refers to a
    model that is not complete yet.
    """
    try:
        described = _describe(parameters)
    except Exception as error:  # types are the author's code, which may raise anything
        later = isinstance(error, PydanticUserError) and error.code == "class-not-fully-defined"
        kind = UnresolvedAnnotation if later else InvalidDefinition
        # Pydantic's messages end with a link, in lines of their own.
        reason = str(error).strip().split("\n", 1)[0]
        raise kind(f"{place}: {_culprit(parameters)}: {reason}") from error
    twice = first_repeated(described.names.values())
    if twice is not None:
        raise InvalidDefinition(f"{place}: two parameters have the alias {twice!r}")
    return described


def _describe(parameters: Parameters) -> DescribedArguments:
    """Describe them by a model with fields `p0`, `p1`, …, since pydantic reserves names that parameters may have."""
    fields: dict[str, Any] = {
        f"p{count}": (
            _alias(_with_default(meaning, default), default, name),
            ... if default is inspect.Parameter.empty else default,
        )
        for count, (name, (meaning, default)) in enumerate(parameters.items())
    }
    model = create_model("_Arguments", **fields)
    # Not inlined before it has the descriptions of the parameters, which say more than those of their models.
    raw = model.model_json_schema(schema_generator=TerseSchema)
    names = {name: field.alias or name for name, field in zip(parameters, model.model_fields.values(), strict=True)}
    properties = cast("dict[str, JsonSchema]", raw.get("properties", {}))
    for name, field in zip(names.values(), model.model_fields.values(), strict=True):
        if (text := _said_in(field)) and name in properties:
            properties[name].setdefault("description", text)
    return DescribedArguments(model, names, raw)


def _said_in(field: FieldInfo) -> str:
    """Return the description in `Annotated[int, "in minutes"]` or in `Doc` (PEP 727); empty without."""
    texts = (getattr(item, "documentation", item) for item in field.metadata)
    return next((inspect.cleandoc(text) for text in texts if isinstance(text, str)), "")


def _with_default(meaning: Any, default: object) -> object:
    """Return the type with None for a default of None: `text: str = None` takes the default that it shows."""
    if default is not None or meaning in (Any, object):
        return meaning
    if get_origin(meaning) is Annotated:
        return Annotated[(_with_default(meaning.__origin__, None), *meaning.__metadata__)]
    return Optional[meaning]  # noqa: UP045  a type may be a text, which has no `|`


def _alias(meaning: object, default: object, name: str) -> object:
    """Return the type with the parameter's name as alias, unless the author set another alias."""
    infos = [FieldInfo.from_annotation(cast("type[object]", meaning)), default]
    if any(isinstance(info, FieldInfo) and (info.alias or info.validation_alias) for info in infos):
        return meaning
    return Annotated[meaning, Field(alias=name)]


def _culprit(parameters: Parameters) -> str:
    for name, (meaning, default) in parameters.items():
        try:
            _describe({name: (meaning, default)})
        except Exception:  # noqa: BLE001
            return f"parameter {name!r} of type {meaning!r} has no JSON Schema"
    return "the parameters have no JSON Schema together"
