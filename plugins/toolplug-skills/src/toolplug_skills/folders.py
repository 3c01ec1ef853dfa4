"""Files below a folder, opened by descriptor: each part of a path from the one before, and no link is followed.

A path that is checked and then opened can have become another one in between.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

MAX_DEPTH = 8
"""Folders in the path of a file of a skill; the specification advises one."""
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# A pipe would keep the opener waiting for its other end.
_FILE = os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)

_COMPILED = "__pycache__"


class FileRefused(Exception):
    """A file that is not read; the text says why."""


def is_supported() -> bool:
    """Return whether this system opens files below a descriptor: Linux and macOS do."""
    return os.open in os.supports_dir_fd and bool(_NO_LINK)


@contextmanager
def opened_folder(path: Path) -> Generator[int]:
    """Open a folder that the operator names, which may be a link, and give its descriptor. Raises `OSError`."""
    folder = os.open(path, _FOLDER)
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def folder_below(folder: int, name: str) -> Generator[int]:
    """Open a folder in another one and give its descriptor. Raises `OSError`, also for a link."""
    below = os.open(name, _FOLDER | _NO_LINK, dir_fd=folder)
    try:
        yield below
    finally:
        os.close(below)


def read_below(folder: int, path: str, most: int) -> bytes:
    """Return the bytes of a file below an open folder. Raises `FileRefused` for whatever is not a file there."""
    with opened_file(folder, path) as file, os.fdopen(file, "rb", closefd=False) as opened:
        data = opened.read(most + 1)
    if len(data) > most:
        raise FileRefused(f"{path!r} is over {most // 1024} KiB")
    return data


@contextmanager
def opened_file(folder: int, path: str) -> Generator[int]:
    """Open a file below an open folder and give its descriptor. Raises `FileRefused` for whatever is no file there.

    Hidden files and what Python has compiled are none of a skill: its folder may have those of an editor, or of git.
    """
    parts = path.removeprefix("./").split("/")  # as instructions link their files
    if not all(_is_served(part) and part and "\0" not in part for part in parts) or len(parts) > MAX_DEPTH:
        raise FileRefused(f"{path!r} is no path of a file of the skill; write it as it is listed, such as a/b.md")
    current = os.dup(folder)
    try:
        for part in parts[:-1]:
            below = os.open(part, _FOLDER | _NO_LINK, dir_fd=current)
            os.close(current)
            current = below
        file = os.open(parts[-1], _FILE, dir_fd=current)
    # A name that no file can have is a `ValueError`.
    except (OSError, ValueError) as error:
        # One answer for what is not there and for a link to elsewhere.
        raise FileRefused(f"there is no file {path!r}") from error
    finally:
        os.close(current)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise FileRefused(f"there is no file {path!r}")
        yield file
    finally:
        os.close(file)


def list_files(folder: int, most: int) -> list[str]:
    """Return the paths of the files of a skill below an open folder, at most so many."""
    return list(islice((path for path, is_served in walk_below(folder) if is_served), most))


def walk_below(folder: int, before: str = "", depth: int = MAX_DEPTH) -> Iterator[tuple[str, bool]]:
    """Yield the path of each file below an open folder, and whether it is served: links and hidden ones are not.

    What is below a hidden folder, or one of what Python has compiled, is not looked at.
    """
    with os.scandir(folder) as entries:
        listed = sorted(((entry.name, entry) for entry in entries), key=_name)
    for name, entry in listed:
        is_folder = entry.is_dir(follow_symlinks=False)
        if not _is_served(name) or not (is_folder or entry.is_file(follow_symlinks=False)):
            yield before + name, False
        elif not is_folder:
            yield before + name, True
        elif depth > 1:
            try:
                with folder_below(folder, name) as below:
                    yield from walk_below(below, f"{before}{name}/", depth - 1)
            except OSError:  # it went, or may not be read: then it has no files for us
                continue


def _is_served(name: str) -> bool:
    """Return whether a file of this name can be one of a skill. A name that is no text has no URI."""
    # What the system could not decode is in surrogates.
    return (
        not name.startswith(".")
        and name != _COMPILED
        and not any("\ud800" <= character <= "\udfff" for character in name)
    )


def _name(listed: tuple[str, object]) -> str:
    return listed[0]
