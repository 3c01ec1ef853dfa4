"""The answers of a running host to commands that call it. Needs the extra `client`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import typer
from httpx2 import Client, EventSource, InvalidURL, RequestError, Response, Timeout
from pydantic import TypeAdapter, ValidationError

from toolplug.catalog.exact_json import dump_json
from toolplug.errors import HostRefused, HostUnreachable
from toolplug.http.errors import ErrorAnswer

_MAX_EVENT_BYTES = 16 * 1024 * 1024
_CONNECT_S = 10.0


def refusal(response: Response) -> HostRefused | HostUnreachable:
    """Return the error for an answer without success, whose body has been read."""
    try:
        error = TypeAdapter(ErrorAnswer).validate_json(response.content)["error"]
    except ValidationError:
        return HostUnreachable(f"what answers at {response.url} is no toolplug host: status {response.status_code}")
    return HostRefused(error["code"], error["message"], param=error["param"])


@contextmanager
def host_client(url: str, headers: Mapping[str, str], answer_s: float) -> Generator[Client]:
    """Open a client of the host. Raises `HostUnreachable` and `typer.BadParameter` for what fails inside."""
    try:
        client = Client(base_url=url, headers=headers, timeout=Timeout(_CONNECT_S, read=answer_s))
        with client, unreachable_as_refusal(client):
            yield client
    except InvalidURL as error:
        raise typer.BadParameter(f"--url {url!r}: {error}") from None


@contextmanager
def unreachable_as_refusal(client: Client) -> Generator[None]:
    """Raise `HostUnreachable` for a request inside that got no answer."""
    try:
        yield
    except RequestError as error:
        reason = str(error) or type(error).__name__
        raise HostUnreachable(f"no host answers at {client.base_url}: {reason}") from None


@contextmanager
def post_for_events(client: Client, path: str, body: object) -> Generator[EventSource]:
    """Post a JSON body and give the events of the answer. Raises `HostError` for an answer without success."""
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    with client.stream("POST", path, content=dump_json(body), headers=headers) as response:
        if not response.is_success:
            # A stream has not read its body, which holds the error.
            response.read()
            raise refusal(response)
        yield EventSource(response, _MAX_EVENT_BYTES)
