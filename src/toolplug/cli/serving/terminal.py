"""The output of `toolplug serve` on a terminal: a start screen, then one line per call."""

from __future__ import annotations

import logging

from toolplug.catalog.call import ANONYMOUS
from toolplug.catalog.text import counted
from toolplug.cli.output import STATUS_COLOURS, coloured
from toolplug.execution.plans import UNKNOWN
from toolplug.host.host import Host

_LOG = logging.getLogger("toolplug.calls")


def log_call(provider: str, tool_name: str, status: str, seconds: float) -> None:
    """Log a finished call: its tool, provider, status, and duration in milliseconds."""
    whose = "an unknown tool" if provider == UNKNOWN else f"{tool_name} ({provider})"
    _LOG.info("%s %s %.0f ms", whose, coloured(status, STATUS_COLOURS.get(status, "yellow")), seconds * 1000)


def start_screen(host: Host, url: str) -> str:
    """Return lines with the running providers and servers, and the URLs of the API."""
    rows = {
        "providers": _providers(host),
        "MCP servers": ", ".join(f"{view.id} {view.state}" for view in host.servers.servers(ANONYMOUS.tenant)),
        "tools": f"{url}/v1/tools",
        "MCP": f"{url}/mcp",
        "responses": f"{url}/v1/responses" if host.settings.responses is not None else "",
        "metrics": f"{url}/metrics",
        "API": f"{url}/openapi.json",
        "auth": _auth(host),
    }
    return "".join(f"  {name:<12} {text}\n" for name, text in rows.items() if text)


def _providers(host: Host) -> str:
    running = host.registry.running()
    if not running:
        return "none; toolplug providers lists what is installed"
    return f"{', '.join(running)}: {counted(len(host.registry.catalog), 'tool')}"


def _auth(host: Host) -> str:
    auth = host.settings.auth
    if auth is None:
        return "none: every caller has all scopes (toolplug keys new makes a key)"
    return ", ".join(name for name, settings in (("API keys", auth.api_keys), ("JWT", auth.jwt)) if settings)
