"""What `/metrics` says of the host itself: its build, reloads, requests, store, breakers, limits and approvals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import pytest
from httpx2 import AsyncClient
from prometheus_client.parser import text_string_to_metric_families as prometheus_text
from tests.http.conftest import ALICE, ROOT, as_holder, client_of, settings

from toolplug import open_host
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("C-5-metric-operations")]

Series = dict[tuple[str, ...], float]


@asynccontextmanager
async def served(**sections: object) -> AsyncIterator[AsyncClient]:
    """A client of a host with the sample provider and these sections."""
    async with open_host(settings(**sections), environ={}) as host, client_of(create_app(host)) as client:
        yield client


async def series(client: AsyncClient, name: str) -> Series:
    """The samples of this name at `/metrics`: the values of their labels in the order of the labels → the value."""
    found: Series = {}
    for family in prometheus_text((await client.get("/metrics")).text):
        for sample in family.samples:
            if sample.name == name:
                found[tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


async def called(client: AsyncClient, name: str, **more: object) -> str:
    """The status of a call of Alice's."""
    return (await client.post("/v1/tool-calls", headers=ALICE, json={"name": name, **more})).json()["status"]


async def test_the_build_is_named(client: AsyncClient) -> None:
    ((labels, value),) = (await series(client, "antwort_build_info")).items()
    assert (labels[1], value) == (version("toolplug"), 1.0)


async def test_a_refused_reload_shows_until_one_is_applied(sample_package: None, config: Callable[[str], Path]) -> None:
    file = config("store: memory://\nproviders: {sample: {enabled: true}}\n")
    good = file.read_text()
    async with open_host(file, environ={}) as host, client_of(create_app(host)) as client:
        ((_, began),) = (await series(client, "antwort_config_last_reload_success_timestamp_seconds")).items()
        assert await series(client, "antwort_config_last_reload_successful") == {(): 1.0}
        file.write_text("providers: {sampel: {enabled: true}}\n")
        assert (await client.post("/v1/reload")).status_code == 422
        assert await series(client, "antwort_config_last_reload_successful") == {(): 0.0}
        assert await series(client, "antwort_config_last_reload_success_timestamp_seconds") == {(): began}
        file.write_text(good)
        assert (await client.post("/v1/reload")).status_code == 200
        assert await series(client, "antwort_config_last_reload_successful") == {(): 1.0}
        ((_, again),) = (await series(client, "antwort_config_last_reload_success_timestamp_seconds")).items()
        assert again > began


async def test_requests_of_the_hosts_own_routes_are_counted_and_timed_by_template(client: AsyncClient) -> None:
    await called(client, "whoami")
    await client.head("/healthz")
    await client.get("/api/mcp-servers/secret", headers=ROOT)
    await client.request("MADEUP", "/v1/tools", headers=ALICE)
    await client.get("/v1/tools")
    await client.get("/nowhere/secret")
    counted = {
        ("POST", "/v1/tool-calls", "200"): 1.0,
        ("HEAD", "/healthz", "200"): 1.0,
        ("GET", "/api/mcp-servers/{id}", "404"): 1.0,
        ("_other", "/v1/tools", "405"): 1.0,
        ("GET", "/v1/tools", "401"): 1.0,
    }
    assert await series(client, "antwort_http_requests_total") == counted
    timed = await series(client, "antwort_http_request_duration_seconds_count")
    assert {key: timed[key] for key in timed if key != ("GET", "/metrics")} == {key[:2]: 1.0 for key in counted}


async def test_operations_of_the_store_are_timed(client: AsyncClient) -> None:
    before = await series(client, "antwort_store_operation_duration_seconds_count")
    await client.post("/api/sessions", headers=ALICE)
    after = await series(client, "antwort_store_operation_duration_seconds_count")
    assert after[("commit",)] > before[("commit",)]
    assert set(after) == {("read",), ("commit",), ("extend",), ("keys",)}
    assert await series(client, "antwort_store_errors_total") == dict.fromkeys(after, 0.0)


async def test_what_limits_a_call_is_named(sample_package: None) -> None:
    limits = {"rate": "1/hour"}
    sample = {"enabled": True, "tools": {"whoami": {"limits": limits}}}
    async with served(providers={"sample": sample}) as client:
        assert [await called(client, "whoami") for _ in range(3)] == ["success", "limited", "limited"]
        assert await series(client, "antwort_builtin_tool_limited_total") == {("rate", "sample"): 2.0}


async def test_a_breaker_shows_while_it_refuses_calls(sample_package: None) -> None:
    sample = {"enabled": True, "limits": {"breaker": {"failures": 1, "open_for": "1h"}}}
    async with served(providers={"sample": sample}) as client:
        assert (await series(client, "antwort_builtin_breaker_open"))[("sample",)] == 0.0
        assert [await called(client, "panics", arguments={"secret": "s"}), await called(client, "whoami")] == [
            "panic",
            "limited",
        ]
        assert (await series(client, "antwort_builtin_breaker_open"))[("sample",)] == 1.0
        assert await series(client, "antwort_builtin_tool_limited_total") == {("breaker", "sample"): 1.0}


async def test_calls_that_wait_for_approval_are_counted_over_all_tenants(sample_package: None) -> None:
    asking = {"sample": {"enabled": True, "tools": {"whoami": "ask"}}}
    async with served(providers=asking) as client:
        tickets = [
            (await client.post("/v1/tool-calls", headers=who, json={"name": "whoami"})).json()["metadata"]["approval"]
            for who in (ALICE, ROOT)
        ]
        assert await series(client, "antwort_approvals_waiting") == {(): 2.0}
        path = f"/v1/approvals/{tickets[1]['id']}"
        decided = await client.post(path, headers=as_holder("judge-key"), json={"decision": "approve"})
        assert decided.status_code == 200
        assert await series(client, "antwort_approvals_waiting") == {(): 1.0}


async def test_a_quota_that_is_used_up_is_named(sample_package: None) -> None:
    async with served(quotas={"tenant": {"calls_per_minute": 1}}) as client:
        for _ in range(3):
            await client.post("/v1/tool-calls", headers=ALICE, json={"name": "whoami"})
        assert await series(client, "antwort_http_quota_refusals_total") == {("calls_per_minute",): 2.0}
