"""Control groups (cgroup v2): the kernel keeps the limits of all processes of one together.

They are below the group that toolplug runs in, and only where that is delegated to it: the root of a container or a
machine, or a systemd unit with `Delegate=yes` (https://systemd.io/CGROUP_DELEGATION). A group with processes cannot
have groups with limits below it, so toolplug moves the processes of its own group into one of their own, `toolplug`.
"""

from __future__ import annotations

import atexit
import errno
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path, PurePosixPath
from secrets import token_hex
from time import sleep

MARGIN = 1.05
"""The kernel's limit of memory: toolplug finds most processes that exceed theirs by less, and says so."""
_ENTER = ("/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"')
"""Runs a command in a control group; takes its file of processes and the command."""
_CONTROLLERS = ("memory", "pids")
_OWN = "toolplug"
_PREFIX = "toolplug-groups-"
_OPENING = threading.Lock()
_REMOVALS, _REMOVE_S = 1_000, 0.002
"""2 s in all: what was killed ends in milliseconds."""


class NoCgroups(Exception):
    """Processes cannot have control groups here; the text says why.

    ```python
    from toolplug.apart import NoCgroups, open_cgroups

    try:
        open_cgroups().close()
    except NoCgroups as why:
        print(f"processes have no limit together: {why}")
    ```
    """


class Cgroup:
    """The control group of some processes.

    ```python
    import subprocess

    from toolplug.apart import Cgroup, remove_empty

    def run_in(group: Cgroup, *command: str) -> None:
        subprocess.run([*group.command_prefix, *command], check=False)
        remove_empty(group)
    ```
    """

    def __init__(self, folder: Path) -> None:
        self.folder: Path = folder

    @property
    def command_prefix(self) -> tuple[str, ...]:
        """The words before a command that run it in the group."""
        return (*_ENTER, str(self.folder / "cgroup.procs"))

    def has_exceeded(self) -> bool:
        """Return whether the kernel has ended the processes because of their memory."""
        try:
            return _number(self.folder / "memory.events", "oom_kill") > 0
        except OSError:
            return False

    def remove(self) -> bool:
        """Remove the group if its processes have ended; return whether it is gone."""
        return _remove(self.folder)


class Cgroups:
    """Makes control groups for the processes of one host, in a folder that it locks as long as it lives.

    ```python
    from toolplug.apart import Cgroup, Cgroups, limit_memory

    def make_group(groups: Cgroups) -> Cgroup:
        return groups.create(limit_memory(512 * 1024 * 1024) | {"pids.max": "100"})
    ```
    """

    def __init__(self, parent: Path) -> None:
        self.folder: Path = parent / f"{_PREFIX}{token_hex(8)}"
        starting = os.open(parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _lock(starting)  # so that no other host removes the folder before it is locked
            _sweep(parent)
            self.folder.mkdir()
            self._locked = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
            _lock(self._locked)
        finally:
            os.close(starting)
        try:
            _enable(self.folder)
        except OSError:
            self.close()
            raise

    def create(self, limits: Mapping[str, str]) -> Cgroup:
        """Make a group with values of its files, such as `pids.max`. Raises `OSError`."""
        folder = self.folder / token_hex(8)
        folder.mkdir()
        for name, value in limits.items():
            _write(folder / name, value)
        with suppress(FileNotFoundError):  # a kernel without swap
            _write(folder / "memory.swap.max", "0")
        return Cgroup(folder)

    def close(self) -> None:
        """Remove the folder; its processes have ended."""
        _clear(self.folder)
        os.close(self._locked)


def remove_empty(group: Cgroup) -> None:
    """Remove a group when its processes have ended, which have been killed. Blocks; the kernel sends no event."""
    for _ in range(_REMOVALS):
        if group.remove():
            return
        sleep(_REMOVE_S)


def limit_memory(size: int) -> dict[str, str]:
    """Return the limits of a group whose processes may hold so many bytes: beyond, the kernel ends all of them."""
    return {"memory.max": str(int(size * MARGIN)), "memory.oom.group": "1"}


def open_cgroups() -> Cgroups:
    """Return what makes control groups. Raises `NoCgroups`."""
    try:
        return Cgroups(_find_delegated(_own_group()))
    except OSError as error:
        raise NoCgroups(f"{error.filename}: {error.strerror}") from None


@cache
def _own_cgroups() -> Cgroups | None:
    try:
        groups = open_cgroups()
    except NoCgroups:
        return None
    atexit.register(groups.close)
    return groups


def group_of_memory(size: int | None) -> Cgroup | None:
    """Return a new group whose processes may hold so many bytes; None without a number, and where there are no groups.

    The groups of a process are removed at its end, or by the next one.
    """
    if size is None:
        return None
    with _OPENING:
        groups = _own_cgroups()
    try:
        return None if groups is None else groups.create(limit_memory(size))
    except OSError:
        return None  # the host still measures the memory


def _own_group() -> Path:
    """Return the folder of the group that this process is in. Raises `NoCgroups` and `OSError`."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if path is not None and after.startswith("cgroup2 "):
            root, mounted = before.split()[3:5]
            if PurePosixPath(path).is_relative_to(root) and ".." not in path.split("/"):
                return Path(mounted) / PurePosixPath(path).relative_to(root)
    raise NoCgroups("no cgroup v2 is mounted that toolplug is in")


def _find_delegated(own: Path) -> Path:
    """Return the group in which toolplug may make others with limits. Raises `NoCgroups` and `OSError`."""
    for group in (own, own.parent) if own.name == _OWN else (own,):
        if _has(group / "cgroup.subtree_control"):
            return group
    if not _has(own / "cgroup.controllers"):
        raise NoCgroups(f"{own} has no controllers for memory and pids")
    if (own / "cgroup.type").exists():
        if not _is_delegated(own):
            raise NoCgroups(f"{own} is not delegated to toolplug (Delegate=yes in its systemd unit)")
        (own / _OWN).mkdir(exist_ok=True)
        for process in (own / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                _write(own / _OWN / "cgroup.procs", process)
    _enable(own)
    return own


def _is_delegated(group: Path) -> bool:
    """Return whether systemd, or whatever made the container that is all that this process sees, has handed it over."""
    if os.path.ismount(group):
        return True
    for name in ("trusted.delegate", "user.delegate"):
        with suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return False


def _has(controllers: Path) -> bool:
    return set(_CONTROLLERS) <= set(controllers.read_text().split())


def _enable(group: Path) -> None:
    _write(group / "cgroup.subtree_control", " ".join(f"+{each}" for each in _CONTROLLERS))


def _write(file: Path, text: str) -> None:
    """Write to a file of a group. Raises `OSError` with the name of the file, also for what the kernel refuses."""
    opened = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(opened, text.encode())
    except OSError as error:
        error.filename = str(file)
        raise
    finally:
        os.close(opened)


def _lock(file: int, *, wait: bool = True) -> None:
    fcntl = import_module("fcntl")  # a system without it has no control groups
    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def _sweep(parent: Path) -> None:
    """Remove what hosts that were killed have left."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _lock(file, wait=False)
                _clear(folder)
            finally:
                os.close(file)


def _clear(folder: Path) -> None:
    for each in (*(found for found in folder.iterdir() if found.is_dir()), folder):
        _remove(each)


def _remove(folder: Path) -> bool:
    """Return whether the group is not there; removes it if it has no processes."""
    try:
        folder.rmdir()
    except OSError as error:
        return error.errno == errno.ENOENT
    return True


def _number(file: Path, name: str) -> int:
    fields = dict(line.split() for line in file.read_text().splitlines())
    return int(fields.get(name, 0))
