"""What a command left when it ended."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Done(NamedTuple):
    """Exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The answer of a command with --json."""
        return json.loads(self.out)

    @property
    def codes(self) -> list[str]:
        """The codes of the problems that it answered."""
        return [problem["code"] for problem in self.json["problems"]]
