"""`SKILL.md`: the head between two lines `---`, and the text after it (agentskills.io/specification)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from toolplug.config import Document, Value, parse_document
from toolplug.errors import ConfigError
from toolplug.foreign import cleaned_description

HEAD_FILE = "SKILL.md"
MAX_NAME = 64
MAX_DESCRIPTION = 1024
"""Characters, by the specification."""

_NO_NAME = re.compile(r"[^a-z0-9]+")
_END = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)
_KEY = re.compile(r"[A-Za-z][\w-]*")
_NOT_PLAIN = "\"'|>[{&*!#"
"""Characters that begin a value which is quoted, a block, a collection or a reference."""


class SkillFile(NamedTuple):
    """What a `SKILL.md` says: `head` is all of its head, `text` what follows it; `tools` are named in the head.

    `notes`: what is not by the specification and costs nothing, each as `place: what; the fix`.
    """

    name: str
    description: str
    tools: tuple[str, ...]
    text: str
    head: Mapping[str, Value]
    notes: tuple[str, ...]


class NotASkill(Exception):
    """A `SKILL.md` that does not parse; the text is `place: what is wrong; the fix`."""


def parse_skill(data: bytes, folder: str, shown: str) -> SkillFile:
    """Return what a `SKILL.md` says. Raises `NotASkill`.

    folder: the name of its folder, which should be that of the skill, and is where the head has none
    shown: the path of the file in messages
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise NotASkill(f"{shown}:{line}: it is not UTF-8; save it as UTF-8") from None
    first, _, rest = text.partition("\n")
    end = _END.search(rest)
    if first.rstrip() != "---" or end is None:
        raise NotASkill(f"{shown}:1: it has no head; begin it with lines `---`, `name:`, `description:` and `---`")
    document = _head(rest[: end.start()], shown)
    head = document.value
    name, notes = _name(document, folder, shown)
    description = head.get("description")
    if not isinstance(description, str) or not description.strip():
        raise NotASkill(_at(document, "description", shown, "no description; say what it does and when to use it"))
    if len(description) > MAX_DESCRIPTION:
        said = (
            f"the description has {len(description)} characters; the first {MAX_DESCRIPTION} are used, make it shorter"
        )
        notes.append(_at(document, "description", shown, said))
    described = cleaned_description(" ".join(description[:MAX_DESCRIPTION].split()))
    return SkillFile(name, described, _tools(head), rest[end.end() :].lstrip("\r\n"), head, tuple(notes))


def _name(document: Document, folder: str, shown: str) -> tuple[str, list[str]]:
    """Return the name: that of the head, else of the folder, as the specification writes names. Raises `NotASkill`."""
    given = document.value.get("name")
    stated = given if isinstance(given, str) else ""
    name = _legal(stated) or _legal(folder)
    rule = f"a name has at most {MAX_NAME} of a-z, 0-9 and single hyphens"
    if not name:
        raise NotASkill(_at(document, "name", shown, f"{rule}, and is {given!r}; give it one, to its folder too"))
    if name != stated:
        said = "no name" if given is None else f"{rule}, and is {given!r:.200}"
        return name, [_at(document, "name", shown, f"{said}; {name!r} is taken, write that")]
    if name != folder:
        return name, [
            _at(document, "name", shown, f"the skill {name!r} is in the folder {folder!r}; name both the same")
        ]
    return name, []


def _legal(text: str) -> str:
    return _NO_NAME.sub("-", text.lower()).strip("-")[:MAX_NAME].rstrip("-")


def _head(head: str, shown: str) -> Document:
    """Return the head as YAML. Values with a colon, which many write without quotes, are read as they are meant."""
    # A line before it, so that positions are those of the file.
    try:
        return parse_document(b"\n" + head.encode(), file=shown)
    except ConfigError as error:
        quoted = "\n".join(map(_quote, head.splitlines()))
        try:
            return parse_document(b"\n" + quoted.encode(), file=shown)
        except ConfigError:
            problem = error.problems[0]
            hint = f" ({problem.hint})" if problem.hint else ""
            raise NotASkill(f"{shown}:{problem.line or 1}: {problem.message}{hint}") from None


def _quote(line: str) -> str:
    """Return a line of the head with its plain value in quotes; any other line as it is."""
    key, colon, value = line.partition(": ")
    text = value.strip()
    if not colon or not _KEY.fullmatch(key) or not text or text[0] in _NOT_PLAIN:
        return line
    return f"{key}: {json.dumps(text)}"


def _at(document: Document, key: str, shown: str, what: str) -> str:
    line = document.key_mark((key,)).line if key in document.value else 1
    return f"{shown}:{line}: {what}"


def _tools(head: Mapping[str, Value]) -> tuple[str, ...]:
    """Return the names in `allowed-tools`, without what is in brackets: `Bash(git:*) Read` names Bash and Read."""
    given = head.get("allowed-tools")
    texts: Sequence[Value] = given if isinstance(given, list) else [given]
    found = " ".join(text for text in texts if isinstance(text, str))
    return tuple(dict.fromkeys(re.findall(r"[\w.:/-]+", re.sub(r"\([^()]*\)", " ", found))))
