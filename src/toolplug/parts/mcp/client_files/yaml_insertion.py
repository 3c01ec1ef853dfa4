"""Inserts entries into the text of a configuration, and changes nothing else in it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

from toolplug.config.document import (
    Document,
    MappingNode,
    Mark,
    ScalarValue,
    Value,
    decode_source,
    parse_document,
    resolve_scalar,
)
from toolplug.errors import ConfigError
from toolplug.parts.mcp.settings import SECTION

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./+-]*")
_FORMER_WORDS = frozenset({"y", "n", "yes", "no", "on", "off"})
"""Booleans of YAML 1.1."""
_UNPRINTABLE = re.compile(r"[\x7f-\x84\x86-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_LINES = re.compile(r"[^\r\n\x85\u2028\u2029]*(?:\r\n|[\r\n\x85\u2028\u2029]|\Z)")
_STEP = 2

Entries = Mapping[str, Mapping[str, Value]]
Comments = Mapping[str, str]
"""A line below an entry, by the key of the entry; left out in flow style."""


def with_servers(data: bytes, document: Document, entries: Entries, comments: Comments) -> bytes:
    """Add new entries to `mcp_servers` in the text of the document; return the text, otherwise unchanged to the byte.

    Raises `ConfigError` for a section that cannot be extended so, such as an alias.
    """
    text = decode_source(data, file=document.file)
    mark = "\ufeff" if data.startswith("\ufeff".encode()) else ""
    lines = [line for line in _LINES.findall(text) if line]
    added: dict[str, Value] = {name: dict(entry) for name, entry in entries.items()}
    changed = (mark + _insert(lines, document, added, block_text(entries, comments))).encode()
    wanted = document.value
    section = wanted.get(SECTION)
    wanted[SECTION] = {**section, **added} if isinstance(section, dict) else added
    with suppress(ConfigError):
        if parse_document(changed, file=document.file).value == wanted:
            return changed
    message = "nothing can be added here without changing what is here"
    hint = "--dry-run prints the lines to add by hand"
    raise ConfigError([document.problem((SECTION,), code="cannot_add", message=message, hint=hint, at_key=True)])


def section_text(entries: Entries, comments: Comments) -> str:
    """Return the section with only these entries."""
    return "\n".join([f"{SECTION}:", *_indent(block_text(entries, comments), _STEP)])


def _insert(lines: list[str], document: Document, added: dict[str, Value], block: Sequence[str]) -> str:
    """Insert the entries, given as values for flow style and as lines for block style."""
    root = document.root
    present = root.entries.get(SECTION)
    if present is None:
        if _is_flow(lines, root.mark):
            return _into_flow(lines, root, {SECTION: added})
        section = [f"{SECTION}:", *_indent(block, _STEP)]
        blank = [""] if lines and lines[-1].strip() else []
        return _after(lines, len(lines), [*blank, *_indent(section, root.mark.column - 1)])
    node = present.node
    if isinstance(node, MappingNode) and _is_flow(lines, node.mark):
        return _into_flow(lines, node, added)
    indent = present.key_mark.column - 1 + _STEP
    if isinstance(node, MappingNode):
        indent = next((entry.key_mark.column - 1 for entry in node.entries.values()), indent)
    return _after(lines, _end(lines, document, present.key_mark.line, indent), _indent(block, indent))


def _end(lines: Sequence[str], document: Document, start: int, indent: int) -> int:
    """Return the number of the section's last line; comments indented like its entries are part of it."""
    later = [entry.key_mark.line for entry in document.root.entries.values() if entry.key_mark.line > start]
    end = min(later, default=len(lines) + 1) - 1
    while end > start:
        line = lines[end - 1]
        bare = line.lstrip(" ")
        if bare.strip() and not (bare.startswith("#") and len(line) - len(bare) < indent):
            break
        end -= 1
    return end


def _after(lines: Sequence[str], count: int, new: Sequence[str]) -> str:
    """Return the text with new lines after the first `count`, with the same line ends."""
    ending = "\r\n" if any(line.endswith("\r\n") for line in lines) else "\n"
    before = "".join(lines[:count])
    if before and not before.endswith(("\n", "\r")):
        before += ending
    return before + "".join(f"{line}{ending}" for line in new) + "".join(lines[count:])


def _indent(lines: Sequence[str], indent: int) -> list[str]:
    return [" " * indent + line for line in lines]


def _is_flow(lines: Sequence[str], mark: Mark) -> bool:
    return mark.line <= len(lines) and lines[mark.line - 1][mark.column - 1 : mark.column] == "{"


def _into_flow(lines: list[str], node: MappingNode, entries: dict[str, Value]) -> str:
    """Return the text with the entries after the opening brace of the mapping."""
    at, column = node.mark.line - 1, node.mark.column
    inner = flow_text(entries)[1:-1] + (", " if node.entries else "")
    return "".join([*lines[:at], lines[at][:column], inner, lines[at][column:], *lines[at + 1 :]])


def block_text(entries: Entries, comments: Comments) -> list[str]:
    """Return the lines of the entries in block style, without line ends. Lists are in one line."""
    lines: list[str] = []
    for name, entry in entries.items():
        lines.append(f"{scalar_text(name)}:")
        for key, value in entry.items():
            if isinstance(value, dict):
                lines.append(f"  {scalar_text(key)}:")
                lines += [f"    {scalar_text(part)}: {flow_text(item)}" for part, item in value.items()]
            else:
                lines.append(f"  {scalar_text(key)}: {flow_text(value)}")
        if name in comments:
            lines.append(f"  # {comments[name]}")
    return lines


def flow_text(value: Value | Mapping[str, Value]) -> str:
    """Return the value in flow style."""
    if isinstance(value, list):
        return f"[{', '.join(flow_text(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{scalar_text(key)}: {flow_text(item)}' for key, item in value.items())}}}"
    return scalar_text(value)


def scalar_text(value: ScalarValue) -> str:
    """Return the scalar, in double quotes unless every version of YAML reads the plain text as the same string.

    `yaml.safe_dump` uses single quotes, and no quotes for strings that only YAML 1.2 reads as numbers.
    """
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and resolve_scalar(value) == value and value.lower() not in _FORMER_WORDS:
        return value
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
