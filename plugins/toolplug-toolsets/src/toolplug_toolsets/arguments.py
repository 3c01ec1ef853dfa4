"""What the tools take: references to tools, and notes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from toolplug import Note, ToolReference

NAME = r"^[a-z0-9-]{2,50}$"
MAX_TOOLS = 100
MAX_NOTES = 20
MAX_NOTE = 2000

ToolsetName = Annotated[str, Field(pattern=NAME, description="the toolset: 2 to 50 of a-z 0-9 -")]


class _Part(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)


class ToolRef(_Part):
    """Reference to a tool (use namespacedName or refId)."""

    namespaced_name: Annotated[
        str | None,
        Field(
            alias="namespacedName",
            min_length=1,
            max_length=200,
            description="Tool reference by namespaced name (e.g., 'linear.create_issue')",
        ),
    ] = None
    ref_id: Annotated[
        str | None,
        Field(alias="refId", pattern=r"^[0-9a-f]{16}$", description="Tool reference by unique hash identifier"),
    ] = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.namespaced_name is None and self.ref_id is None:
            raise PydanticCustomError("no_reference", "give namespacedName or refId")
        return self

    @property
    def reference(self) -> ToolReference:
        """As the host takes it."""
        return ToolReference(self.namespaced_name, self.ref_id)


class NoteText(_Part):
    """One annotation."""

    name: Annotated[str, Field(pattern=NAME, description="Identifier for this annotation (e.g., 'usage-with-project')")]
    note: Annotated[
        str, Field(min_length=1, max_length=MAX_NOTE, description="The annotation content to help guide LLM usage")
    ]

    @property
    def value(self) -> Note:
        """As the host takes it."""
        return Note(self.name, self.note)
