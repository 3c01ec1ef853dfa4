"""The error of a validator that can say what would have been right."""

from __future__ import annotations

from pydantic_core import PydanticCustomError

SHAPE_ERROR = "shape"


def shape_error(shape: str) -> PydanticCustomError:
    """Return an error, a ValueError too, that reads `should be <shape>`; the shape never contains the value."""
    return PydanticCustomError(SHAPE_ERROR, "should be {shape}", {"shape": shape})
