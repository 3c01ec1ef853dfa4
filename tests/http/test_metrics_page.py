"""`GET /metrics`: everything of the host and of its providers' own, in the scraper's format."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
from typing import cast

import pytest
from httpx2 import AsyncClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus_text
from tests.http.conftest import ALICE, ROOT, client_of, settings
from tests.http.sample_provider import Sample

from toolplug import Host, open_host
from toolplug.http import create_app

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("C-5-metrics-open", "FR-012", "REG-US3-1", "REG-US3-2", "SC-003")
async def test_metrics_are_open_and_hold_the_providers_own(client: AsyncClient) -> None:
    await client.get("/v1/samples", headers=ALICE)
    page = await client.get("/metrics")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "sample_shown_total 1.0" in page.text
    await client.post("/v1/providers/sample/disable", headers=ROOT)
    assert "sample_shown_total" not in (await client.get("/metrics")).text


@pytest.mark.requirement("C-5-metric-in-flight")
async def test_a_call_is_in_flight_from_its_beginning_to_its_end(host: Host, client: AsyncClient) -> None:
    async def gauge() -> list[float]:
        families = prometheus_text((await client.get("/metrics")).text)
        (family,) = (family for family in families if family.name == "antwort_builtin_tool_in_flight")
        return [item.value for item in family.samples if item.labels["tool_name"] == "waits"]

    sample = cast("Sample", host.registry.running()["sample"].provider)
    calls = [asyncio.create_task(client.post("/v1/tool-calls", headers=ALICE, json={"name": "waits"})) for _ in "ab"]
    await sample.began.wait()
    while await gauge() != [2.0]:
        pass
    sample.go.set()
    assert [(await call).json()["output"] for call in calls] == ["went on", "went on"]
    assert await gauge() == [0.0]


@pytest.mark.requirement("C-5-metric-executions", "FR-010")
async def test_both_formats_say_the_same_and_can_be_parsed(client: AsyncClient) -> None:
    await client.post("/v1/tool-calls", headers=ALICE, json={"name": "whoami"})
    plain = await client.get("/metrics", headers={"Accept": "text/plain"})
    asked = {"Accept": "application/openmetrics-text; version=1.0.0"}
    opened = await client.get("/metrics", headers=asked)
    assert opened.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in prometheus_text(plain.text)}
    assert {family.name for family in open_metrics(opened.text)} <= names
    assert {
        "antwort_builtin_tool_executions",
        "antwort_builtin_tool_duration_seconds",
        "antwort_builtin_tool_in_flight",
        "antwort_builtin_api_requests",
        "antwort_builtin_api_duration_seconds",
        "antwort_http_refusals",
    } <= names


BUCKETS = ["0.01", "0.05", "0.1", "0.5", "1.0", "2.0", "5.0", "10.0", "30.0", "60.0", "+Inf"]


@pytest.mark.requirement("C-5-metric-duration")
@pytest.mark.parametrize("name", ["antwort_builtin_tool_duration_seconds", "antwort_builtin_api_duration_seconds"])
async def test_durations_have_the_stated_buckets(client: AsyncClient, name: str) -> None:
    await client.post("/v1/tool-calls", headers=ALICE, json={"name": "whoami"})
    await client.get("/v1/samples", headers=ALICE)
    page = await client.get("/metrics")
    (family,) = (family for family in prometheus_text(page.text) if family.name == name)
    bounds: dict[str, list[str]] = {}
    for sample in family.samples:
        if sample.name == f"{name}_bucket":
            labels = {key: value for key, value in sample.labels.items() if key != "le"}
            bounds.setdefault(str(labels), []).append(sample.labels["le"])
    assert bounds
    assert all(series == BUCKETS for series in bounds.values())


@pytest.mark.process
@pytest.mark.requirement("C-5-promtool")
@pytest.mark.needs("promtool")
async def test_promtool_finds_nothing(client: AsyncClient) -> None:
    await client.post("/v1/tool-calls", headers=ALICE, json={"name": "whoami"})
    await client.get("/v1/samples", headers=ALICE)
    await client.get("/v1/samples")
    text = (await client.get("/metrics")).content
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


@pytest.mark.requirement("C-5-metric-two-hosts")
async def test_two_hosts_in_one_process_count_apart(sample_package: None) -> None:
    one, two = open_host(settings(), environ={}), open_host(settings(metrics={"namespace": "other"}), environ={})
    async with one, two, client_of(create_app(one)) as first, client_of(create_app(two)) as second:
        await first.post("/v1/tool-calls", headers=ALICE, json={"name": "whoami"})
        line = 'builtin_tool_executions_total{provider="sample",status="success",tool_name="whoami"} 1.0'
        assert f"antwort_{line}" in (await first.get("/metrics")).text
        shown = (await second.get("/metrics")).text
        assert "antwort_" not in shown
        assert line not in shown
        assert "other_builtin_tool_in_flight" in shown


@pytest.mark.requirement("H-trust-audit-agrees", "C-5-audit")
async def test_each_refusal_is_one_line_and_one_count(
    host: Host, client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="toolplug.audit")
    await client.get("/v1/tools", headers={"Authorization": "Bearer secret-token"})
    await client.get("/v1/samples/secret-path", headers={"X-API-Key": "secret-token"})
    await client.delete("/v1/samples/7", headers={**ALICE, "X-Request-Id": "r-7"})
    await client.get("/v1/tools", headers={"Host": "evil.example"})
    await client.get("/secret-path", headers={"Origin": "https://evil.example"})
    await client.get("/v1/tools?agent=secret", headers={"X-API-Key": "one-agent-key"})
    await client.get("/v1/tools", headers={**ALICE, "X-Big": "x" * 40_000})
    await client.post("/v1/tool-calls", headers=ALICE, content=b"x" * 1_100_000)
    lines = [json.loads(record.message) for record in caplog.records if record.name == "toolplug.audit"]
    assert [(line["outcome"], line["target"]) for line in lines] == [
        ("authentication_required", "GET /v1/tools"),
        ("authentication_required", "GET /v1/samples/{name}"),
        ("insufficient_scope", "DELETE /v1/samples/{number:int}"),
        ("host_not_allowed", "GET _unknown"),
        ("origin_not_allowed", "GET _unknown"),
        ("agent_not_allowed", "GET /v1/tools"),
        ("headers_too_large", "GET _unknown"),
        ("body_too_large", "POST /v1/tool-calls"),
    ]
    assert all(
        list(line) == ["ts", "event", "outcome", "principal", "tenant", "target", "request_id", "peer", "credential"]
        for line in lines
    )
    assert (lines[2]["principal"], lines[2]["tenant"], lines[2]["request_id"]) == ("alice", "t1", "r-7")
    assert lines[0]["event"] == "http.request"
    assert "secret" not in "".join(record.message for record in caplog.records if record.name.startswith("toolplug"))
    counted = {
        sample.labels["code"]: sample.value
        for family in prometheus_text((await client.get("/metrics")).text)
        if family.name == "antwort_http_refusals"
        for sample in family.samples
    }
    outcomes = [line["outcome"] for line in lines]
    assert counted == {code: outcomes.count(code) for code in outcomes}


@pytest.mark.requirement("C-5-metric-labels", "H-trust-no-leak")
async def test_no_name_that_a_client_makes_up_is_a_label(client: AsyncClient) -> None:
    for name in ("made-up", "x" * 200, "a.b"):
        await client.post("/v1/tool-calls", headers=ALICE, json={"name": name})
        await client.get(f"/v1/samples/{name}", headers=ALICE)
        await client.request("MADEUP", "/v1/samples", headers=ALICE)
    page = (await client.get("/metrics")).text
    assert "made-up" not in page
    assert "MADEUP" not in page
    assert 'provider="_unknown",status="unknown_tool",tool_name="_unknown"} 3.0' in page
