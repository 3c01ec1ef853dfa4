"""Results of a server, block by block: a line takes the place of what cannot be used, and the rest stays.

The SDK refuses a whole result for one block that it does not know. A result of which nothing is left is still an error.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from toolplug.catalog.definition import MAX_DESCRIPTION_BYTES
from toolplug.catalog.exact_json import as_object
from toolplug.catalog.text import clean_text, in_one_line
from toolplug.foreign.definitions import bounded_text
from toolplug.parts.mcp.sdk.line_streams import BAD_ANSWER, UNREADABLE

MAX_BLOCKS = 1_000
"""Blocks of one result that are read; later ones are counted in a line."""
_MAX_SHOWN = 200
_MAX_NAMED = 5

_FIELDS = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
    "resource": ("resource",),
}
"""The fields without which a block says nothing; the others may be left out."""
_CONTENT_FIELDS = ("uri", "mimeType", "text", "blob")
_UNSAFE_SCHEMES = frozenset({"javascript", "vbscript", "data", "file"})
"""What a client that opens a link would run, or read from its own disk."""

_block: TypeAdapter[types.ContentBlock] = TypeAdapter(types.ContentBlock)
_contents: TypeAdapter[object] = TypeAdapter(types.TextResourceContents | types.BlobResourceContents)

Json = dict[str, Any]


def is_block(part: Mapping[str, object]) -> bool:
    """Return whether a part of a result is a content block; others become text."""
    try:
        _block.validate_python(part, by_name=False)
    except ValidationError:
        return False
    return True


def readable_call(result: Json) -> Json:
    """Return the result of `tools/call` with content that every client can read. Raises `MCPError`."""
    whole = _without_odd_meta(result)
    sent = whole.get("content")
    blocks = cast("list[object]", sent) if isinstance(sent, list) else [] if sent is None else [sent]
    whole["content"] = content = _read_blocks(blocks, "/content")
    whole["isError"] = whole.get("isError") not in (None, False, 0, "", "false")
    if whole.get("structuredContent") is None:
        whole.pop("structuredContent", None)
        if sent is None or _says_nothing(content):
            raise MCPError(BAD_ANSWER, UNREADABLE)
    return whole


def readable_prompt(result: Json) -> Json:
    """Return the result of `prompts/get` with messages that every client can read. Raises `MCPError`."""
    whole = _without_odd_meta(result)
    description = bounded_text(whole.pop("description", None), MAX_DESCRIPTION_BYTES)
    messages: list[Json] = []
    sent = whole.get("messages")
    for number, raw in enumerate(cast("list[object]", sent)[:MAX_BLOCKS] if isinstance(sent, list) else ()):
        message, at = as_object(raw), f"/messages/{number}"
        role = message.get("role")
        if role not in ("user", "assistant"):
            messages.append({"role": "user", "content": _line(at, "a message of neither user nor assistant")})
            continue
        content = message.get("content")
        several = isinstance(content, list)  # of no version yet, but sent
        blocks = _read_blocks(cast("list[object]", content) if several else [content], f"{at}/content")
        messages += [{"role": role, "content": block} for block in blocks]
    if not isinstance(sent, list) or _says_nothing([message["content"] for message in messages]):
        raise MCPError(BAD_ANSWER, UNREADABLE)
    return {**whole, **({"description": description} if description else {}), "messages": messages}


def readable_resource(result: Json) -> Json:
    """Return the result of `resources/read` with the contents that every client can read. Raises `MCPError`."""
    whole = _without_odd_meta(result)
    sent = whole.get("contents")
    found: list[Json] = []
    lost: list[Json] = []
    for number, raw in enumerate(cast("list[object]", sent)[:MAX_BLOCKS] if isinstance(sent, list) else ()):
        contents = dict(as_object(raw))
        if _fits(_contents, contents):
            found.append(contents)
            continue
        plain = _plain_contents(contents)
        if plain.keys() & {"text", "blob"} and _fits(_contents, plain):
            found.append(plain)
            continue
        uri = contents.get("uri")
        why = "contents without a URI, or without text and blob"
        text = str(_line(f"/contents/{number}", why)["text"])
        lost.append({"uri": uri if isinstance(uri, str) else "about:blank", "mimeType": "text/plain", "text": text})
    if not isinstance(sent, list) or (lost and not found):
        raise MCPError(BAD_ANSWER, UNREADABLE)
    return {**whole, "contents": [*found, *lost]}


READABLE: Mapping[str, Callable[[Json], Json]] = {
    "tools/call": readable_call,
    "prompts/get": readable_prompt,
    "resources/read": readable_resource,
}
"""By method: what its result is read by, if it is complete."""


def _without_odd_meta(result: Json) -> Json:
    """Return a copy, without a `_meta` that is no object."""
    return {key: value for key, value in result.items() if key != "_meta" or isinstance(value, dict)}


def _says_nothing(content: Sequence[object]) -> bool:
    """Return True if nothing is left but lines of ours."""
    return bool(content) and all(isinstance(block, _Line) for block in content)


def _read_blocks(blocks: Sequence[object], at: str) -> list[Json]:
    """Return the blocks that can be used, and a line for each other one and each field that is left out."""
    read: list[Json] = []
    for number, raw in enumerate(blocks[:MAX_BLOCKS]):
        read += _read_block(raw, f"{at}/{number}")
    if len(blocks) > MAX_BLOCKS:
        read.append(_line(at, f"{len(blocks) - MAX_BLOCKS} blocks after the first {MAX_BLOCKS}"))
    return read


def _read_block(raw: object, at: str) -> Iterator[Json]:
    if isinstance(raw, str):
        yield {"type": "text", "text": raw}
        return
    block = dict(as_object(raw))
    kind = block.get("type")
    if not isinstance(kind, str):
        yield _line(at, "a block without a type" if block else "a block that is no object")
        return
    needed = _FIELDS.get(kind)
    if needed is None:
        yield _line(at, f"a block of the type {_show(kind)}")
        return
    if not _fits(_block, block):
        plain = {key: value for key, value in block.items() if key == "type" or key in needed}
        if kind == "resource":
            plain["resource"] = _plain_contents(as_object(plain.get("resource")))
        if not _fits(_block, plain):
            yield _line(at, f"a block of the type {_show(kind)} without a valid {' or '.join(needed)}")
            return
        odd = [key for key in block if key not in plain][:_MAX_NAMED]
        yield _line(at, f"the field {' or '.join(map(_show, odd))}, which has another type" if odd else "odd fields")
        block = plain
    yield from _safe(block, at)


def _plain_contents(contents: Mapping[str, object]) -> Json:
    """Return the fields of a resource's contents that are texts, as all that are needed have to be."""
    return {key: value for key in _CONTENT_FIELDS if isinstance(value := contents.get(key), str)}


def _safe(block: Json, at: str) -> Iterator[Json]:
    """Yield the block unless it is media that is none, or names what a client had better not open."""
    kind = block["type"]
    if kind in ("image", "audio"):
        if not str(block["mimeType"]).startswith(f"{kind}/"):
            yield _line(at, f"a block of the type {_show(kind)} of the media type {_show(block['mimeType'])}")
        elif (data := _base64(block["data"])) is None:
            yield _line(at, f"a block of the type {_show(kind)} whose data is not base64")
        else:
            yield {**block, "data": data}
        return
    inner = as_object(block.get("resource"))
    uri = block.get("uri") if kind == "resource_link" else inner.get("uri")
    if isinstance(uri, str) and _scheme(uri) in _UNSAFE_SCHEMES:
        yield _line(at, f"a resource at {_show(uri)}, which clients do not open")
        if isinstance(inner.get("text"), str):
            yield {"type": "text", "text": inner["text"]}
        return
    yield block


def _scheme(uri: str) -> str:
    """Return the scheme as browsers read it: without blanks, also within it."""
    return "".join(uri.lstrip()[:_MAX_SHOWN].split()).partition(":")[0].lower()


def _base64(data: object) -> str | None:
    """Return base64 without the line breaks that some servers put into it; None if it is none."""
    text = str(data).replace("\n", "").replace("\r", "")
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except (ValueError, binascii.Error):
        return None
    return text


def _fits(adapter: TypeAdapter[Any], value: object) -> bool:
    try:
        adapter.validate_python(value, by_name=False)
    except ValidationError:
        return False
    return True


class _Line(dict[str, Any]):
    """A text block of ours about what was left out."""


def _line(at: str, what: str) -> Json:
    return _Line(type="text", text=f"[left out: {at}: {what}]")


def _show(text: str) -> str:
    return repr(in_one_line(clean_text(text[:_MAX_SHOWN])))
