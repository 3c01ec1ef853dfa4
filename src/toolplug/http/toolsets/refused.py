"""What a refused toolset or allowlist is as an answer."""

from __future__ import annotations

from collections.abc import Mapping

from toolplug.errors import ToolsetRefusal, ToolsetRefused
from toolplug.http.problem import HttpProblem

_STATUS: Mapping[ToolsetRefusal, int] = {
    "invalid_agent": 400,
    "prefix_taken": 409,
    "provider_is_shared": 422,
    "unknown_provider": 422,
    "unknown_server": 422,
    "unknown_toolset": 422,
}


def refused(error: ToolsetRefused) -> HttpProblem:
    """The problem of a request that would have registered or allowed what cannot be."""
    return HttpProblem(_STATUS[error.code], error.code, str(error), param=error.param)
