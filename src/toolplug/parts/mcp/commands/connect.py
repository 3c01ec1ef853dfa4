"""`toolplug connect`: enters the tools of a host into the file of an MCP client, the reverse of `discover --import`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Annotated
from urllib.error import HTTPError
from urllib.parse import SplitResult, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

import typer

from toolplug.cli.keys import NewKey, entry_text, new_key
from toolplug.cli.options import ConfigOption, JsonOption, config_file, found_config
from toolplug.cli.output import echo, print_json
from toolplug.cli.running_host import KEY, check_url
from toolplug.config.document import list_variables, read_document
from toolplug.config.masking import find_secrets, holds_credentials
from toolplug.errors import ConfigError, Problem
from toolplug.foreign.client_files import (
    PROGRAMS,
    ClientName,
    RemoteServer,
    StartedServer,
    client_file,
    expand_path,
    file_text,
)
from toolplug.http.request_checks import is_loopback
from toolplug.parts.mcp.client_files.writing import WrittenFile, write_server

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}")
"""A name that every client takes, a plain key in TOML. Without `_`, at which Gemini CLI divides the names of tools."""
_ASK_S = 5.0
"""Seconds to wait for the host, which only has to say whether it wants a key."""

_FEW_VARIABLES = (
    "Claude Desktop passes few variables on to servers: where this one is missing, start the host yourself, or keep"
    " secrets of the configuration in files (api_key_file in place of api_key)"
)

app: typer.Typer = typer.Typer()


@dataclass(frozen=True, slots=True)
class _Target:
    """A server to enter, with notes for the user. `has_auth` is None for one that the client starts."""

    server: StartedServer | RemoteServer
    has_auth: bool | None = None
    notes: Sequence[str] = ()


@app.command()
def connect(
    client: Annotated[ClientName, typer.Argument(metavar="CLIENT", help=f"One of {', '.join(ClientName)}.")],
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="The /mcp of a running host.", show_default=False)
    ] = None,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="The client starts the host of the configuration. Default without --url.")
    ] = False,
    agent: Annotated[str | None, typer.Option("--agent", metavar="A", help="With the tools of this agent.")] = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The server's name in the client.")] = "toolplug",
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="Write this file, not the client's own.", show_default=False),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite another server of this name.")] = False,
    print_only: Annotated[bool, typer.Option("--print", help="Print the entry, and write nothing.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Enter the tools of a host into the file of an MCP client. The rest of the file stays as it is.

    Without --url the client starts the host itself, with absolute paths. The client's file is that of the user; for
    claude-code it is .mcp.json of this folder. It becomes readable for its owner only, and the old one is kept next to
    it.

    If the host at the URL has `auth`, a new key is printed once with its line for `auth.api_keys`, and the file gets
    only the name of the variable TOOLPLUG_KEY. Without `auth` there is no key: the first one would lock out all other
    callers.

    Examples: toolplug connect claude-desktop · toolplug connect codex --url http://127.0.0.1:8080/mcp --print
    """
    if url is not None and stdio:
        raise typer.BadParameter("give --url or --stdio: the client connects to a host, or starts one")
    if _NAME.fullmatch(name) is None:
        raise typer.BadParameter(f"--name {name!r} must be a letter, then letters, digits and '-', 63 at most")
    program = PROGRAMS[client]
    target = _server_to_start(config, agent, client) if url is None else _server_at(url, agent, config)
    if program.reference:
        _check_literal(target.server)
    entry = program.entry(target.server)
    path = expand_path(file, os.environ, home=Path.home()) if file else _own_file(client)
    written = None if print_only else write_server(path, program, name, entry, over=replace)
    unchanged = written is not None and written.done == "unchanged"
    key = new_key(client.value) if target.has_auth and not unchanged else None
    if as_json:
        about = {"client": client.value, "name": name, "entry": entry, "text": file_text(program, name, entry)}
        print_json({**about, **_fields(path, written), **_target_fields(target, key)})
        return
    if written is None:
        echo(file_text(program, name, entry).rstrip("\n"))
        echo(f"for {program.title}: add this to {path}", err=True)
    else:
        echo(_done_text(written, name))
    for line in _advice(client, target, key, unchanged=unchanged):
        echo(line, err=written is None)


def _fields(path: Path, written: WrittenFile | None) -> dict[str, object]:
    if written is None:
        return {"file": str(path), "done": "printed", "copy": None}
    return {
        "file": str(written.file),
        "done": written.done,
        "copy": None if written.copy is None else str(written.copy),
    }


def _target_fields(target: _Target, key: NewKey | None) -> dict[str, object]:
    made = None if key is None else {"variable": KEY, "key": key.key, "sha256": key.sha256, "yaml": key.line}
    return {"auth": target.has_auth, "key": made, "notes": [*target.notes]}


def _done_text(written: WrittenFile, name: str) -> str:
    kept = "" if written.copy is None else f"; the old file is {written.copy}"
    return f"{written.file}: {name} {written.done}{kept}"


def _advice(client: ClientName, target: _Target, key: NewKey | None, *, unchanged: bool) -> Iterator[str]:
    """Yield what the user should know and do next, the new key included."""
    yield from target.notes
    program = PROGRAMS[client]
    if key is not None:
        yield f"the host has auth: set this in the environment of {program.title}"
        yield f"\n{KEY}={key.key}\n"
        yield "It is shown only now. Paste into the configuration of the host:"
        yield f"\n{entry_text(key)}\n"
        if client is ClientName.CLAUDE_DESKTOP:
            yield _FEW_VARIABLES
    elif target.has_auth is False:
        yield "the host has no auth, so there is no key: the first one would lock out all other callers"
    if not unchanged:
        yield f"next: {program.after}"


def _own_file(client: ClientName) -> Path:
    return client_file(client, os.environ, home=Path.home(), system=sys.platform)


def _server_to_start(config: Path | None, agent: str | None, client: ClientName) -> _Target:
    """Return the server that a client starts: this Python, with the configuration. Raises `ConfigError`."""
    file = config_file(config).file.absolute()
    chosen = ("--agent", agent) if agent else ()
    # -P: the client starts it in a folder of its own, in which no module is to be found before ours.
    args = ("-P", "-m", "toolplug", "serve", "--stdio", *chosen, "-c", str(file))
    # Others are of entries that are disabled, or have a default.
    names = [name for name in list_variables(read_document(file).root) if name in os.environ]
    notes = [f"passed on from the environment of {PROGRAMS[client].title}: {', '.join(names)}"] if names else []
    if names and client is ClientName.CLAUDE_DESKTOP:
        notes = [f"the configuration refers to {', '.join(names)}. {_FEW_VARIABLES}"]
    return _Target(StartedServer(os.path.abspath(sys.executable), args, names), notes=notes)


def _server_at(url: str, agent: str | None, config: Path | None) -> _Target:
    """Return the server at the URL, after asking it whether it has `auth`. Raises `ConfigError` and `BadParameter`."""
    check_url(url)
    try:
        parts = urlsplit(url)
        missing = not parts.hostname or parts.port == 0
    except ValueError:
        parts, missing = SplitResult("", "", "", "", ""), True
    if missing or parts.fragment or not (url.isascii() and url.isprintable()) or " " in url:
        raise typer.BadParameter(f"--url {url!r} is no URL of a host; write it as http://127.0.0.1:8080/mcp")
    if holds_credentials(url) or find_secrets(url):
        raise typer.BadParameter("--url holds a secret, which would stand in the client's file; leave it out")
    if parts.path in ("", "/"):
        parts = parts._replace(path="/mcp")
    if agent:
        chosen = urlencode({"agent": agent})
        parts = parts._replace(query=f"{parts.query}&{chosen}" if parts.query else chosen)
    address = parts.geturl()
    has_auth, notes = _ask_for_auth(address, config)
    return _Target(RemoteServer(address, KEY if has_auth else None), has_auth, notes)


class _NoRedirects(HTTPRedirectHandler):
    """Takes the answer of the address itself, not that of another one which it names."""

    def http_error_302(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage) -> None:
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _ask_for_auth(url: str, config: Path | None) -> tuple[bool, Sequence[str]]:
    """Return whether the host at the URL has `auth`: what it answers, else what the configuration says, with a note.

    Raises `ConfigError` if neither says it.
    """
    try:
        status = _status_of(url)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        found = found_config(config)
        if found is None:
            message = f"no host answers at {url}: {reason}"
            hint = "start it with toolplug serve, or name its configuration with -c"
            raise ConfigError([Problem(code="host_unreachable", message=message, hint=hint)]) from None
        note = f"no host answers at {url} now ({reason}); whether it has auth is taken from {found}"
        return "auth" in read_document(found.file).value, [note]
    if status == 401:
        return True, ()
    if status == 404 or 300 <= status < 400 or status >= 500:
        message = f"{url} answers {status}, which is no MCP server"
        hint = "the address of a host ends in /mcp"
        raise ConfigError([Problem(code="not_mcp", message=message, hint=hint)])
    return False, ()


def _status_of(url: str) -> int:
    """Return the status of a GET without credentials. Raises `OSError` and `HTTPException`."""
    host = urlsplit(url).hostname or ""
    # A proxy of the environment knows nothing of this machine's hosts.
    direct = [ProxyHandler({})] if host == "localhost" or is_loopback(host) else []
    request = Request(url, headers={"Accept": "text/event-stream"})
    try:
        with build_opener(_NoRedirects, *direct).open(request, timeout=_ASK_S) as answer:
            return int(answer.status)
    except HTTPError as error:
        error.close()
        return error.code


def _check_literal(server: StartedServer | RemoteServer) -> None:
    """Raise `ConfigError` for a text that a client would read as a reference to a variable."""
    texts = (server.command, *server.args) if isinstance(server, StartedServer) else (server.url,)
    found = next((text for text in texts if "$" in text), None)
    if found is not None:
        message = f"the client would read a variable in {found!r}"
        raise ConfigError([Problem(code="not_literal", message=message, hint="use a path and a URL without $")])
