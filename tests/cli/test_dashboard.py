"""`toolplug dashboard`: a Grafana board and Prometheus rules for exactly one configuration."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.cli.conftest import Run

pytestmark = pytest.mark.requirement("C-10-dashboard")

FULL = """
providers:
  hello: {enabled: true, limits: {rate: 100/second}, tools: {hello: ask}}
  journal: {enabled: false}
mcp_servers: {time: {command: never-started}, off: {command: never-started, enabled: false}}
sessions: {ttl: 1h}
quotas: {tenant: {calls_per_minute: 10}}
auth: {api_keys: [{key: k, subject: s}]}
metrics: {namespace: acme}
"""
MINIMAL = "providers: {hello: {enabled: true}}"
NAME = re.compile(r"\bacme_\w+")
METRICS = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def expressions(shown: dict) -> list[str]:
    """Every query of the board, and the conditions of the rules."""
    panels = [panel for each in shown["dashboard"]["panels"] for panel in (each, *each.get("panels", ()))]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [*queries, *(rule["expr"] for group in shown["rules"]["groups"] for rule in group["rules"])]


def titles(shown: dict) -> list[str]:
    """The titles of the board's rows."""
    return [panel["title"] for panel in shown["dashboard"]["panels"] if panel["type"] == "row"]


def names(shown: dict) -> list[str]:
    """The names of the rules."""
    return [rule["alert"] for group in shown["rules"]["groups"] for rule in group["rules"]]


def test_the_same_configuration_gives_the_same_files(run: Run, write: Callable[..., Path], tmp_path: Path) -> None:
    write(FULL)
    first, second = run("dashboard", "--output", "one"), run("dashboard", "--output", "two")
    assert (first.code, second.code) == (0, 0)
    files = ["toolplug-alerts.yml", "toolplug-dashboard.json"]
    assert sorted(file.name for file in (tmp_path / "one").iterdir()) == files
    assert [(tmp_path / "one" / name).read_bytes() for name in files] == [
        (tmp_path / "two" / name).read_bytes() for name in files
    ]
    assert first.out.splitlines() == [
        "one/toolplug-dashboard.json is written, with 34 panels",
        "one/toolplug-alerts.yml is written, with 17 alerts",
    ]


def test_both_are_written_next_to_the_configuration_or_to_stdout(
    run: Run, write: Callable[..., Path], tmp_path: Path
) -> None:
    file = write(FULL, "there.yaml")
    shown = run("dashboard", "-c", str(file), "--json").json
    assert run("dashboard", "-c", str(file), "-o", "-").json == shown
    assert [item.name for item in tmp_path.iterdir()] == ["there.yaml"]
    assert run("dashboard", "-c", str(file)).code == 0
    assert json.loads((tmp_path / "toolplug-dashboard.json").read_text()) == shown["dashboard"]
    assert yaml.safe_load((tmp_path / "toolplug-alerts.yml").read_text()) == shown["rules"]


def test_each_provider_and_server_that_runs_has_a_row(run: Run, write: Callable[..., Path]) -> None:
    write(FULL)
    shown = run("dashboard", "--json").json
    assert titles(shown) == [
        "Overview",
        "Calls",
        "Provider hello",
        "Server time",
        "HTTP",
        "Store",
        "Sessions",
        "MCP servers",
    ]
    text = json.dumps(shown)
    assert "journal" not in text
    assert '"off' not in text
    assert 'provider=~\\"hello|mcp:time\\"' in text


def test_what_is_not_configured_has_neither_panel_nor_rule(run: Run, write: Callable[..., Path]) -> None:
    write(MINIMAL)
    shown = run("dashboard", "--json").json
    assert titles(shown) == ["Overview", "Calls", "Provider hello", "HTTP", "Store"]
    assert names(shown) == [
        "ToolplugAbsent",
        "ToolplugReloadRefused",
        "ToolplugRequestsFail",
        "ToolplugStoreFails",
        "ToolplugStoreSlow",
        "ToolplugToolCrashes",
        "ToolplugCallsFail",
        "ToolplugCallsHang",
        "ToolplugBreakerOpen",
        "ToolplugCollectorFails",
    ]
    text = " ".join(expressions(shown))
    for part in ("session", "mcp_", "approvals", "quota", "refusals", "limited"):
        assert part not in text


def test_every_metric_that_is_read_is_in_the_reference(run: Run, write: Callable[..., Path]) -> None:
    write(FULL)
    read = {name for text in expressions(run("dashboard", "--json").json) for name in NAME.findall(text)}
    assert len(read) > 20
    documented = METRICS.read_text()
    plain = {re.sub("_(bucket|count|sum)$", "", name.replace("acme_", "antwort_")) for name in read}
    assert {name for name in plain if f"`{name}`" not in documented} == set()


def test_an_invalid_configuration_writes_nothing(run: Run, write: Callable[..., Path], tmp_path: Path) -> None:
    write("providers: {helo: {enabled: true}}")
    done = run("dashboard", "--json")
    assert (done.code, done.codes) == (1, ["unknown_provider"])
    assert [item.name for item in tmp_path.iterdir()] == ["providers.yaml"]


LABELS = '{instance="h:1",job="tp"'
CRASHES = f'acme_builtin_tool_executions_total{LABELS},provider="hello",tool_name="hello",status="panic"}}'
ENDED = f'acme_builtin_tool_executions_total{LABELS},provider="hello",tool_name="hello",status="success"}}'
TIMEOUTS = ENDED.replace("success", "timeout")
RUNNING = f'acme_builtin_tool_in_flight{LABELS},provider="hello",tool_name="hello"}}'
REQUESTS = f'acme_http_requests_total{LABELS},method="GET",path="/v1/tools",status="200"}}'
FAULTS = REQUESTS.replace("200", "503")
STORE = f'acme_store_operation_duration_seconds_bucket{LABELS},operation="commit"'
RELAYED = f'acme_session_relay_requests_total{LABELS},outcome="answered"}}'
CASES = {
    "Absent": ({f"acme_other{LABELS}}}": "1x40"}, {f"acme_build_info{LABELS}}}": "1x40"}),
    "ReloadRefused": (
        {f"acme_config_last_reload_successful{LABELS}}}": "0x40"},
        {f"acme_config_last_reload_successful{LABELS}}}": "1x40"},
    ),
    "RequestsFail": ({REQUESTS: "0+90x40", FAULTS: "0+10x40"}, {REQUESTS: "0+99x40", FAULTS: "0+1x40"}),
    "StoreFails": (
        {f'acme_store_errors_total{LABELS},operation="read"}}': "0+1x40"},
        {f'acme_store_errors_total{LABELS},operation="read"}}': "7x40"},
    ),
    "StoreSlow": (
        {f'{STORE},le="0.5"}}': "0+9x40", f'{STORE},le="1.0"}}': "0+10x40", f'{STORE},le="+Inf"}}': "0+10x40"},
        {f'{STORE},le="0.5"}}': "0+10x40", f'{STORE},le="1.0"}}': "0+10x40", f'{STORE},le="+Inf"}}': "0+10x40"},
    ),
    "ToolCrashes": ({CRASHES: "_x35 1x5"}, {CRASHES: "5x40"}),
    "CallsFail": ({ENDED: "0+80x40", TIMEOUTS: "0+20x40"}, {ENDED: "0+95x40", TIMEOUTS: "0+5x40"}),
    "CallsHang": ({RUNNING: "1x40", ENDED: "3x40"}, {RUNNING: "1x40", ENDED: "0+1x40"}),
    "BreakerOpen": (
        {f'acme_builtin_breaker_open{LABELS},provider="mcp:time"}}': "1x40"},
        {f'acme_builtin_breaker_open{LABELS},provider="other"}}': "1x40"},
    ),
    "CallsLimited": (
        {f'acme_builtin_tool_limited_total{LABELS},provider="hello",gate="rate"}}': "0+1x40"},
        {f'acme_builtin_tool_limited_total{LABELS},provider="hello",gate="rate"}}': "9x40"},
    ),
    "ApprovalsWait": ({f"acme_approvals_waiting{LABELS}}}": "2x40"}, {f"acme_approvals_waiting{LABELS}}}": "0x40"}),
    "CredentialsRefused": (
        {f'acme_http_refusals_total{LABELS},code="authentication_required"}}': "0+120x40"},
        {f'acme_http_refusals_total{LABELS},code="authentication_required"}}': "0+6x40"},
    ),
    "QuotaUsedUp": (
        {f'acme_http_quota_refusals_total{LABELS},quota="streams"}}': "_x35 1x5"},
        {f'acme_http_quota_refusals_total{LABELS},quota="streams"}}': "3x40"},
    ),
    "ApplicationsDoNotAnswer": (
        {RELAYED: "0+1x40", RELAYED.replace("answered", "plugin_gone"): "0+1x40"},
        {RELAYED: "0+9x40", RELAYED.replace("answered", "error"): "0+1x40"},
    ),
    "ServerFails": (
        {f'acme_mcp_discoveries_total{LABELS},server="time",outcome="failed"}}': "_x35 1x5"},
        {f'acme_mcp_discoveries_total{LABELS},server="time",outcome="success"}}': "0+1x40"},
    ),
    "ToolsQuarantined": (
        {f"acme_mcp_tools_quarantined{LABELS}}}": "1x40"},
        {f"acme_mcp_tools_quarantined{LABELS}}}": "0x40"},
    ),
    "CollectorFails": (
        {f'acme_builtin_collector_errors_total{LABELS},provider="hello"}}': "0+1x40"},
        {f'acme_builtin_collector_errors_total{LABELS},provider="hello"}}': "4x40"},
    ),
}
"""By rule, samples a minute with which it fires after 39 minutes, and with which it does not."""


@pytest.mark.judge
@pytest.mark.needs("promtool")
def test_each_rule_fires_when_it_should_and_not_else(run: Run, write: Callable[..., Path], tmp_path: Path) -> None:
    write(FULL)
    shown = run("dashboard", "--json").json
    assert names(shown) == [f"Toolplug{name}" for name in CASES]
    assert run("dashboard").code == 0
    tests = []
    for name, both in CASES.items():
        for series, fires in zip(both, (True, False), strict=True):
            query = f'count(ALERTS{{alertname="Toolplug{name}",alertstate="firing"}})'
            expected = [{"labels": "{}", "value": 1}] if fires else []
            tests.append(
                {
                    "name": f"{name} {'fires' if fires else 'is quiet'}",
                    "interval": "1m",
                    "input_series": [{"series": key, "values": values} for key, values in series.items()],
                    "promql_expr_test": [{"expr": query, "eval_time": "39m", "exp_samples": expected}],
                }
            )
    whole = {"rule_files": ["toolplug-alerts.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(whole))
    for command in (["check", "rules", "--lint-fatal", "toolplug-alerts.yml"], ["test", "rules", "tests.yml"]):
        done = subprocess.run(["promtool", *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_rule_says_what_where_why_and_how_to_fix_it(run: Run, write: Callable[..., Path]) -> None:
    write(FULL)
    for rule in run("dashboard", "--json").json["rules"]["groups"][0]["rules"]:
        assert list(rule["annotations"]) == ["summary", "where", "why", "fix"]
        assert all(rule["annotations"].values())
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
