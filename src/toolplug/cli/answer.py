"""What a command answers, on stdout."""

from __future__ import annotations

import json

import typer


def print_json(value: object) -> None:
    """One JSON document, for programs and still readable."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
