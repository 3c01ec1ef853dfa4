"""What an operator may set under `providers.journal`."""

from __future__ import annotations

from typing import Annotated, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError


class Settings(BaseModel):
    """Everything has a default: without any settings every call is kept for a month, without its arguments."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    arguments: Annotated[bool, Field(description="keep the arguments of calls too")] = False
    keep_days: Annotated[float, Field(gt=0, le=36_500, description="days for which a call is kept")] = 30.0
    max_rows: Annotated[int, Field(ge=1, le=10_000_000, description="calls that are kept for each tenant")] = 100_000

    @model_validator(mode="before")
    @classmethod
    def _has_no_rules(cls, given: object) -> object:
        if isinstance(given, dict) and "rules" in cast("dict[str, object]", given):
            message = "rules: the journal only keeps calls; move the rules to `guard:` (pip install toolplug-guard)"
            raise PydanticCustomError("rules_moved", message)
        return cast("object", given)
