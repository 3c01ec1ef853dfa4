"""What may stand under `tools:` and `limits:` of a provider, of a server, and of the whole file."""

from __future__ import annotations

from pydantic_core import PydanticCustomError

from toolplug.execution.knobs import Limits
from toolplug.execution.tool_rule import ToolRule


def rule(value: object) -> object:
    """A bare policy as the rule that it is short for."""
    return {"policy": value} if isinstance(value, str) else value


def acting(limits: Limits) -> Limits:
    """Refuse a queue for places that this level does not limit: it would hold nobody."""
    if limits.queue is not None and limits.max_concurrency is None:
        raise PydanticCustomError("queue_alone", "queue needs max_concurrency beside it, whose places are waited for")
    return limits


def of_one_tool(given: ToolRule) -> ToolRule:
    """Refuse what cannot be said of one tool alone."""
    if given.limits.drain is not None:
        raise PydanticCustomError(
            "drain_of_tool", "limits.drain is for all tools together; set it under the limits of the whole entry"
        )
    acting(given.limits)
    return given
