"""`toolplug keys new`: an API key, and its entry for the configuration."""

from __future__ import annotations

import hashlib
import secrets
from typing import NamedTuple

import typer

from toolplug.cli.options import DEFAULT_FILE, ConfigOption, JsonOption, found_config
from toolplug.cli.output import print_answer

PREFIX = "tp_"
"""Lets scanners for leaked credentials recognise the key."""

app: typer.Typer = typer.Typer(name="keys", help="API keys.", no_args_is_help=True)


class NewKey(NamedTuple):
    """A key, its SHA-256, and its line for `auth.api_keys`, which has only the latter."""

    key: str
    sha256: str
    line: str


def new_key(subject: str = "NAME") -> NewKey:
    """Return a key of 256 random bits, whose line lets its subject list and call tools. Nothing is stored."""
    key = PREFIX + secrets.token_urlsafe(32)
    digest = hashlib.sha256(key.encode()).hexdigest()
    line = f"- {{sha256: {digest}, subject: {subject}, tenant: default, scopes: [tools:read, tools:call]}}"
    return NewKey(key, digest, line)


@app.command()
def new(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Create an API key of 256 random bits, and show it once with the line to paste into the configuration.

    Nothing is stored: the configuration holds only the key's SHA-256.

    Example: toolplug keys new
    """
    made = new_key()
    text = (
        f"{made.key}\n\nIt is shown only now. Paste into {found_config(config) or DEFAULT_FILE}:\n\n{entry_text(made)}"
    )
    print_answer(as_json, {"key": made.key, "sha256": made.sha256, "yaml": made.line}, text)


def entry_text(made: NewKey) -> str:
    """Return the line of a key with the keys of the configuration that it is below."""
    return f"auth:\n  api_keys:\n    {made.line}"
