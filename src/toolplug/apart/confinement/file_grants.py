"""The files that a confined provider may use: found and opened when it is started, and the same ones ever after."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from toolplug.config.run_settings import split_file
from toolplug.errors import InvalidDefinition

_KERNEL = ("/proc", "/sys", "/dev")
"""Folders of the kernel: what is in them acts on the whole machine."""


class FileGrant(NamedTuple):
    """A word of `files`: `path` is absolute, as the operator wrote it; the provider finds it there."""

    word: str
    path: str
    writable: bool


class OpenedFile:
    """A granted file or folder. Its links were followed once; what is put in its place later is not granted.

    The descriptor only holds it: it cannot be read through it, and no process inherits it.
    """

    def __init__(self, grant: FileGrant) -> None:
        self.grant: FileGrant = grant
        self._descriptor = os.open(grant.path, os.O_PATH | os.O_CLOEXEC)
        status = os.fstat(self._descriptor)
        self.identity: tuple[int, int] = (status.st_dev, status.st_ino)

    @property
    def source(self) -> str:
        """Where it is now, also if it was renamed."""
        return os.readlink(f"/proc/self/fd/{self._descriptor}")

    def close(self) -> None:
        """Let go of it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def list_grants(words: Iterable[str], config_dir: Path) -> list[FileGrant]:
    """Return the grants of `files`, outer folders first.

    Raises `InvalidDefinition` for one that cannot be granted, `at` its word.
    """
    grants: list[FileGrant] = []
    for word in words:
        given, writable = split_file(word)
        path = os.path.abspath(config_dir / Path(given).expanduser())
        real = os.path.realpath(path)
        for each in (path, real):
            if each == "/" or any(each == folder or each.startswith(f"{folder}/") for folder in _KERNEL):
                message = f"{word}: {each} cannot be granted; name the folder with the data of the provider"
                raise InvalidDefinition(message, at=word)
        if not os.path.lexists(path) or not os.path.exists(real):
            raise InvalidDefinition(f"{word}: there is no {path}; make it, or correct the path", at=word)
        grants.append(FileGrant(word, path, writable))
    return sorted([*grants, *_folders_between(grants)], key=lambda grant: grant.path.count("/"))


def _folders_between(grants: Sequence[FileGrant]) -> Iterator[FileGrant]:
    """Yield the folders from a writable grant to one in it: what is mounted cannot be moved away for a link.

    A link there would be followed at the next start. Raises `InvalidDefinition` for one that there is now.
    """
    modes = {Path(grant.path): grant for grant in grants}
    for inner in grants:
        for part in Path(inner.path).parents:
            outer = next((modes[each] for each in part.parents if each in modes), None)
            if part in modes or outer is None or not outer.writable:
                continue
            if part.is_symlink():
                message = f"{inner.word}: {part} is a link in {outer.path}, which is writable; grant where it leads to"
                raise InvalidDefinition(message, at=inner.word)
            modes[part] = FileGrant(outer.word, str(part), True)
            yield modes[part]


def open_grants(grants: Sequence[FileGrant]) -> list[OpenedFile]:
    """Open all of them. Raises `InvalidDefinition` for one that is gone."""
    opened: list[OpenedFile] = []
    for grant in grants:
        try:
            opened.append(OpenedFile(grant))
        except OSError as error:
            for each in opened:
                each.close()
            raise InvalidDefinition(f"{grant.word}: {grant.path}: {error.strerror}") from None
    return opened
