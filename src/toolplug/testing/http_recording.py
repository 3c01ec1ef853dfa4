"""Records what the web API behind a provider answers, and replays it in tests without the network.

    with recorded_http("tests/recorded/weather.yaml"):
        result = await registry.execute(ToolCall("1", "forecast", {"city": "Graz"}), CallContext())

The recording is done by vcrpy, which knows httpx, httpx2, aiohttp, requests, urllib3 and `http.client`. Added here: the
transport of `checked_transport`, requests to applications in the same process, which are not recorded, and names of
secrets. Needs the extra `recording`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, cast

from yaml import YAMLError

RECORD = "TOOLPLUG_RECORD"
"""The environment variable that makes every `recorded_http` record."""

REDACTED = "REDACTED"
SECRET_PARAMETERS = (
    *("key", "api_key", "apikey", "apiKey", "api-key", "appid", "token", "access_token", "auth", "auth_token"),
    *("client_secret", "refresh_token", "secret", "password", "sig", "signature"),
)
"""Parameters of queries, forms and JSON bodies whose values are not recorded."""
_SECRET_HEADER = re.compile(r"\b(auth|authorization|(api)?key|token|secret|cookie|password|signature)\b", re.IGNORECASE)
_SECRET_ANSWERS = ("set-cookie", "authorization")

_CLIENTS: Sequence[tuple[str, str, str]] = (
    ("httpx", "httpx", "AsyncHTTPTransport"),
    ("httpx", "httpx", "HTTPTransport"),
    ("httpx2", "httpx2", "AsyncHTTPTransport"),
    ("httpx2", "httpx2", "HTTPTransport"),
    ("httpx2", "toolplug.net.checked_transport", "PinnedTransport"),
)
"""Library, module and class of each transport that uses the network; vcrpy's own list has others too."""


class UnrecordedRequest(AssertionError):
    """Raised for a request that the file has no answer to; it was not sent.

    ```python
    import httpx2

    from toolplug.testing import UnrecordedRequest, recorded_http

    try:
        with recorded_http("weather.yaml"):  # TOOLPLUG_RECORD=1 sends the requests, and writes the file
            httpx2.get("https://weather.example/graz")
    except UnrecordedRequest as error:
        print(error)
    else:
        raise AssertionError("a request was sent")
    ```
    """


class RecordedRequest(NamedTuple):
    """A request that was answered from the file or recorded, without its secrets. Names of headers in lower case."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpRecording:
    """The requests made so far in a block of `recorded_http`, and the messages of those that were not recorded."""

    path: Path
    requests: list[RecordedRequest] = field(default_factory=list[RecordedRequest])
    missing: list[str] = field(default_factory=list[str])


@contextmanager
def recorded_http(
    path: str | os.PathLike[str], *, record: bool | None = None, secrets: Sequence[str] = ()
) -> Generator[HttpRecording]:
    """Answer the HTTP requests that are made in the block from the file `path`; nothing is sent.

    A request is the recorded one if method, URL and body are the same; the order of parameters and of keys in JSON does
    not count. One that was not recorded raises `UnrecordedRequest` where it is made, and again at the end of the block,
    as the provider may have caught it. An answer is replayed as often as it is asked for.

    record: send the requests and write the file again, unless the block raises; by default if the environment variable
        TOOLPLUG_RECORD is set. The first answer to each request is kept.
    secrets: further headers and parameters whose values are not recorded. Always left out are those of headers with
        words such as `Authorization`, `Key`, `Token` and `Cookie` in their names, and of parameters such as `api_key`
        and `token`. What an answer contains is recorded as it is: read the file before you commit it.

    Raises `ValueError` if the file is no recording.
    """
    recording = HttpRecording(Path(path))
    recording_now = bool(os.environ.get(RECORD)) if record is None else record
    try:
        cassette = _cassette_of(recording).use(**_settings(recording.path, recording_now, secrets))
        # By hand: errors of the file are ours to explain, those of the block are not.
        cassette.__enter__()
    except (ValueError, KeyError, TypeError, YAMLError) as error:
        raise ValueError(f"{recording.path} is no recording of HTTP: {error}; {_how(recording.path)}") from error
    failure: BaseException | None = None
    try:
        yield recording
    except BaseException as error:
        failure = error
        raise
    finally:
        cassette.__exit__(type(failure) if failure else None, failure, None)
        # The provider may have turned the error into a result, with which the test would pass or fail for another
        # reason.
        if recording.missing and not isinstance(failure, UnrecordedRequest):
            raise UnrecordedRequest("\n".join(dict.fromkeys(recording.missing))) from failure


def _vcr(name: str) -> Any:
    """Return a module of vcrpy, which has no types; imported at first use, as it imports every client it finds."""
    try:
        return import_module(f"vcr.{name}")
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError("recorded_http needs vcrpy: pip install 'toolplug[recording]'") from missing


def _how(path: Path) -> str:
    return f"record {path} with {RECORD}=1 in the environment of the test"


def _settings(path: Path, record: bool, secrets: Sequence[str]) -> Mapping[str, Any]:
    """Return the arguments of a cassette of vcrpy."""
    settings = _vcr("config").VCR(
        record_mode="new_episodes" if record else "none",
        match_on=("method", "scheme", "host", "port", "path", "query", "body"),
        filter_query_parameters=[(name, REDACTED) for name in (*SECRET_PARAMETERS, *secrets)],
        filter_post_data_parameters=[(name, REDACTED) for name in (*SECRET_PARAMETERS, *secrets)],
        filter_nested_post_data_parameters=True,
        before_record_request=_without_secret_headers({name.lower() for name in secrets}),
        before_record_response=_without_secret_answers,
        decode_compressed_response=True,
        record_on_exception=False,
        # Patched below instead: vcrpy would patch `handle_request` of transports that send nothing, too.
        skip_patchers=("httpx", "httpx2"),
    )
    if record:
        settings.register_persister(_writer())
    return {**settings.get_merged_config(path=os.fspath(path)), "allow_playback_repeats": True}


def _writer() -> object:
    """Return a persister of vcrpy that writes files and reads none: what was recorded before is dropped."""
    files = _vcr("persisters.filesystem")

    class Anew(files.FilesystemPersister):
        @classmethod
        def load_cassette(cls, cassette_path: object, serializer: object) -> object:
            raise files.CassetteNotFoundError

    return Anew


def _without_secret_headers(names: set[str]) -> Callable[[Any], Any]:
    def redact(request: Any) -> Any:
        for name in list(request.headers):
            if name.lower() in names or _SECRET_HEADER.search(name):
                request.headers[name] = REDACTED
        return request

    return redact


def _without_secret_answers(response: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in response["headers"].items() if name.lower() not in _SECRET_ANSWERS}
    return {**response, "headers": kept}


def _cassette_of(recording: HttpRecording) -> Any:
    """Return the class of a cassette that notes its requests, and patches the transports that use the network."""
    base, failed = _vcr("cassette").Cassette, _vcr("errors").CannotOverwriteExistingCassetteException

    class NotingCassette(base):
        def __init__(self, **given: Any) -> None:
            base.__init__(self, **given)
            self.custom_patches = tuple(_patches(self))

        def can_play_response_for(self, request: Any) -> bool:
            filtered = self.filter_request(request)
            recording.requests.append(_make(filtered))
            if base.can_play_response_for(self, request):
                return True
            if self.write_protected:
                reason = str(failed(cassette=self, failed_request=filtered)).partition("\n\nHow to fix:")[0]
                message = f"{reason}\n\nThe request was not sent; {_how(recording.path)}."
                recording.missing.append(message)
                raise UnrecordedRequest(message)
            return False

        def append(self, request: Any, response: Any) -> None:
            if request not in self:  # the same request may have been under way several times
                base.append(self, request, response)

    return NotingCassette


def _make(request: Any) -> RecordedRequest:
    headers = {name.lower(): value for name, value in request.headers.items()}
    return RecordedRequest(request.method, request.uri, headers, bytes(request.body or b""))


def _patches(cassette: object) -> Generator[tuple[type, str, object]]:
    stubs = _vcr("stubs.httpx_stubs")
    for library, module, name in _CLIENTS:
        if find_spec(library) is None:
            continue
        transport = cast("type", getattr(import_module(module), name))
        method = "handle_request" if hasattr(transport, "handle_request") else "handle_async_request"
        wrapped = getattr(stubs, f"vcr_{method}")
        yield transport, method, wrapped(cassette, getattr(transport, method), import_module(library))
