"""The settings under `providers.code`, or whatever the key of the entry is."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ByteSize, ConfigDict, Field

MIB = 1024 * 1024

ToolName = Annotated[str, Field(min_length=1, max_length=256)]


class Settings(BaseModel):
    """What a script may use, and which tools it may call. Sizes are bytes, or a text such as `64MiB`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_calls: Annotated[int, Field(ge=1, le=10_000, description="calls of tools that one script may make")] = 100
    max_s: Annotated[
        float, Field(gt=0, le=600, description="seconds that a script may compute; waiting for tools does not count")
    ] = 10.0
    memory: Annotated[ByteSize, Field(ge=MIB, le=4096 * MIB, description="memory of the values of one script")] = (
        ByteSize(64 * MIB)
    )
    processes: Annotated[int, Field(ge=1, le=64, description="scripts that run at once, each in its process")] = 8
    callers: Annotated[
        Literal["guarded", "read_only", "all"] | Annotated[list[ToolName], Field(min_length=1, max_length=1000)],
        Field(
            description="the tools that scripts may call: guarded (read-only ones, and those that ask a person),"
            " read_only, all, or a list of names in which * stands for anything"
        ),
    ] = "guarded"
