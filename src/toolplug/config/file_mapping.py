"""The base of the models that validate mappings of the file."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class FileMapping(BaseModel):
    """A mapping of the file: frozen, without unknown keys and without implicit conversions."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)
