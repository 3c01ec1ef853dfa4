"""How a function ended."""

from __future__ import annotations

from typing import NamedTuple


class Outcome(NamedTuple):
    """A value, or whatever was raised in its place."""

    value: object = None
    error: BaseException | None = None

    def reached(self) -> object:
        """The value. Raises what the function raised."""
        if self.error is not None:
            raise self.error
        return self.value
