"""The Grafana board of a configuration, as the JSON that Grafana imports (schema version 39, Grafana 10 and later)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from toolplug.cli.monitoring.monitored import Monitored

Json = dict[str, Any]
SCHEMA_VERSION = 39
_WIDTH = 24
_HEIGHT = 8
_STAT_HEIGHT = 4
_SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    """One panel: its queries are `(PromQL, legend)`; `kind` is a type of panel of Grafana's."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"
    description: str = ""


class Row(NamedTuple):
    """A row of panels under a title; a `collapsed` one shows its panels when it is opened."""

    title: str
    panels: Sequence[Panel]
    collapsed: bool = False


def board(of: Monitored) -> Json:
    """Return the board; the same configuration gives the same one."""
    uid = hashlib.sha256(f"{of.namespace} {of.any_source}".encode()).hexdigest()[:16]
    return {
        "uid": uid,
        "title": f"toolplug ({of.namespace})",
        "tags": ["toolplug"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource(), _instance(of.namespace)]},
        "panels": list(_placed(list(rows(of)))),
    }


def rows(of: Monitored) -> Iterator[Row]:
    """Yield the rows of the board; what is not configured has none."""
    yield Row("Overview", list(_overview(of)))
    yield Row("Calls", list(_calls(of)))
    for source in of.sources:
        yield Row(
            f"Server {source[4:]}" if source.startswith("mcp:") else f"Provider {source}", _source(of, source), True
        )
    yield Row("HTTP", list(_http(of)))
    yield Row("Store", _store(of))
    if of.sessions:
        yield Row("Sessions", _sessions(of))
    if of.servers:
        yield Row("MCP servers", _servers(of))


def _m(of: Monitored, name: str, *labels: str) -> str:
    """Return a metric of the chosen instances."""
    selected = ",".join(['instance=~"$instance"', *labels])
    return f"{of.namespace}_{name}{{{selected}}}"


def _rate(of: Monitored, by: str, name: str, *labels: str) -> str:
    return f"sum by ({by}) (rate({_m(of, name, *labels)}[$__rate_interval]))"


def _quantile(of: Monitored, quantile: float, by: str, name: str, *labels: str) -> str:
    bucket = _rate(of, f"le, {by}" if by else "le", f"{name}_bucket", *labels)
    return f"histogram_quantile({quantile}, {bucket})"


def _overview(of: Monitored) -> Iterator[Panel]:
    def stat(title: str, query: str, legend: str = "", unit: str = "short") -> Panel:
        return Panel(title, [(query, legend)], unit, "stat")

    yield stat("Version", _m(of, "build_info"), "{{version}}")
    applied = f"min({_m(of, 'config_last_reload_successful')})"
    yield stat("Last reload applied", applied, "1: yes, 0: refused")
    since = f"time() - max({_m(of, 'config_last_reload_success_timestamp_seconds')})"
    yield stat("Configuration since", since, unit="s")
    every = f"sum(rate({_m(of, 'builtin_tool_executions_total')}[$__rate_interval]))"
    yield stat("Calls a second", every, unit="reqps")
    failed = _m(of, "builtin_tool_executions_total", 'status=~"panic|timeout|unavailable"')
    yield stat("Failed calls", f"(sum(rate({failed}[$__rate_interval])) or vector(0)) / {every}", unit="percentunit")
    if of.asks:
        yield stat("Calls that wait for approval", f"max({_m(of, 'approvals_waiting')})")
    if of.sessions:
        yield stat("Sessions", f"sum({_m(of, 'sessions')})")
    if of.servers:
        failing = _m(of, "mcp_servers", 'status="failed"')
        yield stat("MCP servers that fail", f"max({failing})")


def _calls(of: Monitored) -> Iterator[Panel]:
    executions, took = "builtin_tool_executions_total", "builtin_tool_duration_seconds"
    yield Panel("Calls by status", [(_rate(of, "status", executions), "{{status}}")], "reqps")
    yield Panel("Calls by provider", [(_rate(of, "provider", executions), "{{provider}}")], "reqps")
    yield Panel("Latency by provider, 95 %", [(_quantile(of, 0.95, "provider", took), "{{provider}}")], "s")
    in_flight = f"sum by (provider) ({_m(of, 'builtin_tool_in_flight')})"
    yield Panel("Calls that run", [(in_flight, "{{provider}}")])
    if of.limits:
        limited = _rate(of, "provider, gate", "builtin_tool_limited_total")
        yield Panel("Limited calls, by what refused them", [(limited, "{{provider}} {{gate}}")], "reqps")


def _source(of: Monitored, source: str) -> list[Panel]:
    label = f'provider="{source}"'
    executions, took = "builtin_tool_executions_total", "builtin_tool_duration_seconds"
    calls = _rate(of, "tool_name, status", executions, label)
    latency = [(_quantile(of, each, "tool_name", took, label), f"{{{{tool_name}}}} {each:g}") for each in (0.5, 0.95)]
    breaker = f"max({_m(of, 'builtin_breaker_open', label)})"
    return [
        Panel("Calls by tool and status", [(calls, "{{tool_name}} {{status}}")], "reqps"),
        Panel("Latency by tool", latency, "s"),
        Panel("Breaker open", [(breaker, "1: calls are refused")], description="Also while 16 abandoned calls run."),
    ]


def _http(of: Monitored) -> Iterator[Panel]:
    requests = _rate(of, "method, path, status", "http_requests_total")
    yield Panel("Requests of the host's routes", [(requests, "{{method}} {{path}} {{status}}")], "reqps")
    latency = _quantile(of, 0.95, "method, path", "http_request_duration_seconds")
    yield Panel("Latency by route, 95 %", [(latency, "{{method}} {{path}}")], "s")
    if of.routed:
        provided = _rate(of, "provider, method, path, status", "builtin_api_requests_total")
        yield Panel(
            "Requests of providers' routes", [(provided, "{{provider}} {{method}} {{path}} {{status}}")], "reqps"
        )
    if of.auth:
        yield Panel("Refused requests", [(_rate(of, "code", "http_refusals_total"), "{{code}}")], "reqps")
    if of.quotas:
        quota = _rate(of, "quota", "http_quota_refusals_total")
        yield Panel("Requests over a quota", [(quota, "{{quota}}")], "reqps")


def _store(of: Monitored) -> list[Panel]:
    took = _quantile(of, 0.99, "operation", "store_operation_duration_seconds")
    rate = _rate(of, "operation", "store_operation_duration_seconds_count")
    return [
        Panel("Latency of the store, 99 %", [(took, "{{operation}}")], "s"),
        Panel("Operations", [(rate, "{{operation}}")], "ops"),
        Panel("Failed operations", [(_rate(of, "operation", "store_errors_total"), "{{operation}}")], "ops"),
    ]


def _sessions(of: Monitored) -> list[Panel]:
    changes = _rate(of, "kind, outcome", "session_changes_total")
    relayed = _rate(of, "outcome", "session_relay_requests_total")
    return [
        Panel("Sessions by application", [(f"sum by (plugin) ({_m(of, 'sessions')})", "{{plugin}}")]),
        Panel("Open streams", [(f"sum by (role) ({_m(of, 'session_streams')})", "{{role}}")]),
        Panel("Registrations and updates", [(changes, "{{kind}} {{outcome}}")], "ops"),
        Panel("Requests to applications", [(relayed, "{{outcome}}")], "ops"),
    ]


def _servers(of: Monitored) -> list[Panel]:
    named = f'server=~"{"|".join(of.servers)}"'
    discoveries = f"sum by (server, outcome) (increase({_m(of, 'mcp_discoveries_total', named)}[$__rate_interval]))"
    stale, held = f"max({_m(of, 'mcp_servers_stale')})", f"max({_m(of, 'mcp_tools_quarantined')})"
    return [
        Panel("Servers by state of discovery", [(f"max by (status) ({_m(of, 'mcp_servers')})", "{{status}}")]),
        Panel("Discoveries", [(discoveries, "{{server}} {{outcome}}")]),
        Panel("Stale servers and quarantined tools", [(stale, "stale servers"), (held, "quarantined tools")]),
    ]


def _placed(every: Sequence[Row]) -> Iterator[Json]:
    """Yield the rows and their panels with their places: eight stats or three graphs next to one another."""
    at, number = 0, 0
    for row in every:
        number += 1
        head: Json = {"id": number, "type": "row", "title": row.title, "collapsed": row.collapsed, "panels": []}
        head["gridPos"] = {"x": 0, "y": at, "w": _WIDTH, "h": 1}
        placed: list[Json] = []
        x, y, lowest = 0, at + 1, at + 1
        for panel in row.panels:
            width, height = (3, _STAT_HEIGHT) if panel.kind == "stat" else (8, _HEIGHT)
            if x + width > _WIDTH:
                x, y = 0, lowest
            number += 1
            placed.append({**_shown(panel, number), "gridPos": {"x": x, "y": y, "w": width, "h": height}})
            x, lowest = x + width, y + height
        if row.collapsed:
            yield {**head, "panels": placed}
            at += 1
        else:
            yield head
            yield from placed
            at = lowest


def _shown(panel: Panel, number: int) -> Json:
    targets = [
        {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend or "__auto", "datasource": _SOURCE}
        for index, (query, legend) in enumerate(panel.queries)
    ]
    shown: Json = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
    }
    if panel.description:
        shown["description"] = panel.description
    if panel.title == "Version":
        shown["options"] = {"textMode": "name"}
    return shown


def _datasource() -> Json:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _instance(namespace: str) -> Json:
    return {
        "name": "instance",
        "type": "query",
        "label": "Instance",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({namespace}_build_info, instance)", "refId": "instances"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
