"""Writes servers into another program's file: in one step, for its owner only, next to a copy of the old one."""

from __future__ import annotations

import json
import os
import re
import stat
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import mkstemp
from typing import Literal, NamedTuple, cast

import json5

from toolplug.catalog.exact_json import as_object
from toolplug.config.yaml_tree import Mark, Value, problem_at
from toolplug.errors import ConfigError, Problem
from toolplug.foreign.client_files import ClientProgram, file_text
from toolplug.parts.mcp.client_files.reading import parse_client_file, read_bytes

_TOKEN = re.compile(
    r"\"[^\"\\]*(?:\\.[^\"\\]*)*\"|'[^'\\]*(?:\\.[^'\\]*)*'|//[^\r\n\u2028\u2029]*|/\*(?:[^*]|\*(?!/))*\*/|[{}\[\],:]"
    r"|[^\s{}\[\],:\"'/]+",
    re.DOTALL,
)
"""A token or a comment of JSON as editors have it; of a text that was read already, so every quote has its end."""
_STEP = "  "

Server = Mapping[str, Value]


def find_server(whole: Mapping[str, object], program: ClientProgram, name: str) -> object:
    """Return the entry of this name in a file that was read, or None."""
    return as_object(whole.get(program.section)).get(name)


def with_server(data: bytes, file: Path, program: ClientProgram, name: str, entry: Server) -> bytes:
    """Return the file with the server added, or in the place of the one of this name; its other text as it is.

    Raises `ConfigError` for a file that cannot be read, and for one in which nothing can be put so.
    """
    before = dict(parse_client_file(data, file)) if data.removeprefix(BOM_UTF8).strip() else dict[str, object]()
    text = data.removeprefix(BOM_UTF8).decode()
    line_end = "\r\n" if "\r\n" in text else "\n"
    alone = file_text(program, name, entry, line_end=line_end)
    if not text.strip():
        changed = alone
    elif file.suffix == ".toml":
        add = _add_table if find_server(before, program, name) is None else _replace_table
        changed = add(text, program, name, alone)
    else:
        changed = None
        with suppress(ValueError):  # of what json5 reads and no such program does
            changed = _into_json(text, program, name, entry, line_end)
    section = before.get(program.section, {})
    new = (BOM_UTF8 if data.startswith(BOM_UTF8) else b"") + (changed or "").encode()
    if changed is not None and isinstance(section, dict):
        wanted = {**before, program.section: {**cast("dict[str, object]", section), name: entry}}
        with suppress(ConfigError):
            if parse_client_file(new, file) == wanted:
                return new
    message = f"nothing can be added to {program.section!r} without changing what is here"
    line = text[: max(text.find(program.section), 0)].count("\n") + 1
    hint = "--print prints the entry to add by hand"
    raise ConfigError([problem_at(str(file), Mark(line=line, column=1), "cannot_add", message, hint)])


def _add_table(text: str, _program: ClientProgram, _name: str, table: str) -> str:
    end = "\r\n" if table.endswith("\r\n") else "\n"
    return f"{text}{'' if text.endswith(end) else end}{end}{table}"


def _replace_table(text: str, program: ClientProgram, name: str, table: str) -> str:
    """Return the text with the table in the place of the one of this name and of the tables in it."""
    ours = re.compile(rf"[ \t]*\[[ \t]*{program.section}[ \t]*\.[ \t]*([\"']?){name}\1[ \t]*[.\]]")
    kept: list[str] = []
    at = -1
    inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip(" \t").startswith("["):
            inside = ours.match(line) is not None
            at = len(kept) if inside and at < 0 else at
        # A comment or an empty line below a table may belong to the next one.
        if not inside or not line.strip() or line.lstrip().startswith("#"):
            kept.append(line)
    return "".join([*kept[:at], table, *kept[at:]]) if at >= 0 else text


class _JsonMember(NamedTuple):
    """A member of an object, with the places of its key's begin and of its value's begin and end in the text."""

    name: str
    start: int
    value: int
    end: int


class _JsonObject(NamedTuple):
    """An object: the places after its opening brace and of its closing one, where its content ends, and its members."""

    inner: int
    close: int
    last: int
    members: Sequence[_JsonMember]


def _into_json(text: str, program: ClientProgram, name: str, entry: Server, line_end: str) -> str | None:
    """Return the text with the entry, or None for a text that is no object, or has another value in that place."""
    tokens = [*_TOKEN.finditer(text)]
    words = [token for token in tokens if not token[0].startswith(("//", "/*"))]
    if not words or words[0][0] != "{":
        return None
    root = _read_object(tokens, words[0].start())
    step = next((indent for member in root.members if (indent := _indent_of(text, member.start))), _STEP)
    # The parsers of these programs take the last of two members of one name.
    section = next((member for member in reversed(root.members) if member.name == program.section), None)
    if section is None:
        return _add_member(text, root, program.section, {name: entry}, ("", step), line_end)
    if text[section.value] != "{":
        return None
    servers = _read_object(tokens, section.value)
    outer = _indent_of(text, section.start) or ""
    present = next((member for member in reversed(servers.members) if member.name == name), None)
    if present is None:
        return _add_member(text, servers, name, entry, (outer, step), line_end)
    indent = _indent_of(text, present.start)
    value = _json_text(entry, indent, step, line_end)
    return text[: present.value] + value + text[present.end :]


def _add_member(
    text: str,
    whole: _JsonObject,
    name: str,
    value: Server | Mapping[str, Server],
    indents: tuple[str, str],
    line_end: str,
) -> str:
    """Return the text with a member at the end of the object, which begins at the indent of `indents`."""
    outer, step = indents
    last = whole.members[-1] if whole.members else None
    content = text[whole.inner : whole.close]
    in_line = bool(content.strip()) and "\n" not in content
    indent = outer + step if last is None else _indent_of(text, last.start) or outer + step
    member = f"{json.dumps(name, ensure_ascii=False)}: {_json_text(value, None if in_line else indent, step, line_end)}"
    comma = "" if last is None or "," in _without_comments(text[last.end : whole.close]) else ","
    before = text[: whole.last] if last is None else text[: last.end] + comma + text[last.end : whole.last]
    if in_line:
        return f"{before} {member}{text[whole.last :]}"
    after = text[whole.last :] if "\n" in text[whole.last : whole.close] else f"{line_end}{outer}{text[whole.close :]}"
    return f"{before}{line_end}{indent}{member}{after}"


def _json_text(value: Server | Mapping[str, Server], indent: str | None, step: str, line_end: str) -> str:
    """Return the value in one line without an indent, else in several whose first one is not indented."""
    if indent is None:
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, indent=step, ensure_ascii=False).replace("\n", line_end + indent)


def _without_comments(text: str) -> str:
    return "".join(token[0] for token in _TOKEN.finditer(text) if not token[0].startswith(("//", "/*")))


def _indent_of(text: str, place: int) -> str | None:
    """Return the white space before a place that begins its line; None if something else stands before it."""
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line if not line.strip(" \t") else None


def _read_object(tokens: Sequence[re.Match[str]], brace: int) -> _JsonObject:
    """Read the members of the object that begins at this place of the text, which is valid."""
    at = next(index for index, token in enumerate(tokens) if token.start() == brace)
    inner = last = tokens[at].end()
    members: list[_JsonMember] = []
    walk = iter(tokens[at + 1 :])
    for token in walk:
        if token[0] == "}":
            return _JsonObject(inner, token.start(), last, members)
        last = token.end()
        if token[0] != "," and not token[0].startswith(("//", "/*")):
            start, end = _read_value(walk)
            members.append(_JsonMember(_name_of(token[0]), token.start(), start, end))
            last = end
    raise ValueError("an object without an end")  # the text was read before


def _read_value(walk: Iterator[re.Match[str]]) -> tuple[int, int]:
    """Return the begin and the end of the value after a key, and go on to behind it."""
    depth, start = 0, -1
    for token in walk:
        if (token[0] == ":" and start < 0) or token[0].startswith(("//", "/*")):
            continue
        start = token.start() if start < 0 else start
        depth += (token[0] in ("{", "[")) - (token[0] in ("}", "]"))
        if depth == 0:
            return start, token.end()
    raise ValueError("a key without a value")  # the text was read before


def _name_of(key: str) -> str:
    return str(cast("object", json5.loads(key))) if key[0] in "\"'" else key


_BY_HAND = "--print prints the entry to add by hand"

Done = Literal["added", "replaced", "unchanged"]


class WrittenFile(NamedTuple):
    """What was done to the file, with the file itself behind links, and the copy of the old one, if there was one."""

    done: Done
    file: Path
    copy: Path | None = None


def write_server(file: Path, program: ClientProgram, name: str, entry: Server, *, over: bool) -> WrittenFile:
    """Add the server to the program's file, which need not exist. `over`: also in the place of another one.

    Raises `ConfigError`, and then the file is as it was: for one that cannot be read or written, that has another
    server of this name, or that changed meanwhile.
    """
    target = Path(os.path.realpath(file))
    try:
        old = _read(target, file)
        done = _plan(old, target, program, name, entry, over=over)
        if done == "unchanged":
            return WrittenFile(done, target)
        new = with_server(old or b"", target, program, name, entry)
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = None if old is None else _write_copy(target, old)
        _replace(target, old, new)
    except ConfigError as error:
        problems = [replace(each, hint=each.hint or f"correct it; {_BY_HAND}") for each in error.problems]
        raise ConfigError(problems) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError([_problem("cannot_write", f"cannot be written: {reason}", file, _BY_HAND)]) from None
    return WrittenFile(done, target, copy)


def _read(target: Path, named: Path) -> bytes | None:
    """Return the bytes of the file, or None without one. Raises `OSError`, and `ConfigError` for what is no file."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise ConfigError([_problem("no_file", "is no file", named, "--file names another one")])
    return read_bytes(target)


def _plan(old: bytes | None, file: Path, program: ClientProgram, name: str, entry: Server, *, over: bool) -> Done:
    """Return what is to be done. Raises `ConfigError` for another server of this name, unless it goes `over` it."""
    present = find_server(parse_client_file(old, file), program, name) if old and old.strip() else None
    if present == entry:
        return "unchanged"
    if present is not None and not over:
        message = f"{program.section}.{name} is there already, and is another server"
        hint = "--replace overwrites it, --name NAME adds a second one"
        raise ConfigError([_problem("exists", message, file, hint)])
    return "added" if present is None else "replaced"


def _write_copy(target: Path, old: bytes) -> Path:
    """Write the old file next to it, under a name that is free. Raises `OSError`."""
    for number in count():
        copy = target.with_name(f"{target.name}.bak{number or ''}")
        with suppress(FileExistsError):
            handle = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            _write_whole(handle, old)
            return copy
    raise AssertionError  # numbers have no end


def _replace(target: Path, old: bytes | None, new: bytes) -> None:
    """Put the new file in the place of the old one, in one step. Raises `OSError`, and `ConfigError` if it changed."""
    handle, name = mkstemp(prefix=f".{target.name}.", dir=target.parent)  # for its owner only
    try:
        _write_whole(handle, new)
        if _read(target, target) != old:
            raise ConfigError([_problem("changed", "has changed meanwhile", target, "run the command again")])
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _problem(code: str, message: str, file: Path, hint: str) -> Problem:
    return Problem(code=code, message=message, file=str(file), hint=hint)


def _write_whole(handle: int, data: bytes) -> None:
    """Write the data to the disk, and close the file."""
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
