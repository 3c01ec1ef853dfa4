"""Results of tools made of HTTP responses: JSON, text, or an error in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast

import httpx2

from toolplug import ToolDefinition, ToolError, ToolResult
from toolplug_openapi.document import as_list, as_object

MAX_ERROR_CHARACTERS = 2_000
TEXTS = frozenset({"", "application/xml", "application/yaml"})
"""Media types besides `text/…` that are given as text."""

Tree = Mapping[str, "Tree"]
"""The parts of a value that are kept: key, or `*` for every key and item, to the parts below; empty: all of it."""

_REASONS = {
    401: "the API does not accept the credentials",
    403: "the API does not allow this with these credentials",
    404: "the API does not have this",
    429: "the API has had too many requests",
}


def kept_parts(pointers: Sequence[str]) -> Tree:
    """Return the tree of some JSON pointers."""
    tree: dict[str, Any] = {}
    for pointer in pointers:
        inner = tree
        for part in pointer[1:].split("/"):
            inner = inner.setdefault(part.replace("~1", "/").replace("~0", "~"), {})
    return tree


def trimmed(value: object, kept: Tree) -> object:
    """Return the value with these parts only; a value that is neither object nor list stays as it is."""
    if not kept:
        return value
    if isinstance(value, list):
        return [trimmed(item, kept["*"]) for item in as_list(cast("object", value)) if "*" in kept]
    if not isinstance(value, dict):
        return value
    pairs = as_object(cast("object", value)).items()
    return {key: trimmed(inner, kept.get(key, kept.get("*", {}))) for key, inner in pairs if {key, "*"} & kept.keys()}


def tool_result(response: httpx2.Response, definition: ToolDefinition, kept: Tree) -> object:
    """Return the value of a success. Raises `ToolError` for any other status and for binary content."""
    if not response.is_success:
        raise _error(response)
    if not response.content:
        return f"done: HTTP {response.status_code}, without content"
    essence = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if essence == "application/json" or essence.endswith("+json"):
        try:
            value = trimmed(cast("object", json.loads(response.content)), kept)
        except (ValueError, RecursionError):
            raise ToolError(f"the API says that this is JSON, but it is not (HTTP {response.status_code})") from None
        if definition.output_schema is None or definition.output_schema.is_valid(value):
            return value
        return ToolResult(output=json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    if essence.startswith("text/") or essence in TEXTS or essence.endswith("+xml"):
        return response.text
    raise ToolError(f"the API answered {essence[:100]} of {len(response.content):,} bytes, which is no text")


def _error(response: httpx2.Response) -> ToolError:
    status = response.status_code
    metadata = {"http_status": status}
    if response.is_redirect:
        target = response.headers.get("location", "")[:200]
        return ToolError(f"the API redirects to {target!r} (HTTP {status}), which is not followed", metadata=metadata)
    reason = _REASONS.get(status, "the API refused the request" if status < 500 else "the API failed")
    text = f"{reason} (HTTP {f'{status} {response.reason_phrase}'.strip()})"
    wait_s = _retry_after(response.headers.get("retry-after", "")) if status in (429, 503) else None
    if wait_s is not None:
        text += f"; retry in {wait_s:g} s"
    said = response.text.strip()
    if said:
        more = (
            f" … and {len(said) - MAX_ERROR_CHARACTERS:,} more characters" if len(said) > MAX_ERROR_CHARACTERS else ""
        )
        text += f": {said[:MAX_ERROR_CHARACTERS]}{more}"
    return ToolError(text, retry_after_s=wait_s, metadata=metadata)


def _retry_after(text: str) -> float | None:
    """Return the seconds of either form of `Retry-After` (RFC 9110, section 10.2.3); None for anything else."""
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, round((until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds(), 1))
