"""`toolplug sessions call`: one call of a session's tool, through the running host."""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from toolplug.cli.logs import log_warnings
from toolplug.cli.missing_package import missing_package
from toolplug.cli.options import DEFAULT_FILE, ConfigOption, JsonOption, found_config
from toolplug.cli.refusal import print_problems
from toolplug.cli.sessions.refusal import access_problem
from toolplug.errors import ConfigError, HostError, HostRefused, InvalidSessionCode, Problem
from toolplug.host.file.config_files import ConfigFiles
from toolplug.sessions.code import check_code

KEY = "TOOLPLUG_KEY"
DEFAULT_URL = "http://127.0.0.1:8080"

_CALLING = "toolplug.cli.sessions.calling"
"""Imports what the extra `client` brings; the help and the other commands need none of it."""
_WORD = re.compile(r"[\x21-\x7e]+")


def call(
    code: Annotated[str, typer.Argument(metavar="CODE", help="The session.")],
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="Its tool, or any other that it shows.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[key=value… | JSON]",
            help="Its arguments: text where the tool's schema says string, else JSON; or one JSON object.",
            show_default=False,
        ),
    ] = None,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="Where the host is served.")] = DEFAULT_URL,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file", metavar="FILE", help=f"An API key of the host. Default: ${KEY}.", show_default=False
        ),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Call a tool of a session, and print its result as `toolplug call` does.

    The call goes to the running host, since its application answers there, and has the tenant and the scopes of the
    key. Exits 1 when the result is an error; its status stands on stderr.

    Example: toolplug sessions call ABCDEFGH describe column=age
    """
    log_warnings()
    try:
        calling = import_module(_CALLING)
    except ModuleNotFoundError as error:
        raise missing_package("sessions call", error, "client") from None
    if not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"--url {url!r} is no URL of a host; write it as {DEFAULT_URL}")
    try:
        check_code(code)
        raise typer.Exit(calling.call(url, _key(key_file), code, tool, arguments or [], as_json=as_json))
    except (HostError, InvalidSessionCode) as error:
        print_problems([_problem(error, code, found_config(config))], as_json=as_json)
        raise typer.Exit(1) from None


def _key(file: Path | None) -> str | None:
    """The API key. Raises `ConfigError` for what is none, without showing it, and `OSError`."""
    key = file.read_text("utf-8", errors="replace").strip() if file is not None else os.environ.get(KEY)
    if key and not _WORD.fullmatch(key):
        place = str(file) if file is not None else f"${KEY}"
        raise ConfigError([Problem(code="invalid_key", message="the key is not one word of visible ASCII", file=place)])
    return key or None


def _problem(error: HostError | InvalidSessionCode, code: str, config: ConfigFiles | None) -> Problem:
    file = config or DEFAULT_FILE
    if isinstance(error, InvalidSessionCode):
        return access_problem(error, code, "")
    if not isinstance(error, HostRefused):
        hint = f"toolplug serve -c {file} starts one; --url says where"
        return Problem(code="host_unreachable", message=str(error), hint=hint)
    hints = {
        "authentication_required": f"set ${KEY}, or name a file with --key-file",
        "insufficient_scope": "use a key with the scopes tools:read and tools:call",
        "session_not_found": f"toolplug sessions list -c {file} shows the codes; --tenant takes that of the key",
        "wrong_audience": "a plugin's token opens only its own routes; use an API key",
    }
    return Problem(code=error.code, message=str(error), path=code, hint=hints.get(error.code, ""))
