"""`toolplug keys new`: an API key, and its entry for the configuration."""

from __future__ import annotations

import hashlib
import secrets

import typer

from toolplug.cli.options import DEFAULT_FILE, ConfigOption, JsonOption, found_config
from toolplug.cli.output import print_answer

PREFIX = "tp_"
"""Lets scanners for leaked credentials recognise the key."""

app: typer.Typer = typer.Typer(name="keys", help="API keys.", no_args_is_help=True)


@app.command()
def new(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Create an API key of 256 random bits, and show it once with the line to paste into the configuration.

    Nothing is stored: the configuration holds only the key's SHA-256.

    Example: toolplug keys new
    """
    key = PREFIX + secrets.token_urlsafe(32)
    digest = hashlib.sha256(key.encode()).hexdigest()
    line = f"- {{sha256: {digest}, subject: NAME, tenant: default, scopes: [tools:read, tools:call]}}"
    file = found_config(config) or DEFAULT_FILE
    text = f"{key}\n\nIt is shown only now. Paste into {file}:\n\nauth:\n  api_keys:\n    {line}"
    print_answer(as_json, {"key": key, "sha256": digest, "yaml": line}, text)
