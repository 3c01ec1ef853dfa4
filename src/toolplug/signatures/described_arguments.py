"""Parameters of a function as a pydantic model and as a terse JSON Schema."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import BaseModel, Field, PydanticUserError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import CoreSchema

from toolplug.errors import InvalidDefinition
from toolplug.runtime.duplicates import first_repeated
from toolplug.signatures.annotations import UnresolvedAnnotation


class TerseSchema(GenerateJsonSchema):
    """Generates schemas without titles that repeat a name, and without defaults that are not JSON."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  as pydantic declares it

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

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
    """Return the JSON Schema of the model's input."""
    return model.model_json_schema(schema_generator=TerseSchema)


Parameters = Mapping[str, tuple[object, object]]
"""Maps each parameter to its type and default; the default is `inspect.Parameter.empty` if there is none."""

JsonSchema = dict[str, object]


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
        return schema


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
        f"p{count}": (_alias(meaning, default, name), ... if default is inspect.Parameter.empty else default)
        for count, (name, (meaning, default)) in enumerate(parameters.items())
    }
    model = create_model("_Arguments", **fields)
    given = zip(parameters, model.model_fields.values(), strict=True)
    return DescribedArguments(model, {name: field.alias or name for name, field in given}, schema_of_model(model))


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
