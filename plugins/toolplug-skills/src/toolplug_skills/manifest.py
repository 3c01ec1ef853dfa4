"""The entry of a skill for clients of MCP: its whole head, and the digest and size of each file (SEP-2640)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from toolplug_skills.folders import list_files, opened_file
from toolplug_skills.skill_file import HEAD_FILE, parse_skill

MAX_FILES = 512
MAX_SKILL_BYTES = 16 * 1024 * 1024
"""Of all files of a skill: what every host must take, by the specification."""
_CHUNK = 256 * 1024


class SkillEntry(NamedTuple):
    """A skill as `skills/list` has it; `size` is that of all its files, in bytes."""

    fields: Mapping[str, object]
    size: int


class TooLarge(Exception):
    """A skill that hosts need not take; the text says why."""


def describe_skill(folder: int, name: str, base: str) -> SkillEntry:
    """Return the entry of a skill in an open folder, as its files are now.

    base: the URI of its folder. Raises `TooLarge`, `FileRefused` and `NotASkill`.
    """
    paths = list_files(folder, MAX_FILES + 1)
    if len(paths) > MAX_FILES:
        raise TooLarge(f"it has over {MAX_FILES} files")
    head, total = b"", 0
    resources: list[Mapping[str, object]] = []
    for path in paths:
        digest, size = hashlib.sha256(), 0
        with opened_file(folder, path) as file:
            while chunk := os.read(file, _CHUNK):
                size += len(chunk)
                if total + size > MAX_SKILL_BYTES:
                    raise TooLarge(f"its files have over {MAX_SKILL_BYTES >> 20} MiB")
                digest.update(chunk)
                # The head that is told of is that of the bytes with the digest.
                head += chunk if path == HEAD_FILE else b""
        total += size
        resources.append({"uri": uri_of(base, path), "digest": f"sha256:{digest.hexdigest()}", "size": size})
    # The name that the URI ends with, which clients compare.
    frontmatter = {**parse_skill(head, name, f"{name}/{HEAD_FILE}").head, "name": name}
    return SkillEntry({"uri": uri_of(base, HEAD_FILE), "frontmatter": frontmatter, "resources": resources}, total)


def uri_of(base: str, path: str) -> str:
    """Return the URI of a file of a skill."""
    return f"{base}/{quote(path)}"
