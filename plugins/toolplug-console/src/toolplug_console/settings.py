"""What an operator may set under `providers.console`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Everything has a default."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    keep_calls: Annotated[
        int, Field(ge=0, le=10_000, description="newest calls that are kept in memory, with arguments and results")
    ] = 0
    remember: Annotated[
        bool,
        Field(
            description="count the calls of the last hour and remember the newest 200, without arguments, while nobody"
            " looks; in all processes of a store"
        ),
    ] = True
    traces: Annotated[
        bool,
        Field(
            description="show operators the whole trace of a crash, with texts of exceptions; `toolplug dev` sets it"
        ),
    ] = False
    sensitive: Annotated[
        tuple[str, ...], Field(strict=False, description="tools whose arguments and results are never kept")
    ] = ()
