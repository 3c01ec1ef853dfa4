"""The files of skills for the lock: the digest of each file that is served, and the names of what is not."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from toolplug.errors import InvalidDefinition
from toolplug_skills.folders import FileRefused, folder_below, opened_file, opened_folder, walk_below
from toolplug_skills.skill_file import HEAD_FILE

MAX_LOCKED_FILES = 50_000
"""Of all skills of an entry: five for each of the most skills that it may have."""
MAX_LOCKED_BYTES = 1024 * 1024 * 1024
"""Of all files of these: hashing so much takes a second of a start."""
NOT_SERVED = "not served"
"""In place of a digest: a link, a hidden file or what is no file. Nobody reads it, but it was put there."""
_CHUNK = 256 * 1024


def hash_skills(folders: Sequence[str], base: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of all skills by its path, which begins as the folder is written.

    Raises `InvalidDefinition` for a folder that cannot be read, and for more than a lock takes.
    """
    found: dict[str, str] = {}
    left = MAX_LOCKED_BYTES
    for folder in folders:
        try:
            with opened_folder(base / folder) as opened:
                for shown, skill in _open_skills(opened, Path(folder).as_posix()):
                    left = _hash_skill(found, shown, skill, left)
        except OSError as error:
            raise InvalidDefinition(f"folders: {folder!r} cannot be read: {error.strerror}") from None
    return found


def _open_skills(opened: int, folder: str) -> Iterator[tuple[str, int]]:
    """Yield the path and the descriptor of each skill in an open folder: of itself, or of the folders in it."""
    names = os.listdir(opened)
    if HEAD_FILE in names:
        yield folder, opened
        return
    for name in sorted(each for each in names if not each.startswith(".")):
        # A file, a link, or a folder that may not be read: no skill is served from it.
        with suppress(OSError), folder_below(opened, name) as below:
            if HEAD_FILE in os.listdir(below):
                yield f"{folder}/{name}", below


def _hash_skill(found: dict[str, str], shown: str, skill: int, left: int) -> int:
    """Add the files of a skill, and return how many bytes of files may still come."""
    for path, is_served in walk_below(skill):
        text = NOT_SERVED
        if is_served:
            digest = hashlib.sha256()
            # One that cannot be opened is not served either.
            with suppress(FileRefused), opened_file(skill, path) as file:
                while chunk := os.read(file, _CHUNK):
                    digest.update(chunk)
                    left -= len(chunk)
                    if left < 0:
                        raise InvalidDefinition(f"folders: skills with over {MAX_LOCKED_BYTES >> 20} MiB have no lock")
                text = digest.hexdigest()
        # A name that is no text has none in the lock, but stands there.
        found[os.fsencode(f"{shown}/{path}").decode("utf-8", "backslashreplace")] = text
        if len(found) > MAX_LOCKED_FILES:
            raise InvalidDefinition(f"folders: skills with over {MAX_LOCKED_FILES} files have no lock")
    return left
