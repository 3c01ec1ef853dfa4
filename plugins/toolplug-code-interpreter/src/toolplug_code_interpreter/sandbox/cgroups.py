"""Control groups (cgroup v2) of containers: the kernel keeps the limits of all processes of one together.

They are below the group that toolplug runs in, and only where that is delegated to it: the root of a container or a
machine, or a systemd unit with `Delegate=yes` (https://systemd.io/CGROUP_DELEGATION). A group with processes cannot
have groups with limits below it, so toolplug moves the processes of its own group into one of their own, `toolplug`.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path, PurePosixPath
from secrets import token_hex

from toolplug_code_interpreter.settings import Settings

MARGIN = 1.05
"""The kernel's limit for `memory`: toolplug finds most containers that exceed it by less, and says so to the model."""
_BUBBLEWRAP = 2
"""Processes of bubblewrap in each container, which do not count as the code's."""
_CONTROLLERS = ("memory", "pids")
_OWN = "toolplug"
_PREFIX = "toolplug-containers-"
_REMOVE_S = 2.0


class NoCgroups(Exception):
    """Containers cannot have control groups; the text says why."""


class Cgroup:
    """The control group of one container."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has_exceeded(self) -> bool:
        """Return whether the kernel has ended the container because of its memory."""
        try:
            return _number(self.folder / "memory.events", "oom_kill") > 0
        except OSError:
            return False

    async def remove(self) -> None:
        """Remove the group as soon as its processes have ended, which have been killed."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _REMOVE_S
        while not _remove(self.folder) and loop.time() < until:  # noqa: ASYNC110  the kernel sends no event
            await asyncio.sleep(0.002)


class Cgroups:
    """Makes control groups for the containers of one host, in a folder that it locks as long as it lives."""

    def __init__(self, settings: Settings, parent: Path) -> None:
        self._limits = {
            "memory.max": str(int(settings.memory * MARGIN)),
            "memory.oom.group": "1",
            "pids.max": str(settings.processes + _BUBBLEWRAP),
        }
        self.folder = parent / f"{_PREFIX}{token_hex(8)}"
        starting = os.open(parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(starting, fcntl.LOCK_EX)  # so that no other host removes the folder before it is locked
            _sweep(parent)
            self.folder.mkdir()
            self._lock = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            os.close(starting)
        try:
            _enable(self.folder)
        except OSError:
            self.close()
            raise

    def create(self) -> Cgroup:
        """Make a group with the limits of the settings. Raises `OSError`."""
        folder = self.folder / token_hex(8)
        folder.mkdir()
        for name, value in self._limits.items():
            _write(folder / name, value)
        with suppress(FileNotFoundError):  # a kernel without swap
            _write(folder / "memory.swap.max", "0")
        return Cgroup(folder)

    def close(self) -> None:
        """Remove the folder; its containers have ended."""
        _clear(self.folder)
        os.close(self._lock)


def open_cgroups(settings: Settings) -> Cgroups:
    """Return what makes control groups for containers. Raises `NoCgroups`."""
    try:
        return Cgroups(settings, _find_delegated(_own_group()))
    except OSError as error:
        raise NoCgroups(f"{error.filename}: {error.strerror}") from None


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


def _sweep(parent: Path) -> None:
    """Remove what hosts that were killed have left."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
