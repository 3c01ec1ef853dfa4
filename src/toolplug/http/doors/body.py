"""Bodies: refused by their declared length before a byte is read, and by their real one while it is."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from toolplug.http.problem import HttpProblem, invalid_request

DEFAULT_MAX_BODY = 1024 * 1024
MAX_FILE_BODY = 50 * 1024 * 1024


def check_declared(headers: Mapping[bytes, bytes], limit: int) -> None:
    """Raise `HttpProblem` where the declared length is none, or over the limit."""
    declared = headers.get(b"content-length")
    if declared is None:
        return
    if not declared.isdigit():
        raise invalid_request("the header content-length is no number", "content-length")
    if len(declared) > 18 or int(declared) > limit:
        raise too_large(limit)


async def read_body(receive: Receive, limit: int) -> bytes:
    """The whole body. Raises `HttpProblem` at the first byte over the limit, `ClientDisconnect` where it breaks off."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body", False):
        if len(body) > limit:
            raise too_large(limit)
        return body
    chunks = [body]
    size = len(body)
    while message["type"] == "http.request" and message.get("more_body", False):
        if size > limit:
            raise too_large(limit)
        message = await receive()
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
    if message["type"] != "http.request":
        raise ClientDisconnect
    if size > limit:
        raise too_large(limit)
    return b"".join(chunks)


def bounded(receive: Receive, limit: int) -> Receive:
    """The same channel for a handler of somebody else's; it raises `HttpProblem` at the first byte over the limit."""
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > limit:
            raise too_large(limit)
        return message

    return counted


def too_large(limit: int) -> HttpProblem:
    """The body is over its limit."""
    message = f"the body is over {limit} bytes; send less, or raise http.max_body"
    return HttpProblem(413, "body_too_large", message)
