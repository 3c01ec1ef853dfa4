"""The Prometheus alert rules of a configuration; each has the annotations `summary`, `where`, `why` and `fix`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from toolplug.cli.monitoring.monitored import Monitored

Json = dict[str, Any]


class Alert(NamedTuple):
    """One rule. `held` is how long the condition must hold; the texts may use Prometheus' templates."""

    name: str
    condition: str
    held: str
    severity: str
    summary: str
    where: str
    why: str
    fix: str


def alerts(of: Monitored) -> Json:
    """Return the rule file as data: one group; the same configuration gives the same one."""
    rules = [
        {
            "alert": f"Toolplug{alert.name}",
            "expr": alert.condition,
            "for": alert.held,
            "labels": {"severity": alert.severity, "namespace": of.namespace},
            "annotations": {"summary": alert.summary, "where": alert.where, "why": alert.why, "fix": alert.fix},
        }
        for alert in every_alert(of)
    ]
    return {"groups": [{"name": f"toolplug-{of.namespace}", "rules": rules}]}


def every_alert(of: Monitored) -> Iterator[Alert]:
    """Yield the rules; what is not configured has none."""
    yield from _host(of.namespace)
    if of.sources:
        yield from _calls(of)
    if of.limits:
        yield _limited(of)
    if of.asks:
        yield _waiting(of.namespace)
    if of.auth:
        yield _credentials(of.namespace)
    if of.quotas:
        yield _quotas(of.namespace)
    if of.sessions:
        yield _applications(of.namespace)
    if of.servers:
        yield from _servers(of)
    if of.providers:
        yield _collectors(of)


def _grew(by: str, counter: str, window: str) -> str:
    """Return the condition that a counter grew: a series that begins with its first event has no earlier value."""
    return f"sum by ({by}) (({counter} unless {counter} offset {window}) or increase({counter}[{window}])) > 0"


_INSTANCE = "instance {{ $labels.instance }}"
_SOURCE = "{{ $labels.provider }} on " + _INSTANCE


def _host(ns: str) -> Iterator[Alert]:
    yield Alert(
        "Absent",
        f"absent({ns}_build_info)",
        "5m",
        "critical",
        "no toolplug host is scraped",
        f"every target with metrics of the namespace {ns}",
        "The process does not run, does not answer at /metrics, or is no longer a target of Prometheus.",
        "Look at the state of the service and its log; `toolplug check` shows whether its configuration is valid.",
    )
    yield Alert(
        "ReloadRefused",
        f"{ns}_config_last_reload_successful == 0",
        "1m",
        "warning",
        "the last reload was refused; the host runs its earlier configuration",
        _INSTANCE,
        "The configuration file is invalid, or changes a section that needs a restart.",
        "Run `toolplug check`, fix what it lists, and reload; `toolplug diff FILE` names what needs a restart.",
    )
    failed = f'sum by (instance, path) (rate({ns}_http_requests_total{{status=~"5.."}}[5m]))'
    yield Alert(
        "RequestsFail",
        f"{failed} / sum by (instance, path) (rate({ns}_http_requests_total[5m])) > 0.05",
        "10m",
        "critical",
        "{{ $value | humanizePercentage }} of the requests end with a 5xx status",
        "{{ $labels.path }} on " + _INSTANCE,
        "The host is not ready, its store does not answer, or a handler fails.",
        "GET /readyz names the part that is down; the log has a line with the request id of each failure.",
    )
    yield Alert(
        "StoreFails",
        _grew("instance, operation", f"{ns}_store_errors_total", "5m"),
        "2m",
        "critical",
        "operations of the store fail",
        "{{ $labels.operation }} on " + _INSTANCE,
        "The disk is full, the file is locked, or the server of the store is not reachable.",
        "The log says why (`changes cannot be kept`); free space, or bring the store back. Calls of providers go on.",
    )
    bucket = f"sum by (instance, operation, le) (rate({ns}_store_operation_duration_seconds_bucket[5m]))"
    yield Alert(
        "StoreSlow",
        f"histogram_quantile(0.99, {bucket}) > 0.5",
        "10m",
        "warning",
        "1 % of the operations of the store take longer than {{ $value | humanizeDuration }}",
        "{{ $labels.operation }} on " + _INSTANCE,
        "The disk or the server of the store is busy.",
        "Look at the load of the disk; other processes may write to the same file.",
    )


def _calls(of: Monitored) -> Iterator[Alert]:
    ns, named = of.namespace, f'provider=~"{of.any_source}"'
    ended = f"{ns}_builtin_tool_executions_total"
    yield Alert(
        "ToolCrashes",
        _grew("instance, provider, tool_name", f'{ended}{{{named},status="panic"}}', "10m"),
        "0m",
        "warning",
        "a tool has raised an exception",
        "{{ $labels.tool_name }} of " + _SOURCE,
        "The code of the tool is wrong, or does not expect the answer of what it uses.",
        "The log has a line `raised` with file and line; `toolplug call TOOL` shows the whole trace.",
    )
    failed = f'sum by (instance, provider) (rate({ended}{{{named},status=~"timeout|unavailable"}}[5m]))'
    yield Alert(
        "CallsFail",
        f"{failed} / sum by (instance, provider) (rate({ended}{{{named}}}[5m])) > 0.1",
        "10m",
        "warning",
        "{{ $value | humanizePercentage }} of the calls time out or find their tool unavailable",
        _SOURCE,
        "What the tools depend on is slow or down, or `limits.timeout` is too short.",
        "`toolplug doctor` names what is out of reach; the latency panel of the provider shows since when.",
    )
    running = f"min_over_time({ns}_builtin_tool_in_flight{{{named}}}[15m]) > 0"
    idle = f"sum by (instance, job, provider, tool_name) (increase({ended}{{{named}}}[15m])) == 0"
    yield Alert(
        "CallsHang",
        f"{running} and on (instance, job, provider, tool_name) ({idle})",
        "5m",
        "warning",
        "{{ $value }} calls run and none has ended in 15 minutes",
        "{{ $labels.tool_name }} of " + _SOURCE,
        "The tool waits without a timeout of its own and does not react to its cancellation.",
        "Give the tool's connections a timeout; disable and enable the provider to restart it.",
    )
    yield Alert(
        "BreakerOpen",
        f"{ns}_builtin_breaker_open{{{named}}} == 1",
        "1m",
        "critical",
        "a breaker is open: calls are refused as `limited`",
        _SOURCE,
        "Calls crashed or timed out in a row, or 16 calls run on after their deadline.",
        "Fix what the log names for these calls; the breaker closes with the first call that is answered.",
    )


def _limited(of: Monitored) -> Alert:
    return Alert(
        "CallsLimited",
        f"sum by (instance, provider, gate) (rate({of.namespace}_builtin_tool_limited_total[5m])) > 0",
        "15m",
        "warning",
        "calls are refused by a limit for 15 minutes",
        "{{ $labels.gate }} of " + _SOURCE,
        "Callers need more than `limits` allow, or one of them calls without end.",
        "`toolplug explain TOOL` shows each limit with its use and its line; raise it, or give the caller a quota.",
    )


def _waiting(ns: str) -> Alert:
    return Alert(
        "ApprovalsWait",
        f"{ns}_approvals_waiting > 0",
        "2m",
        "info",
        "{{ $value }} calls wait for a person's decision",
        _INSTANCE,
        "A tool has the policy `ask`; a call that nobody decides expires after five minutes.",
        "`toolplug approvals list --all-tenants`, then approve or deny each.",
    )


def _credentials(ns: str) -> Alert:
    refused = f'{ns}_http_refusals_total{{code=~"authentication_required|too_many_failures"}}'
    return Alert(
        "CredentialsRefused",
        f"sum by (instance) (rate({refused}[5m])) > 1",
        "10m",
        "warning",
        "{{ $value | humanize }} requests a second come without valid credentials",
        _INSTANCE,
        "A client has an old key, or somebody tries keys.",
        "The audit trail has `peer` and `credential` of each refusal; `toolplug keys new` makes a new key.",
    )


def _quotas(ns: str) -> Alert:
    return Alert(
        "QuotaUsedUp",
        _grew("instance, quota", f"{ns}_http_quota_refusals_total", "10m"),
        "0m",
        "info",
        "requests are refused, as a tenant or key has used up its quota",
        "{{ $labels.quota }} on " + _INSTANCE,
        "The tenant or key does more than `quotas` allow it.",
        "The audit trail names the caller (`quota_exceeded`); raise the quota, or talk to the caller.",
    )


def _applications(ns: str) -> Alert:
    total = f"{ns}_session_relay_requests_total"
    lost = f'sum by (instance) (rate({total}{{outcome!~"answered|error"}}[5m]))'
    return Alert(
        "ApplicationsDoNotAnswer",
        f"{lost} / sum by (instance) (rate({total}[5m])) > 0.2",
        "10m",
        "warning",
        "{{ $value | humanizePercentage }} of the calls to applications get no answer",
        _INSTANCE,
        "The applications of sessions are gone, or take longer than the deadline.",
        "`toolplug sessions list` shows their state; `toolplug sessions tail CODE` what one of them is sent.",
    )


def _servers(of: Monitored) -> Iterator[Alert]:
    ns, named = of.namespace, "|".join(of.servers)
    failed = f'{ns}_mcp_discoveries_total{{server=~"{named}",outcome="failed"}}'
    yield Alert(
        "ServerFails",
        _grew("instance, server", failed, "15m"),
        "0m",
        "warning",
        "the tools of an MCP server cannot be listed",
        "{{ $labels.server }} on " + _INSTANCE,
        "The server does not start, does not answer, or lists something that is not valid.",
        "`toolplug discover SERVER` shows the error; until then its last good tools are offered.",
    )
    yield Alert(
        "ToolsQuarantined",
        f"{ns}_mcp_tools_quarantined > 0",
        "0m",
        "warning",
        "{{ $value }} tools of pinned MCP servers have changed and are held back",
        _INSTANCE,
        "A server with `pin: true` lists a tool that is not the one that was accepted.",
        "Read the change in `toolplug discover SERVER --json`; `toolplug discover SERVER --accept TOOL` accepts it.",
    )


def _collectors(of: Monitored) -> Alert:
    named = f'provider=~"{"|".join(of.providers)}"'
    return Alert(
        "CollectorFails",
        _grew("instance, provider", f"{of.namespace}_builtin_collector_errors_total{{{named}}}", "15m"),
        "0m",
        "info",
        "a provider's own metrics are missing from the scrape",
        _SOURCE,
        "Its collector raises, or takes longer than two seconds.",
        "The log names the collector and the line; the metrics of the host are not affected.",
    )
