"""The providers' routes: found as they are now, behind auth, as the caller's tenant, whatever the handler does."""

from __future__ import annotations

import asyncio
import re

import pytest
from httpx2 import AsyncClient
from starlette.requests import HTTPConnection
from tests.http.conftest import ALICE, BOB, ROOT, client_of, settings
from tests.http.conversation import Conversation
from tests.http.sample_provider import Sample

from toolplug import FunctionRegistry, Host, Principal, open_host
from toolplug.http import create_app, provider_routes

pytestmark = pytest.mark.anyio

MINE = [(b"host", b"localhost"), (b"x-api-key", b"alice-key")]


@pytest.mark.requirement("C-5-provider-path", "FR-008", "FR-009", "C-12-routes-starlette")
@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("GET", "/v1/samples/a b", '{"name":"a b"}'),
        ("GET", "/v1/samples/latest", '"latest"'),
        ("GET", "/v1/samples/files", '{"name":"files"}'),
        ("POST", "/v1/samples", "0"),
        ("GET", "/v1/plain/a/b", "GET a/b"),
        ("PUT", "/v1/plain/", "PUT "),
    ],
)
async def test_a_route_stands_where_its_provider_declares_it(
    client: AsyncClient, method: str, path: str, answer: str
) -> None:
    assert (await client.request(method, path)).status_code == 401
    answered = await client.request(method, path, headers=ALICE)
    assert (answered.status_code, answered.text) == (201 if path == "/v1/samples" else 200, answer)


async def test_parameters_are_what_their_type_says(client: AsyncClient) -> None:
    assert (await client.delete("/v1/samples/41", headers=ROOT)).json() == 42
    assert (await client.delete("/v1/samples/x", headers=ROOT)).status_code == 405
    assert (await client.delete("/v1/samples/41%0A", headers=ROOT)).status_code == 405


@pytest.mark.requirement("FR-015")
async def test_a_provider_that_is_not_enabled_has_no_route(sample_package: None) -> None:
    async with (
        open_host(settings(providers={"sample": {"enabled": False}}), environ={}) as host,
        client_of(create_app(host)) as client,
    ):
        answer = await client.get("/v1/samples", headers=ALICE)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found")
        assert not any(
            "/samples" in path for path in (await client.get("/v1/openapi.json", headers=ALICE)).json()["paths"]
        )


@pytest.mark.requirement("C-5-metric-api-401", "C-5-metric-api-path", "C-5-route-not-found")
async def test_no_spelling_of_a_path_comes_around_auth_or_past_the_metrics(host: Host) -> None:
    app = create_app(host)
    spellings = ["/v1/samples", "/v1/samples/..", "/v1/samples/%2e%2e", "/v1/samples/\x00", "/v1/samples/é"]
    for path in spellings:
        answer = await Conversation("GET", path).held_with(app)
        assert answer.status == 401, path
    for path in [
        "//v1/samples",
        "/v1/samples/",
        "/v1/./samples",
        "/v1/samples//x",
        "/x/../v1/samples",
        "/v1/samples\n",
    ]:
        answer = await Conversation("GET", path).held_with(app)
        assert answer.status == 404, path
    counted = {labels[1:]: counters.ended for labels, counters in host.registry.accounting.every_route()}
    assert counted == {
        ("GET", "/v1/samples"): {"401": 1},
        ("GET", "/v1/samples/{name}"): {"401": len(spellings) - 1},
    }


@pytest.mark.requirement("C-5-metric-api", "C-5-metric-api-401", "C-5-metric-api-405", "FR-011", "REG-US2-2", "SC-002")
async def test_every_answer_of_a_route_is_counted_under_its_template_and_method(client: AsyncClient) -> None:
    await client.get("/v1/samples/one", headers=ALICE)
    await client.head("/v1/samples/two", headers=ALICE)
    await client.get("/v1/samples/three")
    await client.get("/v1/broken/raises", headers=ALICE)
    await client.request("BREW", "/v1/samples/four", headers=ALICE)
    await client.delete("/v1/samples/5", headers=ALICE)
    await client.get("/v1/nothing", headers=ALICE)
    shown = (await client.get("/metrics")).text
    counted = {line for line in shown.splitlines() if line.startswith("antwort_builtin_api_requests_total{")}
    template = 'path="/v1/samples/{name}",provider="sample"'
    assert counted == {
        f'antwort_builtin_api_requests_total{{method="GET",{template},status="200"}} 1.0',
        f'antwort_builtin_api_requests_total{{method="HEAD",{template},status="200"}} 1.0',
        f'antwort_builtin_api_requests_total{{method="GET",{template},status="401"}} 1.0',
        f'antwort_builtin_api_requests_total{{method="_other",{template},status="405"}} 1.0',
        'antwort_builtin_api_requests_total{method="GET",path="/v1/broken/{how}",provider="sample",status="500"} 1.0',
        'antwort_builtin_api_requests_total{method="DELETE",path="/v1/samples/{number:int}"'
        ',provider="sample",status="403"} 1.0',
    }
    assert f'antwort_builtin_api_duration_seconds_count{{method="GET",{template}}} 2.0' in shown
    sums = re.findall(r"^antwort_builtin_api_duration_seconds_sum\{.*\} (.+)$", shown, re.MULTILINE)
    assert len(sums) == len({line.partition(",status=")[0] for line in counted})
    assert all(float(seconds) > 0 for seconds in sums)


@pytest.mark.requirement("H-provider-fails-routes", "H-trust-no-leak", "C-5-metric-api-401")
@pytest.mark.parametrize("how", ["raises", "exits", "interrupts", "cancels"])
async def test_a_handler_that_fails_in_any_way_is_a_500_that_tells_nothing(
    client: AsyncClient, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    answer = await client.get(f"/v1/broken/{how}", headers={**ALICE, "X-Request-Id": "r-1"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert "sample_provider.py:" in errors[0]
    assert errors[0].endswith("(request r-1)")
    assert "secret" not in answer.text + errors[0]
    assert (await client.get("/v1/samples", headers=ALICE)).status_code == 200


async def test_a_handler_may_answer_by_raising_and_its_words_are_shown(client: AsyncClient) -> None:
    gone = await client.get("/v1/broken/gone", headers=ALICE)
    assert gone.status_code == 410
    assert {**gone.json()["error"], "request_id": ""} == {
        "type": "not_found",
        "code": "gone",
        "message": "it was here",
        "param": None,
        "request_id": "",
    }


@pytest.mark.requirement("C-5-retry-after")
async def test_a_429_says_when_to_come_again(client: AsyncClient) -> None:
    busy = await client.get("/v1/broken/busy", headers=ALICE)
    assert (busy.status_code, busy.json()["error"]["type"]) == (429, "too_many_requests")
    assert busy.headers["retry-after"] == "1"
    assert (await client.get("/v1/broken/patient", headers=ALICE)).headers["retry-after"] == "7"


@pytest.mark.requirement("H-store-503")
async def test_a_handler_whose_store_cannot_answer_is_503(client: AsyncClient) -> None:
    answer = await client.get("/v1/broken/store", headers=ALICE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
    assert "disk" not in answer.text


async def test_a_value_that_is_not_json_is_a_500_and_the_log_has_its_type_and_place(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await client.get("/v1/not-json", headers=ALICE)).status_code == 500
    (line,) = [record.getMessage() for record in caplog.records if "not JSON" in record.getMessage()]
    assert re.fullmatch(r"answer of GET /v1/not-json of provider '\w+'.* is not JSON: \w+ at /\S* \(request .+\)", line)


async def test_an_answer_that_breaks_off_is_not_ended_as_if_it_were_whole(host: Host) -> None:
    conversation = await Conversation("GET", "/v1/half", headers=MINE).held_with(create_app(host))
    assert (conversation.status, conversation.body) == (200, b"first")
    assert conversation.sent[-1]["more_body"] is True


async def test_a_client_that_hangs_up_within_its_upload_is_counted_as_499(host: Host) -> None:
    messages = [{"type": "http.request", "body": b"half", "more_body": True}, {"type": "http.disconnect"}]
    conversation = Conversation("POST", "/v1/samples", headers=MINE)

    async def receive() -> dict[str, object]:
        return messages.pop(0)

    await create_app(host)(conversation.scope, receive, conversation._send)
    assert conversation.sent == []
    assert host.registry.accounting.route("sample", "POST", "/v1/samples").ended == {"499": 1}


@pytest.mark.requirement("C-3-disable-at-once", "REG-edge-disable")
async def test_disabling_a_provider_drops_its_routes_at_once_and_lets_running_handlers_finish(host: Host) -> None:
    app, sent_all = create_app(host), asyncio.Event()
    held = Conversation("POST", "/v1/samples", headers=MINE)

    async def receive() -> dict[str, object]:
        await sent_all.wait()
        return {"type": "http.request", "body": b"whole"}

    running = asyncio.ensure_future(app(held.scope, receive, held._send))
    switch = host.registry.routes[0].switch
    while switch.running == 0:
        await asyncio.sleep(0)
    await host.disable("sample", by=Principal())
    refused = await Conversation("POST", "/v1/samples", headers=MINE).held_with(app)
    assert refused.status == 404
    assert switch.running == 1, "the provider is not closed before its handler has ended"
    sent_all.set()
    await running
    assert (held.status, held.body) == (201, b"5")
    assert switch.running == 0


async def as_ann(connection: HTTPConnection) -> Principal | None:
    """Knows one caller, by header."""
    if connection.headers.get("x-caller") != "ann":
        return None
    return Principal(subject="ann", tenant="t7", scopes=frozenset({"tools:call"}))


@pytest.mark.requirement(
    "C-5-parts",
    "FR-008",
    "FR-009",
    "FR-011",
    "FR-013",
    "C-12-registry-instances",
    "C-12-registry-guarded",
    "REG-tenant-delivered",
)
async def test_the_routes_of_a_registry_alone_stand_behind_the_auth_that_is_given(
    sample: tuple[FunctionRegistry, Sample],
) -> None:
    registry, _ = sample
    async with client_of(provider_routes(registry, auth=as_ann), base_url="http://any.example") as client:
        assert (await client.get("/v1/samples")).status_code == 401
        answer = await client.get("/v1/samples", headers={"X-Caller": "ann"})
        assert (answer.json()["tenant"], answer.json()["current"]) == ("t7", "t7")
        assert (await client.delete("/v1/samples/1", headers={"X-Caller": "ann"})).status_code == 403
        assert (await client.get("/v1/tools", headers={"X-Caller": "ann"})).status_code == 404
        assert (await client.get("/v1/open")).status_code == 401, "no operator agreed to an open route"
        assert (await client.post("/v1/samples", content=b"x" * 2_000_000)).status_code == 413
    counted = registry.accounting.route("sample", "GET", "/v1/samples").ended
    assert counted == {"401": 1, "200": 1}
    assert registry.accounting.refusals["authentication_required"] == 2


@pytest.mark.requirement("C-5-parts")
async def test_there_is_no_default_for_auth_and_several_are_asked_in_order(
    sample: tuple[FunctionRegistry, Sample],
) -> None:
    registry, _ = sample

    async def nobody(connection: HTTPConnection) -> Principal | None:
        return None

    with pytest.raises(TypeError, match="auth"):
        provider_routes(registry)  # type: ignore[call-arg]
    for auth, status in (((), 401), ((nobody,), 401), ((nobody, as_ann), 200)):
        async with client_of(provider_routes(registry, auth=auth)) as client:
            assert (await client.get("/v1/samples", headers={"X-Caller": "ann"})).status_code == status


async def test_routes_follow_the_registry_without_being_made_again(sample_package: None) -> None:
    async with open_host(settings(), environ={}) as host, client_of(create_app(host)) as client:
        for action, status in (("disable", 404), ("enable", 200), ("disable", 404)):
            await client.post(f"/v1/providers/sample/{action}", headers=ROOT)
            assert (await client.get("/v1/samples", headers=BOB)).status_code == status


async def test_a_route_that_is_switched_off_while_its_caller_is_told_is_not_served(host: Host) -> None:
    async def switching_off(connection: HTTPConnection) -> Principal | None:
        await host.disable("sample", by=Principal())
        return Principal(scopes=frozenset({"tools:call"}))

    async with client_of(create_app(host, authenticators=[switching_off])) as client:
        answer = await client.get("/v1/samples")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found")


async def test_a_server_that_stops_cancels_the_handler(host: Host) -> None:
    held = Conversation("POST", "/v1/samples", headers=MINE)
    switch = host.registry.routes[0].switch
    running = asyncio.ensure_future(create_app(host)(held.scope, asyncio.Event().wait, held._send))  # type: ignore[arg-type]
    while switch.running == 0:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (held.sent, switch.running) == ([], 0)
    assert host.registry.accounting.route("sample", "POST", "/v1/samples").ended == {"499": 1}
