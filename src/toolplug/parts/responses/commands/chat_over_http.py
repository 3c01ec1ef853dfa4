"""Answers for `toolplug chat` from a running host, over HTTP. Needs the extra `client`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

import orjson
from httpx2 import Client, SSEError

from toolplug.cli.host_answers import host_client, post_for_events, refusal, unreachable_as_refusal
from toolplug.errors import HostRefused, HostUnreachable
from toolplug.parts.responses.builder import Event

_ANSWER_S = 660.0
"""A host waits for a model for ten minutes by default, and sends nothing in that time."""
_SERVER_ERROR = 500
_END = "[DONE]"


class RunningHost:
    """The answers of one running host to one key."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def is_ready(self) -> bool:
        """Return whether a model is configured. Raises `HostError` if the host would refuse a message too."""
        with unreachable_as_refusal(self._client):
            response = self._client.get("/v1/models")
        if response.is_success or response.status_code >= _SERVER_ERROR:
            return True
        error = refusal(response)
        if isinstance(error, HostRefused) and error.code == "not_configured":
            return False
        raise error

    def events(self, request: dict[str, object]) -> Generator[Event]:
        """Yield the events of a new response; closing hangs up, which cancels it. Raises `HostError`."""
        with (
            unreachable_as_refusal(self._client),
            post_for_events(self._client, "/v1/responses", request) as sent_events,
        ):
            try:
                for sent in sent_events:
                    if sent.data == _END:
                        return
                    yield cast("Event", orjson.loads(sent.data))
            except (SSEError, orjson.JSONDecodeError):
                raise HostUnreachable(f"what answers at {self._client.base_url} is no toolplug host") from None
        raise HostUnreachable(f"the host at {self._client.base_url} closed the connection before the end of the answer")


@contextmanager
def connect_to_host(url: str, key: str | None, agent: str | None, session: str | None) -> Generator[RunningHost]:
    """Connect for the length of the block. Raises `typer.BadParameter` for an invalid URL."""
    given = {"Authorization": key and f"Bearer {key}", "X-Toolplug-Agent": agent, "X-Toolplug-Session": session}
    headers = {name: value for name, value in given.items() if value}
    with host_client(url, headers, _ANSWER_S) as client:
        yield RunningHost(client)
