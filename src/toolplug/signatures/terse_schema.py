"""JSON Schemas from Python types through pydantic, without what only costs a model tokens."""

from __future__ import annotations

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import CoreSchema


class TerseSchema(GenerateJsonSchema):
    """No titles that only repeat a name; a default that is not JSON is left out without a warning."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  as pydantic declares it

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        made = super().generate(schema, mode)
        made.pop("title", None)
        for name, definition in made.get("$defs", {}).items():
            if name.endswith(self.normalize_name(definition.get("title", ""))):
                definition.pop("title", None)
        return made


def schema_of_model(model: type[BaseModel]) -> dict[str, object]:
    """What the model takes."""
    return model.model_json_schema(schema_generator=TerseSchema)
