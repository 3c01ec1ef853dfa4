"""What every mapping of the configuration has in common."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """One mapping of the file: closed, frozen, and without conversions that a reader would not expect."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True)
