"""JSON Schemas from Python types through pydantic, without what only costs a model tokens."""

from __future__ import annotations

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema


class TerseSchema(GenerateJsonSchema):
    """No titles but those that an author wrote; a default that is not JSON is left out without a warning."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  as pydantic declares it

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _untitled(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _untitled(super().dataclass_schema(schema), schema["cls"])

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _untitled(super().typed_dict_schema(schema), schema.get("cls"))

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        return _untitled(super().enum_schema(schema), schema["cls"])


def _untitled(schema: JsonSchemaValue, kind: type | None) -> JsonSchemaValue:
    if kind is not None and schema.get("title") == kind.__name__:
        del schema["title"]
    return schema


def schema_of_model(model: type[BaseModel]) -> dict[str, object]:
    """What the model takes."""
    return model.model_json_schema(schema_generator=TerseSchema)
