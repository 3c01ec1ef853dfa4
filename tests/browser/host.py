"""The other side of a session: a process that calls its tools over HTTP."""

from __future__ import annotations

from typing import Any

from httpx2 import Client


class BrowserHost:
    """A client of a running host, at `url`."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self.url = url
        self._client = Client(base_url=url, timeout=timeout)

    def __enter__(self) -> BrowserHost:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def call(self, code: str, tool: str, /, **arguments: object) -> Any:
        """What a call of the session's tool comes to."""
        body = {"tool": tool, "arguments": arguments}
        return self._client.post(f"/api/sessions/{code}/tool-calls", json=body).json()

    def metadata(self, code: str) -> Any:
        """The session as its clients see it."""
        return self._client.get(f"/api/sessions/{code}/metadata").json()
