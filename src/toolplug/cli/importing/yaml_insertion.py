"""Inserts entries into the text of a configuration; comments and everything else stay."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from toolplug.config.document import Document, decode_source, parse_document
from toolplug.config.yaml_tree import MappingNode, Mark, ScalarValue, Value, resolve_scalar
from toolplug.errors import ConfigError, Problem
from toolplug.host.file.server_entries import SECTION

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./+-]*")
_FORMER_WORDS = frozenset({"y", "n", "yes", "no", "on", "off"})
"""Booleans of YAML 1.1."""
_UNPRINTABLE = re.compile(r"[\x7f-\x84\x86-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_LINES = re.compile(r"[^\r\n\x85\u2028\u2029]*(?:\r\n|[\r\n\x85\u2028\u2029]|\Z)")
_STEP = 2


Entries = Mapping[str, Mapping[str, Value]]
Comments = Mapping[str, str]
"""A line below an entry, by the entry's key; in flow style, which has no lines, there is none."""


def with_servers(data: bytes, document: Document, entries: Entries, comments: Comments) -> bytes:
    """Add entries to `mcp_servers` in the text of the document, which has none of them.

    The rest of the text stays as it is, byte for byte. Raises `ConfigError` for a section that cannot be extended so,
    such as an alias.
    """
    text = decode_source(data, file=document.file)
    mark = "\ufeff" if data.startswith("\ufeff".encode()) else ""
    lines = [line for line in _LINES.findall(text) if line]
    changed = (mark + _inserted(lines, document, entries, comments)).encode()
    wanted = document.value
    section = wanted.get(SECTION)
    added: dict[str, Value] = {name: dict(entry) for name, entry in entries.items()}
    wanted[SECTION] = {**section, **added} if isinstance(section, dict) else added
    if not _reads_as(changed, document.file, wanted):
        raise ConfigError([_problem(document)])
    return changed


def section_text(entries: Entries, comments: Comments) -> str:
    """The whole section with these entries only."""
    return "\n".join([f"{SECTION}:", *block_text(entries, _STEP, comments)])


def _inserted(lines: list[str], document: Document, entries: Entries, comments: Comments) -> str:
    root = document.root
    present = root.entries.get(SECTION)
    if present is None:
        if _is_flow(lines, root.mark):
            return _into_flow(lines, root, {SECTION: {name: dict(entry) for name, entry in entries.items()}})
        return _after(
            lines, len(lines), [*_blank(lines), *_lines(section_text(entries, comments), root.mark.column - 1)]
        )
    node = present.node
    if isinstance(node, MappingNode) and _is_flow(lines, node.mark):
        return _into_flow(lines, node, {name: dict(entry) for name, entry in entries.items()})
    indent = present.key_mark.column - 1 + _STEP
    if isinstance(node, MappingNode):
        indent = next((entry.key_mark.column - 1 for entry in node.entries.values()), indent)
    end = _end(lines, document, present.key_mark.line, indent)
    return _after(lines, end, list(block_text(entries, indent, comments)))


def _end(lines: Sequence[str], document: Document, start: int, indent: int) -> int:
    """The number of the section's last line. Comments that are indented as its entries belong to it."""
    later = [entry.key_mark.line for entry in document.root.entries.values() if entry.key_mark.line > start]
    end = min(later) - 1 if later else len(lines)
    while end > start and _is_outside(lines[end - 1], indent):
        end -= 1
    return end


def _is_outside(line: str, indent: int) -> bool:
    bare = line.lstrip(" ")
    return not bare.strip() or (bare.startswith("#") and len(line) - len(bare) < indent)


def _after(lines: Sequence[str], count: int, new: Sequence[str]) -> str:
    """Insert new lines after the first `count`, with the line ends of the others."""
    ending = "\r\n" if any(line.endswith("\r\n") for line in lines) else "\n"
    before = "".join(lines[:count])
    if before and not before.endswith(("\n", "\r")):
        before += ending
    return before + "".join(f"{line}{ending}" for line in new) + "".join(lines[count:])


def _blank(lines: Sequence[str]) -> list[str]:
    return [""] if lines and lines[-1].strip() else []


def _lines(text: str, indent: int) -> list[str]:
    return [" " * indent + line for line in text.split("\n")]


def _is_flow(lines: Sequence[str], mark: Mark) -> bool:
    return mark.line <= len(lines) and lines[mark.line - 1][mark.column - 1 : mark.column] == "{"


def _into_flow(lines: list[str], node: MappingNode, entries: dict[str, Value]) -> str:
    """Insert the entries after the opening brace of the mapping."""
    at, column = node.mark.line - 1, node.mark.column
    inner = flow_text(entries)[1:-1] + (", " if node.entries else "")
    return "".join([*lines[:at], lines[at][:column], inner, lines[at][column:], *lines[at + 1 :]])


def _reads_as(data: bytes, file: str, wanted: Mapping[str, Value]) -> bool:
    try:
        return parse_document(data, file=file).value == wanted
    except ConfigError:
        return False


def _problem(document: Document) -> Problem:
    return document.problem(
        (SECTION,),
        code="cannot_add",
        message="nothing can be added here without changing what is here",
        hint="--dry-run prints the lines to add by hand",
        at_key=True,
    )


def block_text(entries: Entries, indent: int, comments: Comments) -> Iterator[str]:
    """The lines of these entries in block style, without line ends. Lists are in one line."""
    outer, middle, inner = (" " * (indent + 2 * level) for level in range(3))
    for name, entry in entries.items():
        yield f"{outer}{scalar_text(name)}:"
        for key, value in entry.items():
            if isinstance(value, dict):
                yield f"{middle}{scalar_text(key)}:"
                yield from (f"{inner}{scalar_text(part)}: {flow_text(item)}" for part, item in value.items())
            else:
                yield f"{middle}{scalar_text(key)}: {flow_text(value)}"
        if name in comments:
            yield f"{middle}# {comments[name]}"


def flow_text(value: Value | Mapping[str, Value]) -> str:
    """The value in flow style."""
    if isinstance(value, list):
        return f"[{', '.join(flow_text(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{scalar_text(key)}: {flow_text(item)}' for key, item in value.items())}}}"
    return scalar_text(value)


def scalar_text(value: ScalarValue) -> str:
    """The scalar, quoted unless every YAML version reads the plain text as the same string.

    `yaml.safe_dump` gives another text: single quotes, and none for strings that only YAML 1.2 reads as numbers.
    """
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and resolve_scalar(value) == value and value.lower() not in _FORMER_WORDS:
        return value
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
