"""Toolsets and allowlists that cannot be as a request asks."""

from __future__ import annotations

from collections.abc import Mapping

from toolplug.errors import ToolsetRefused
from toolplug.http.problem import HttpProblem

CANNOT_BE = 422

_STATUS: Mapping[str, int] = {"prefix_taken": 409, "invalid_agent": 400}


def refused(error: ToolsetRefused) -> HttpProblem:
    """The error of the request."""
    return HttpProblem(_STATUS.get(error.code, CANNOT_BE), error.code, str(error), param=error.param)
