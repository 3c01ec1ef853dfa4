"""The options and errors of commands that send requests to a running host."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from toolplug.errors import ConfigError, HostError, HostRefused, Problem

KEY = "TOOLPLUG_KEY"
DEFAULT_URL = "http://127.0.0.1:8080"

KeyFileOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--key-file", metavar="FILE", help=f"An API key of the host. Default: ${KEY}.", show_default=False),
]

_VISIBLE_ASCII = re.compile(r"[\x21-\x7e]+")


def check_url(url: str) -> None:
    """Raise `typer.BadParameter` for what is not the URL of a host."""
    if not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"--url {url!r} is no URL of a host; write it as {DEFAULT_URL}")


def read_key(file: Path | None, given: str | None = None) -> str | None:
    """Return the API key or None: that of the command line, of the file or of the environment.

    Raises `OSError`, and `ConfigError`, which does not show it, for an invalid key.
    """
    key = given or (file.read_text("utf-8", errors="replace").strip() if file is not None else os.environ.get(KEY))
    if key and not _VISIBLE_ASCII.fullmatch(key):
        place = "--key" if given else str(file) if file is not None else f"${KEY}"
        raise ConfigError([Problem(code="invalid_key", message="the key is not one word of visible ASCII", file=place)])
    return key or None


def host_problem(error: HostError, config: str, code: str = "") -> Problem:
    """Return the problem for an error of the host. `config` is named in hints; `code` is the session, if any."""
    if not isinstance(error, HostRefused):
        hint = f"toolplug serve -c {config} starts one; --url says where"
        return Problem(code="host_unreachable", message=str(error), hint=hint)
    hints = {
        "authentication_required": f"set ${KEY}, or name a file with --key-file",
        "insufficient_scope": "use a key with the scopes tools:read and tools:call",
        "session_not_found": f"toolplug sessions list -c {config} shows the codes; --tenant takes that of the key",
        "wrong_audience": "a plugin's token opens only its own routes; use an API key",
    }
    return Problem(code=error.code, message=str(error), path=code, hint=hints.get(error.code, ""))
