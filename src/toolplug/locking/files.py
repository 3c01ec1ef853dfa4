"""The files of an installed distribution, hashed again: its RECORD is the word of who wrote the package.

Files that no RECORD lists belong to a distribution where they are in its packages, since an import finds them there.
"""

from __future__ import annotations

import binascii
import csv
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import Distribution
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from toolplug.errors import ToolplugError

MAX_FILES = 50_000
"""Of one distribution. The largest known one (a toolkit for machine learning) has 12,000."""
PIECE = 4 * 1024 * 1024
"""Bytes that are hashed at once: a library of 100 MB is not held in memory."""

COMPILED = "__pycache__"
_OF_INSTALLER = frozenset(("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json"))
"""In the metadata: what the installer writes, and what differs between two installers of one wheel."""
_SCRIPTS = re.compile(r"(\.\./)+(bin|Scripts)/")
"""Programs begin with the path of their interpreter, and nobody imports them."""
_SUFFIXES = (".py", ".pyc", *EXTENSION_SUFFIXES)


class FilesUnreadable(ToolplugError):
    """The files of a distribution cannot be hashed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageFiles:
    """The files of a distribution by their path below `root`, with their SHA-256 in hexadecimal.

    `unlisted` are those that its RECORD does not have, `wrong` those that differ from it; an editable one has neither.
    `tops` are the names that are imported, `compiled` the compiled files next to the sources.
    """

    root: Path
    digests: Mapping[str, str]
    unlisted: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    tops: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The SHA-256 of all names and contents."""
        total = hashlib.sha256()
        for path, digest in sorted(self.digests.items()):
            total.update(f"{path}\0{digest}\n".encode("utf-8", "surrogatepass"))
        return total.hexdigest()


class _FolderContent(NamedTuple):
    files: dict[str, str]
    """Path below the root → path to open."""
    compiled: list[str]


def read_record(distribution: Distribution) -> Mapping[str, str] | None:
    """Return the hashes of RECORD by path, as it writes them; None for a distribution without one."""
    text = distribution.read_text("RECORD")
    if text is None:
        return None
    rows = (row for row in csv.reader(text.splitlines()) if row)
    return {row[0].replace("\\", "/"): row[1] if len(row) > 1 else "" for row in rows}


def hash_installed(root: Path, record: Mapping[str, str], others: ForeignFiles) -> PackageFiles:
    """Hash the files that RECORD lists, and those next to them. Raises `FilesUnreadable`."""
    listed = {path for path in record if _counts(path)}
    found = _FolderContent({path: os.path.join(root, path) for path in listed if "/" not in path}, [])
    for folder, deep in _folders(root, listed):
        _walk(os.path.join(root, folder), folder, found, deep=deep)
    found.compiled.extend(_compiled_beside(root, [path for path in listed if "/" not in path]))
    shared = {top for path in listed if (top := _namespace_of(path, listed))}
    strays = [path for top in shared for path in others.strays(root, top)]
    here = {path for path in (*found.files, *strays) if _counts(path)}
    unlisted = {path for path in here - listed if not others.has(path, _package_of(path, listed))}
    digests: dict[str, str] = {}
    for path in sorted((here & listed) | unlisted | {each for each in listed - here if each.startswith("..")}):
        digests[path] = hash_file(os.path.join(root, path))
    wrong = [path for path in listed & digests.keys() if not _agrees(record[path], digests[path])]
    return PackageFiles(
        root=root,
        digests={path: digest for path, digest in digests.items() if digest},
        unlisted=tuple(sorted(unlisted)),
        wrong=tuple(sorted(wrong)),
        tops=tuple(sorted({name for path in listed if (name := top_of(path))})),
        compiled=tuple(sorted(found.compiled)),
    )


def hash_folders(places: Iterable[Path], metadata: Mapping[str, str]) -> PackageFiles:
    """Hash the packages and modules at these places: the working copy of an editable distribution.

    `metadata` are the digests of what its metadata say. Raises `FilesUnreadable`.
    """
    digests, compiled, tops, root = dict(metadata), list[str](), list[str](), Path()
    for place in places:
        root, found = place.parent, _FolderContent({}, [])
        tops.append(place.name.partition(".")[0])
        if place.is_dir():
            _walk(str(place), place.name, found, deep=True)
        else:
            found.files[place.name] = str(place)
        digests |= {path: hash_file(full) for path, full in found.files.items()}
        compiled += found.compiled
    return PackageFiles(root=root, digests=digests, tops=tuple(tops), compiled=tuple(sorted(compiled)))


def hash_file(path: str) -> str:
    """Return the SHA-256 of a file; that of where it leads for a link to a folder, empty for none.

    Raises `FilesUnreadable`.
    """
    try:
        if os.path.islink(path) and os.path.isdir(path):
            return hashlib.sha256(b"link\0" + os.fsencode(os.readlink(path))).hexdigest()
        with open(path, "rb", buffering=0) as file:
            total = hashlib.sha256()
            while piece := file.read(PIECE):
                total.update(piece)
            return total.hexdigest()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise FilesUnreadable(f"{path} cannot be read: {error.strerror}") from None


def top_of(path: str) -> str:
    """Return the name under which a path below a folder of packages is imported; empty for what nobody imports."""
    first, _, rest = path.partition("/")
    if rest:
        return first if first.isidentifier() and first != COMPILED and path.endswith(_SUFFIXES) else ""
    return first.partition(".")[0] if first.endswith(_SUFFIXES) else ""


class ForeignFiles:
    """Which files of a folder other distributions list; their RECORDs are read once somebody asks."""

    def __init__(self, distributions: Iterable[Distribution]) -> None:
        self._distributions = distributions
        self._records: list[frozenset[str]] | None = None
        self._tops: frozenset[str] = frozenset()
        self._strays: dict[tuple[Path, str], tuple[str, ...]] = {}

    def has(self, path: str, package: str = "") -> bool:
        """Return whether a RECORD has this path; of a package that is somebody's own, one that has the package, too.

        Whoever lists a file in the package of another distribution must not make it one of its own.
        """
        first = f"{package}/__init__.py"
        return any(path in record and (not package or first in record) for record in self._read())

    def has_top(self, name: str) -> bool:
        """Return whether a RECORD has a file, or a file in a folder, of this name."""
        self._read()
        return name in self._tops

    def strays(self, root: Path, top: str) -> tuple[str, ...]:
        """Return the files below a folder that several distributions share which no RECORD has."""
        if (root, top) not in self._strays:
            found: list[str] = []
            for folder, inner, names in os.walk(root / top):
                inner[:] = sorted(name for name in inner if name != COMPILED)
                below = Path(folder).relative_to(root).as_posix()
                found += [path for name in sorted(names) if not self.has(path := f"{below}/{name}")]
                if len(found) > MAX_FILES:
                    raise FilesUnreadable(f"{root / top} has more than {MAX_FILES} files that no RECORD lists")
            self._strays[root, top] = tuple(found)
        return self._strays[root, top]

    def _read(self) -> list[frozenset[str]]:
        if self._records is None:
            self._records = [frozenset(read_record(each) or ()) for each in self._distributions]
            self._tops = frozenset(path.partition("/")[0] for record in self._records for path in record)
        return self._records


def _namespace_of(path: str, listed: set[str]) -> str:
    """Return the folder at the top of a path, if it is one that other distributions may share; else empty."""
    top, below, _ = path.partition("/")
    return top if below and top_of(path) and f"{top}/__init__.py" not in listed else ""


def _package_of(path: str, listed: set[str]) -> str:
    """Return the outermost package of the distribution that a path is in; empty for none."""
    parts = path.split("/")[:-1]
    tops = ("/".join(parts[:length]) for length in range(1, len(parts) + 1))
    return next((each for each in tops if f"{each}/__init__.py" in listed), "")


def _counts(path: str) -> bool:
    """Return whether the content of a file says what the package is."""
    folder, _, name = path.rpartition("/")
    if folder.endswith(".dist-info") and name in _OF_INSTALLER:
        return False
    return not (_SCRIPTS.match(path) or f"/{COMPILED}/" in f"/{path}" or path.startswith("/"))


def _folders(root: Path, listed: set[str]) -> Iterator[tuple[str, bool]]:
    """Yield the folders in which files of the distribution are, and whether all below a folder is its own.

    A folder without `__init__.py` may be shared with others, as that of a namespace.
    """
    own: set[str] = set()
    for folder in sorted({path.rpartition("/")[0] for path in listed if not path.startswith("..")} - {""}):
        if any(folder == each or folder.startswith(f"{each}/") for each in own):
            continue
        parts = PurePosixPath(folder).parts
        tops = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
        whole = next((each for each in tops if f"{each}/__init__.py" in listed or each.endswith(".dist-info")), None)
        if whole is None:
            yield folder, False
        else:
            own.add(whole)
            yield whole, True


def _compiled_beside(root: Path, modules: Sequence[str]) -> Iterator[str]:
    """Yield the compiled files of modules that are in no package; those of others are in the same folder."""
    names = {path.removesuffix(".py") for path in modules if path.endswith(".py")}
    folder = root / COMPILED
    if names and folder.is_dir():
        yield from (f"{COMPILED}/{name}" for name in os.listdir(folder) if name.partition(".")[0] in names)


def _walk(folder: str, below: str, found: _FolderContent, *, deep: bool) -> None:
    """Add the files of a folder, and of all below it if `deep`; a link to a folder is one file."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise FilesUnreadable(f"{folder} cannot be read: {error.strerror}") from None
    if len(found.files) + len(entries) > MAX_FILES:
        raise FilesUnreadable(f"{folder} is of a distribution with more than {MAX_FILES} files")
    for entry in entries:
        path = f"{below}/{entry.name}"
        if not entry.is_dir(follow_symlinks=False):
            found.files[path] = entry.path
        elif entry.name == COMPILED:
            found.compiled.extend(f"{path}/{name}" for name in os.listdir(entry.path) if name.endswith(".pyc"))
        elif deep:
            _walk(entry.path, path, found, deep=True)


def _agrees(recorded: str, digest: str) -> bool:
    """Return whether RECORD has this hash of a file; one that it has no hash of, or another kind of, is not judged."""
    kind, _, value = recorded.partition("=")
    if kind != "sha256":
        return True
    alphabet = value.replace("-", "+").replace("_", "/")
    return _decode(alphabet) == digest


def _decode(text: str) -> str:
    try:
        return binascii.a2b_base64(text + "=" * (-len(text) % 4)).hex()
    except ValueError:
        return ""
