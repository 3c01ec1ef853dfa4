"""What pages of other origins may do: listed ones with the session routes, others nothing."""

from __future__ import annotations

import pytest
from httpx2 import AsyncClient
from tests.http.conftest import ALICE
from tests.http.event_talk import talking
from tests.http.session_plugin import new_plugin, refusal, sessions_host, tool

from toolplug.http.request_checks import ALLOWED_HEADERS, EXPOSED_HEADERS

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-5-cors")]

PAGE = "https://page.example"
LISTED = {"http": {"allowed_origins": [PAGE, "http://127.0.0.1:8000"]}}
FROM_PAGE = {"Origin": PAGE}
TOLD = ("vary", "access-control-allow-origin", "access-control-expose-headers", "access-control-allow-credentials")
SHARED = ("origin", PAGE, ", ".join(EXPOSED_HEADERS), None)


async def test_pages_may_send_and_read_the_headers_of_sessions() -> None:
    assert {
        *("Authorization", "X-API-Key", "Content-Type", "Last-Event-ID", "If-Match", "If-None-Match"),
        *("Accept-Version", "Idempotency-Key", "X-Request-Id"),
    } <= set(ALLOWED_HEADERS)
    assert {"ETag", "Retry-After", "X-Request-Id", "Idempotent-Replayed"} <= set(EXPOSED_HEADERS)


async def told(client: AsyncClient, method: str, path: str, **headers: str) -> tuple[str | None, ...]:
    answer = await client.request(method, path, headers={**FROM_PAGE, **headers})
    return tuple(answer.headers.get(name) for name in TOLD)


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/api/sessions", "GET, POST"),
        ("/api/sessions/AAAAAAAA", "DELETE"),
        ("/api/sessions/AAAAAAAA/register-tools", "POST"),
        ("/api/sessions/AAAAAAAA/update-tools", "POST"),
        ("/api/sessions/AAAAAAAA/metadata", "GET"),
        ("/api/sessions/AAAAAAAA/stream", "GET"),
        ("/api/sessions/AAAAAAAA/events", "GET"),
        ("/api/sessions/AAAAAAAA/tool-calls", "POST"),
        ("/api/sessions/AAAAAAAA/tool-calls/req_1", "GET"),
        ("/api/sessions/AAAAAAAA/tool-results", "POST"),
        ("/api/sessions/AAAAAAAA/heartbeat", "POST"),
        ("/v1/models", "GET"),
        ("/v1/responses", "POST"),
        ("/v1/chat/completions", "POST"),
        ("/toolplug.js", "GET"),
    ],
)
async def test_a_preflight_is_answered_without_credentials(path: str, methods: str) -> None:
    asked = {**FROM_PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    async with sessions_host(**LISTED) as (_, _, client):
        answer = await client.options(path, headers=asked)
        assert (answer.status_code, answer.content) == (204, b"")
        assert "content-length" not in answer.headers
        assert {name: value for name, value in answer.headers.items() if name.startswith("access-control-")} == {
            "access-control-allow-origin": PAGE,
            "access-control-allow-methods": methods,
            "access-control-allow-headers": ", ".join(ALLOWED_HEADERS),
            "access-control-expose-headers": ", ".join(EXPOSED_HEADERS),
            "access-control-max-age": "600",
        }
        assert answer.headers.get_list("vary") == [
            "origin",
            "access-control-request-method, access-control-request-headers",
        ]


async def test_a_preflight_from_a_public_page_may_reach_a_host_in_a_private_network() -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Private-Network": "true"}
    async with sessions_host(**LISTED) as (_, _, client):
        listed = await client.options("/api/sessions", headers={**FROM_PAGE, **asked})
        assert listed.headers["access-control-allow-private-network"] == "true"
        foreign = await client.options("/api/sessions", headers={"Origin": "https://evil.example", **asked})
        assert refusal(foreign) == (403, "origin_not_allowed", "Origin")
        assert "access-control-allow-private-network" not in foreign.headers


@pytest.mark.requirement("C-5-origin")
@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "https://page.example.evil.example", "http://page.example", ""]
)
async def test_a_page_that_is_not_listed_is_refused_before_anything_is_asked(
    origin: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with sessions_host(**LISTED) as (_, _, client):
        for method, more in (("OPTIONS", {"Access-Control-Request-Method": "POST"}), ("POST", ALICE), ("GET", ALICE)):
            answer = await client.request(method, "/api/sessions", headers={"Origin": origin, **more})
            assert refusal(answer) == (403, "origin_not_allowed", "Origin")
            assert not [name for name in answer.headers if name.startswith("access-control-")]
    # A browser does not show it to the page: it is in the log, once.
    said = f"origin {origin!r}: pages of this origin may not call; list it under http.allowed_origins"
    assert [record.getMessage() for record in caplog.records if "origin" in record.getMessage()] == [said]


async def test_every_answer_to_a_listed_page_can_be_read_by_it_errors_included() -> None:
    async with sessions_host(**LISTED) as (_, app, client):
        plugin = await new_plugin(client, tool("add"))
        etag = (await client.get(f"{plugin.place}/metadata", headers=ALICE)).headers["etag"]
        for method, path, headers in (
            ("GET", "/api/sessions", ALICE),
            ("GET", f"{plugin.place}/metadata", ALICE),
            ("HEAD", f"{plugin.place}/metadata", ALICE),
            ("GET", "/api/sessions", {}),
            ("GET", "/api/sessions/malformed/metadata", ALICE),
            ("GET", "/api/sessions/AAAAAAAA/metadata", ALICE),
            ("POST", f"{plugin.place}/heartbeat", ALICE),
            ("POST", f"{plugin.place}/heartbeat", plugin.headers),
            ("POST", f"{plugin.place}/update-tools", plugin.headers),
            ("PUT", "/api/sessions", ALICE),
            ("GET", "/api/sessions/AAAAAAAA/nowhere", ALICE),
            ("GET", "/v1/models", ALICE),
            ("POST", "/v1/responses", ALICE),
            ("POST", "/v1/chat/completions", ALICE),
            ("GET", "/toolplug.js", {}),
        ):
            assert (await told(client, method, path, **headers))[1:] == SHARED[1:], (method, path)
        unchanged = await client.get(f"{plugin.place}/metadata", headers={**ALICE, **FROM_PAGE, "If-None-Match": etag})
        assert (unchanged.status_code, unchanged.headers["access-control-allow-origin"]) == (304, PAGE)
        async with talking(app, f"{plugin.place}/stream", {**ALICE, **FROM_PAGE}) as stream:
            await stream.next()
            assert stream.header(b"access-control-allow-origin") == PAGE.encode()
        ended = await client.delete(plugin.place, headers={**ALICE, **FROM_PAGE})
        assert (ended.status_code, ended.headers["access-control-allow-origin"]) == (204, PAGE)


async def test_nothing_else_is_shared_and_answers_without_an_origin_say_only_that_it_matters() -> None:
    async with sessions_host(**LISTED) as (_, _, client):
        for path in ("/v1/tools", "/v1/providers", "/healthz", "/v1/openapi.json", "/nowhere"):
            shown = await told(client, "GET", path, **ALICE)
            assert shown[1:] == (None, None, None), path
            asked = {**FROM_PAGE, "Access-Control-Request-Method": "GET"}
            assert (await client.options(path, headers=asked)).status_code in {404, 405}
        plain = await client.get("/api/sessions", headers=ALICE)
        assert plain.headers.get_list("vary")[0] == "origin"
        assert "access-control-allow-origin" not in plain.headers
        for asked in (FROM_PAGE, {"Access-Control-Request-Method": "POST"}):
            assert (await client.options("/api/sessions", headers=asked)).status_code == 405
        nowhere = {**FROM_PAGE, "Access-Control-Request-Method": "POST"}
        assert (await client.options("/api/sessions/AAAAAAAA/nowhere", headers=nowhere)).status_code == 404
