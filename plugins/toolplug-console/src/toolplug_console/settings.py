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
    sensitive: Annotated[
        tuple[str, ...], Field(strict=False, description="tools whose arguments and results are never kept")
    ] = ()
