"""What a model says of a value that the contract has and this version does not."""

from __future__ import annotations

from pydantic_core import PydanticCustomError

NOT_BUILT = "not_built"
"""The code of its problem, and pydantic's type of the error."""


def not_built(reason: str) -> PydanticCustomError:
    """The error for a validator to raise; `reason` names what is missing and what to write instead."""
    return PydanticCustomError(NOT_BUILT, "{reason}", {"reason": reason})
