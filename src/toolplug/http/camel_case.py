"""What the models under `/api` have in common: camelCase on the wire (CONTRACT.md sections 6 and 7)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class CamelBody(BaseModel):
    """A body: closed, frozen, and without conversions that a client would not expect."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=to_camel, validate_by_name=False
    )


class CamelAnswer(BaseModel):
    """An answer, which has no fields but these."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", alias_generator=to_camel)
