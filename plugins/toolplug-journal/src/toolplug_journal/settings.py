"""What an operator may set under `providers.journal`."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from toolplug_journal.linear_pattern import LinearPattern


def _linear(pattern: str) -> str:
    try:
        LinearPattern(pattern)
    except ValueError as error:
        raise PydanticCustomError("pattern", "{why}", {"why": str(error)}) from None
    return pattern


class Rule(BaseModel):
    """One veto: calls of these tools are refused where the pattern is found."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    tool: Annotated[str, Field(min_length=1, description="the tool's own name, or a glob such as shell_*")]
    argument: Annotated[
        str | None,
        Field(min_length=1, description="its name, or a JSON pointer such as /options/path; none: all of them"),
    ] = None
    pattern: Annotated[
        str | None,
        Field(description="regular expression, searched in each text of the argument; none: every call"),
        AfterValidator(_linear),
    ] = None
    reason: Annotated[str, Field(min_length=1, max_length=500, description="what the model is told")]

    @model_validator(mode="after")
    def _says_what_to_look_for(self) -> Self:
        if self.argument is not None and self.pattern is None:
            raise PydanticCustomError("no_pattern", "argument needs a pattern to look for in it")
        return self


class Settings(BaseModel):
    """Everything has a default: without any settings every call is kept for a month, without its arguments."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    arguments: Annotated[bool, Field(description="keep the arguments of calls too")] = False
    keep_days: Annotated[float, Field(gt=0, le=36_500, description="days for which a call is kept")] = 30.0
    max_rows: Annotated[int, Field(ge=1, le=10_000_000, description="calls that are kept for each tenant")] = 100_000
    rules: Annotated[tuple[Rule, ...], Field(strict=False, description="which calls are vetoed, and why")] = ()
