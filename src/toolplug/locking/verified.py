"""Compiled files, compared with their sources once: compiling again is slow, so that what was right is remembered.

What this process has imported already is not compared: it is toolplug itself and what that needs, which do the
comparing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolplug.locking import compiled
from toolplug.locking.compiled import check_compiled
from toolplug.locking.files import COMPILED, PackageFiles, hash_file
from toolplug.locking.search_path import SearchPath

_ANSWER_S = 600.0
"""Seconds for the compiled files of one environment. A thousand take five."""


class VerifiedCompiled:
    """The compiled files that were right, by path, with the digests of them and of their sources, kept in a file.

    The file is the host's own, as its store: who can write it needs no compiled file.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._right: dict[str, str] = {}
        with suppress(OSError, ValueError):
            found: Any = json.loads(file.read_bytes())
            if isinstance(found, dict):
                self._right = {str(path): str(digests) for path, digests in found.items()}  # pyright: ignore
        self._changed = False

    def wrong(self, path: SearchPath, files: PackageFiles) -> Iterator[str]:
        """Yield each compiled file of a package that is wrong, with what is wrong with it."""
        asked: list[tuple[str, str, int]] = []
        digests: list[str] = []
        for name, source in _loaded_files(path, files):
            both = f"{hash_file(str(files.root / name))} {files.digests[source]}"
            if self._right.get(str(files.root / name)) != both:
                asked.append((str(files.root / name), str(files.root / source), path.level))
                digests.append(both)
        for (name, _, _), both, what in zip(asked, digests, _check(path, asked), strict=True):
            if what:
                yield f"{Path(name).relative_to(files.root)} {what}"
            else:
                self._right[name] = both
                self._changed = True

    def save(self) -> None:
        """Keep what was right, where the folder can be written."""
        if not self._changed:
            return
        part = self._file.with_name(f"{self._file.name}.part")
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            part.write_text(json.dumps(self._right), "utf-8", newline="\n")
            part.replace(self._file)
            self._changed = False


def _loaded_files(path: SearchPath, files: PackageFiles) -> Iterator[tuple[str, str]]:
    """Yield the compiled files that the interpreter would load, with their sources, but for what it has loaded."""
    ending = f".{path.tag}{f'.opt-{path.level}' if path.level else ''}.pyc"
    for name in files.compiled:
        folder, _, own = name.rpartition(f"{COMPILED}/")
        source = f"{folder}{own.removesuffix(ending)}.py"
        if not own.endswith(ending) or source not in files.digests:
            continue
        module = source.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if path.python or module not in sys.modules:
            yield name, source


def _check(path: SearchPath, asked: Iterable[tuple[str, str, int]]) -> list[str]:
    """Compare with this interpreter, or with the other one if its version is another; it imports nothing of its own."""
    asked = list(asked)
    if not asked:
        return []
    if path.tag == sys.implementation.cache_tag:
        return [check_compiled(*each) for each in asked]
    command = [path.python, "-I", "-S", str(Path(compiled.__file__))]
    try:
        done = subprocess.run(
            command, input=json.dumps(asked).encode(), capture_output=True, timeout=_ANSWER_S, check=True
        )
        answer: list[str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return ["cannot be compared with its source"] * len(asked)
    return answer
