"""Recorded HTTP: recorded from a real server, replayed when that has ended, without secrets and without the network."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx2
import pytest

from toolplug import CallContext, FunctionProvider, ProviderContext, ToolCall, checked_transport, tool
from toolplug.testing import in_process_host
from toolplug.testing.http_recording import UnrecordedRequest, recorded_http
from toolplug.testing.provider_check import check_provider, running

pytestmark = [pytest.mark.anyio, pytest.mark.process]


class Forecasts(BaseHTTPRequestHandler):
    """Answers with a number that is another one each time."""

    answered = 0

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        Forecasts.answered += 1
        answer = json.dumps({"path": self.path, "body": body.decode(), "number": Forecasts.answered}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Set-Cookie", "session=cookie-of-the-server")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET  # noqa: N815  the name that http.server looks for

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serving() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Forecasts) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class Weather(FunctionProvider):
    """Asks a web API, with a client of its own or by the checked transport."""

    url = ""
    checked = False

    client: httpx2.AsyncClient | None = None

    async def start(self, site: ProviderContext) -> None:
        transport = await checked_transport(site.egress, trusted=[self.url]) if self.checked else None
        self.client = httpx2.AsyncClient(base_url=self.url, transport=transport, headers={"X-API-Key": "s3cret"})

    async def aclose(self) -> None:
        if self.client is not None:
            await self.client.aclose()

    @tool(read_only=True)
    async def forecast(self, city: str) -> int:
        """Tell how warm it will be.

        Args:
            city: the name of the city
        """
        assert self.client is not None
        return (await self.client.get("/forecast", params={"city": city})).json()["number"]


async def warm(registry: object, city: str) -> str:
    result = await registry.execute(ToolCall("1", "forecast", {"city": city}), CallContext())  # type: ignore[attr-defined]
    return f"{result.status} {result.structured}"


@pytest.mark.requirement("I15-4-recorded-http")
@pytest.mark.parametrize("checked", [False, True], ids=["httpx2", "checked_transport"])
async def test_what_is_recorded_once_is_replayed_when_the_server_has_ended(tmp_path: Path, checked: bool) -> None:
    file = tmp_path / "recorded" / "weather.yaml"
    with serving() as url:
        Weather.url, Weather.checked = url, checked
        with recorded_http(file, record=True):
            async with running(Weather) as registry:
                first = [await warm(registry, city) for city in ("Graz", "Wien", "Graz")]
    with recorded_http(file) as recording:
        async with running(Weather) as registry:
            assert [await warm(registry, city) for city in ("Graz", "Wien", "Graz")] == first
        await check_provider(Weather, calls={"forecast": {"city": "Wien"}})
    assert first[0] == first[2] != first[1]
    assert {(request.method, request.url) for request in recording.requests} == {
        ("GET", f"{url}/forecast?city=Graz"),
        ("GET", f"{url}/forecast?city=Wien"),
    }
    assert recording.requests[0].headers["x-api-key"] == "REDACTED"


@pytest.mark.requirement("I15-4-recorded-http")
async def test_nothing_is_sent_while_a_recording_is_replayed(tmp_path: Path) -> None:
    file = tmp_path / "weather.yaml"
    with serving() as url:
        with recorded_http(file, record=True):
            httpx2.get(f"{url}/forecast")
        answered = Forecasts.answered
        with pytest.raises(UnrecordedRequest), recorded_http(file):
            _get(f"{url}/forecast", f"{url}/other")
        assert Forecasts.answered == answered


def _get(*urls: str) -> None:
    for url in urls:
        httpx2.get(url)


SECRETS = ("bearer-1", "key-2", "query-3", "json-4", "form-5", "own-6", "cookie-7", "cookie-of-the-server", "nested-8")


@pytest.mark.requirement("I15-4-recorded-http")
async def test_secrets_of_requests_are_not_in_the_file_and_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "weather.yaml"

    def ask(url: str, secrets: tuple[str, ...]) -> list[int]:
        bearer, key, query, in_json, form, own, cookie, _, nested = secrets
        headers = {"Authorization": f"Bearer {bearer}", "X-Brand-API-Key": key, "X-Own": own, "Cookie": f"a={cookie}"}
        with httpx2.Client(base_url=url, headers=headers) as client:
            answers = [
                client.get("/a", params={"city": "Graz", "api_key": query, "own": own}),
                client.post("/b", json={"city": "Graz", "api_key": in_json, "to": [{"password": nested}]}),
                client.post("/c", data={"city": "Graz", "token": form}),
            ]
        return [answer.json()["number"] for answer in answers]

    with serving() as url, recorded_http(file, record=True, secrets=["X-Own", "own"]):
        first = ask(url, SECRETS)
    text = re.sub(r"(?m)^  response:.*?(?=^- request|\Z)", "", file.read_text(), flags=re.DOTALL)
    assert [secret for secret in SECRETS if secret in text] == []
    assert "cookie-of-the-server" not in file.read_text()
    with recorded_http(file, secrets=["X-Own", "own"]):
        assert ask(url, ("other",) * 9) == first


@pytest.mark.requirement("I15-4-recorded-http")
async def test_a_request_that_was_not_recorded_is_named_even_if_the_provider_hides_it(tmp_path: Path) -> None:
    file = tmp_path / "weather.yaml"
    with serving() as url:
        Weather.url, Weather.checked = url, False
        with recorded_http(file, record=True):
            async with running(Weather) as registry:
                await warm(registry, "Graz")
    with pytest.raises(UnrecordedRequest) as caught, recorded_http(file):
        async with running(Weather) as registry:
            assert await warm(registry, "Linz") == "tool_error None"
    message = str(caught.value)
    assert f"GET {url}/forecast?city=Linz" in message
    assert "query differs: [('city', 'Linz')] != [('city', 'Graz')]" in message
    assert message.endswith(f"record {file} with TOOLPLUG_RECORD=1 in the environment of the test.")
    with pytest.raises(UnrecordedRequest, match="the cassette doesn't exist") as caught, recorded_http(tmp_path / "no"):
        _hidden(url)
    assert isinstance(caught.value.__cause__, ValueError)


def _hidden(url: str) -> None:
    try:
        httpx2.get(url)
    except AssertionError:
        raise ValueError("no weather") from None


def with_urllib(url: str) -> bytes:
    place = httpx2.URL(url)
    connection = http.client.HTTPConnection(place.host, place.port or 80)
    connection.request("GET", place.path)
    return connection.getresponse().read()


CLIENTS: dict[str, Callable[[str], bytes]] = {
    "httpx2": lambda url: httpx2.get(url).content,
    "http.client": with_urllib,
}


@pytest.mark.requirement("I15-4-recorded-http")
@pytest.mark.parametrize("ask", CLIENTS.values(), ids=CLIENTS.keys())
async def test_synchronous_clients_are_recorded_too(tmp_path: Path, ask: Callable[[str], bytes]) -> None:
    file = tmp_path / "weather.yaml"
    with serving() as url, recorded_http(file, record=True):
        first = ask(f"{url}/x")
    with recorded_http(file):
        assert ask(f"{url}/x") == first


async def test_the_environment_records_anew_and_a_failed_test_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "weather.yaml"
    monkeypatch.setenv("TOOLPLUG_RECORD", "1")
    with serving() as url:
        with recorded_http(file):
            httpx2.get(f"{url}/old")
        with recorded_http(file):
            httpx2.get(f"{url}/new")
        written = file.read_text()
        with pytest.raises(httpx2.UnsupportedProtocol), recorded_http(file):
            _get(f"{url}/newest", "no-scheme")
    assert "/new" in written
    assert "/old" not in written
    assert file.read_text() == written


async def test_requests_to_a_host_in_the_process_are_not_recorded(tmp_path: Path) -> None:
    with recorded_http(tmp_path / "none.yaml") as recording:
        async with in_process_host({"providers": {"hello": {"enabled": True}}}) as served:
            assert (await served.client.get("/v1/hello")).status_code == 200
    assert recording.requests == []


async def test_a_file_that_is_no_recording_is_named(tmp_path: Path) -> None:
    file = tmp_path / "weather.yaml"
    for text in ("a: [", "just text", "interactions: 3\nversion: 1\n"):
        file.write_text(text)
        with pytest.raises(ValueError, match=re.escape(f"{file} is no recording of HTTP: ")), recorded_http(file):
            pass
