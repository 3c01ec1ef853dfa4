"""What a host says as it starts: the screen of a person at a terminal, and where the console is."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

from toolplug.catalog.call import ANONYMOUS
from toolplug.catalog.text import pluralize
from toolplug.cli.output import paint
from toolplug.host.file.configuration import CONSOLE, ConfigFiles
from toolplug.host.host import Host
from toolplug.http.pages import console_path


def with_console(files: ConfigFiles, *, traces: bool) -> ConfigFiles:
    """Return the files with a console where they mention none; with `traces` it shows those of crashes."""
    return replace(files, defaults={CONSOLE: {"traces": True} if traces else {}})


def console_line(host: Host, url: str) -> str:
    """Return the line that names the console; empty without one.

    And for one that the configuration does not name: its key is for the person at a terminal, not for a file of logs.
    """
    named = CONSOLE in host.entry_keys
    console = console_url(host, url) if named else ""
    return f"the console is at {console}\n" if console else ""


def console_url(host: Host, url: str) -> str:
    """Return the URL of the console, without `auth` with the decision key; empty without a console.

    It is printed and never logged. A browser does not send what follows the `#`.
    """
    console = console_path(host.registry)
    key = f"#decide={host.decision_key.text}" if host.settings.auth is None else ""
    return "" if console is None else f"{url}{console}{key}"


def _decisions(host: Host) -> str:
    """Return how to decide on calls where neither the console's link nor a file has the decision key."""
    if host.settings.auth is not None or console_path(host.registry) is not None or host.decision_key.file is not None:
        return ""
    return f"POST /v1/approvals/ID with {host.decision_key.header}"


def start_screen(host: Host, url: str) -> str:
    """Return lines with the running providers and servers, and the URLs of the API."""
    parts = [part for part in host.parts if part.settings is None or part.settings_in(host.settings) is not None]
    rows = {
        "console": console_url(host, url),
        "providers": _providers(host),
        "MCP servers": ", ".join(f"{view.id} {view.summary}" for view in host.servers.servers(ANONYMOUS.tenant)),
        "tools": f"{url}/v1/tools",
        "MCP": _mcp(host, url),
        **{part.name: f"{url}{part.address}" for part in parts if part.address},
        "metrics": f"{url}/metrics",
        "API": f"{url}/v1/openapi.json",
        "auth": _auth(host),
        "decisions": _decisions(host),
    }
    # Names without a colour for their padding, which would be a bar where a theme draws the background.
    return "".join(f"  {paint(name, 'cyan')}{' ' * (12 - len(name))} {text}\n" for name, text in rows.items() if text)


def _mcp(host: Host, url: str) -> str:
    """Return where MCP clients connect, or what has to be installed first: without its SDK the route answers 503."""
    if not any("/mcp" in part.paths for part in host.parts):
        return ""
    return "not installed; pip install 'toolplug[mcp]'" if find_spec("mcp") is None else f"{url}/mcp"


def _providers(host: Host) -> str:
    running = [key for key in host.registry.running() if key in host.entry_keys]
    if not running:
        return "none; toolplug providers lists what is installed"
    return f"{', '.join(running)}: {pluralize(len(host.registry.catalog), 'tool')}"


def _auth(host: Host) -> str:
    auth = host.settings.auth
    if auth is None:
        return "none: every caller has all scopes (toolplug keys new makes a key)"
    return ", ".join(name for name, settings in (("API keys", auth.api_keys), ("JWT", auth.jwt)) if settings)
