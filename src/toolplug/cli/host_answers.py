"""The answers of a running host to commands that call it. Needs the extra `client`."""

from __future__ import annotations

from httpx2 import Response
from pydantic import TypeAdapter, ValidationError

from toolplug.errors import HostRefused, HostUnreachable
from toolplug.http.errors import ErrorAnswer


def refusal(response: Response) -> HostRefused | HostUnreachable:
    """Return the error for an answer without success, whose body has been read."""
    try:
        error = TypeAdapter(ErrorAnswer).validate_json(response.content)["error"]
    except ValidationError:
        return HostUnreachable(f"what answers at {response.url} is no toolplug host: status {response.status_code}")
    return HostRefused(error["code"], error["message"], param=error["param"])
