"""Results of tools made of HTTP responses: JSON, text, or an error in words."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast

import httpx2

from toolplug import ToolDefinition, ToolError, ToolResult
from toolplug_openapi.document import as_list, as_object

MAX_ERROR_CHARACTERS = 2_000
MAX_VALUES = 250_000
"""Values of an answer in JSON; they are counted before they are built: 4 MiB of `{}` would take 100 MB."""

_BINARY = re.compile(r"image/(?!svg)|audio/|video/|font/|application/(pdf|zip|gzip|msword|vnd\.)")
"""Media types of which nobody expects a text, whatever their bytes are."""
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1a\x1c\x1d\x1f]")

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


def trim(value: object, kept: Tree) -> object:
    """Return the value with these parts only; a value that is neither object nor list stays as it is."""
    if not kept:
        return value
    if isinstance(value, list):
        return [trim(item, kept["*"]) for item in as_list(cast("object", value)) if "*" in kept]
    if not isinstance(value, dict):
        return value
    pairs = as_object(cast("object", value)).items()
    return {key: trim(inner, kept.get(key, kept.get("*", {}))) for key, inner in pairs if {key, "*"} & kept.keys()}


def tool_result(response: httpx2.Response, definition: ToolDefinition, kept: Tree) -> object:
    """Return the value of a success. Raises `ToolError` for any other status and for binary content."""
    if not response.is_success:
        raise _error(response)
    content = response.content
    if not content:
        return f"done: HTTP {response.status_code}, without content"
    essence = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if essence not in ("application/json", "text/json") and (not essence.endswith("+json") or "seq" in essence):
        return _text(content, essence, response.charset_encoding)
    if content.count(b",") + content.count(b"[") + content.count(b"{") > MAX_VALUES:
        raise ToolError(f"the API answered JSON of more than {MAX_VALUES:,} values; ask for less")
    text = _decode(content, response.charset_encoding)
    try:
        value = trim(cast("object", json.loads(text, parse_constant=_refuse_constant)), kept)
    except _NoJson:
        return text  # NaN and Infinity: other languages write them
    except (ValueError, RecursionError):
        raise ToolError(f"the API says that this is JSON, but it is not (HTTP {response.status_code})") from None
    if definition.output_schema is None or definition.output_schema.is_valid(value):
        return value
    return ToolResult(output=json.dumps(value, ensure_ascii=False, separators=(",", ":")))


class _NoJson(Exception):
    pass


def _refuse_constant(name: str) -> object:
    raise _NoJson(name)


def _decode(content: bytes, charset: str | None) -> str:
    """Return the text of an answer: UTF-8, UTF-16 with a mark, else the declared charset, else Latin-1."""
    marked = content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    for name in ("utf-16" if marked else "utf-8-sig", charset or "utf-8"):
        try:
            return content.decode(name)
        except (LookupError, UnicodeDecodeError):
            continue
    return content.decode("latin-1")


def _text(content: bytes, essence: str, charset: str | None) -> str:
    """Return an answer that is text, whatever it is called. Raises `ToolError` for binary content."""
    named = essence.startswith("text/") or essence.endswith(("+xml", "/xml")) or not essence or charset is not None
    text = ""
    if not _BINARY.match(essence):
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = _decode(content, charset) if named else ""
    if not text or (not named and _NO_TEXT.search(text)):
        raise ToolError(f"the API answered {essence[:100] or 'something'} of {len(content):,} bytes, which is no text")
    return text


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
