"""The body of `POST /v1/tool-calls`."""

from __future__ import annotations

import orjson
from pydantic import ValidationError

from toolplug.config.nearest import name_hint
from toolplug.config.wording import own_text, right_shape
from toolplug.http.problem import HttpProblem, invalid_request
from toolplug.http.wire_models import CallBody

_UNKNOWN = "extra_forbidden"
_MISSING = "missing"


def read_call(body: bytes) -> CallBody:
    """The call as the client wrote it. Raises `HttpProblem` with the first field at fault."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid_request(f"the body is not JSON: {error.msg} at character {error.pos}") from None
    if not isinstance(value, dict):
        raise invalid_request('the body is not a JSON object; send {"name": …, "arguments": …}')
    try:
        return CallBody.model_validate(value)
    except ValidationError as error:
        raise _problem(error) from None


def _problem(error: ValidationError) -> HttpProblem:
    first = error.errors(include_url=False, include_input=False, include_context=True)[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == _UNKNOWN:
        shown = field[:100]
        return invalid_request(f"the body has no field {shown!r} ({name_hint(field, CallBody.model_fields)})", shown)
    if first["type"] == _MISSING:
        return invalid_request(f"the body lacks {field!r}", field)
    if field == "arguments":
        return invalid_request("'arguments' should be an object, or the JSON text of one", field)
    right = right_shape(first)
    return invalid_request(f"{field!r}: {own_text(first)}" if right is None else f"{field!r} should be {right}", field)
