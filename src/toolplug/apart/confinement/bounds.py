"""The bounds of a provider's processes: what the kernel limits in each, and what the host counts over all of them."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Self

from toolplug.apart.confinement.cgroups import Cgroup, remove_empty
from toolplug.config.run_settings import RunSettings
from toolplug.config.units import format_size

_MIB = 1024 * 1024
MEMORY = 1024 * _MIB
"""Bytes that the processes of a confined provider may hold; an interpreter with numpy and httpx2 has 90 MiB."""
PROCESSES = 128
"""Processes and threads: a pool of 16 threads, those of a numeric library for each core, and a few programs."""
DESCRIPTORS = 256
"""Open files of each process; a system gives 1,024."""
DESCRIPTORS_OF_ALL = 16
"""Times `descriptors` that all processes may have open: what the kernel keeps for each, and counts for each user, is
little for 4,096, and not for 256 in each of 128 processes."""
DISK = 256 * _MIB
"""Bytes that `site.state_dir` holds and granted folders grow by since the start; /tmp, which is memory, has it, too."""
SIGNALS = 1024
"""Timers and queued signals: the kernel counts them for each user, and the host's user may have some 10,000."""
WATCH_S = 0.2
"""Seconds between two counts. One takes 0.1 ms; what forks as fast as it can has 500 processes in that time."""
_DISK_EVERY = 5
"""Counts of processes between two counts of files."""
MAX_FILES = 20_000
"""Files in all writable folders, or they could not be counted: 20,000 take 60 ms."""
MAX_MAPPED = _MIB
"""Bytes of the list of what one process has mapped, or it could not be counted: with torch it has 250 KB."""
UNCOUNTED = f"they have more than {MAX_FILES} files, or one that cannot be read"
"""Why folders cannot be counted, in words."""
_RESERVED = 512 * _MIB
"""Bytes that one process may reserve beyond its memory: each thread reserves 8 MiB for its stack, and holds 0.1."""
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_PARENT, _SESSION, _THREADS, _RESIDENT = 1, 3, 17, 21
"""Of the fields of /proc/PID/stat after the name."""
_QUEUES = 4
"""The field of /proc/PID/net/tcp with the bytes that wait to be sent and to be read."""
_BUFFER = Path("/proc") / "sys/net/core/wmem_default"


class Bounds(NamedTuple):
    """Numbers that a provider's processes may not exceed; None is without a bound."""

    memory: int | None = None
    processes: int | None = None
    descriptors: int | None = None
    disk: int | None = None

    @classmethod
    def of(cls, run: RunSettings) -> Self:
        """Return those of an entry: of one that is confined each has a default."""
        given = cls(run.memory, run.processes, run.descriptors, run.disk)
        usual = cls(MEMORY, PROCESSES, DESCRIPTORS, DISK) if run.confined else cls()
        return cls(*(each if own is None else own for own, each in zip(given, usual, strict=True)))


NO_BOUNDS: Bounds = Bounds()


class Use(NamedTuple):
    """What processes hold together."""

    memory: int
    processes: int


def limit_process(bounds: Mapping[str, int | None], *, alone: bool) -> None:
    """Limit this process and those that it starts, before code of others runs in it."""
    resource: Any = import_module("resource")
    for name, limit in process_limits(bounds, alone=alone).items():
        most = resource.getrlimit(getattr(resource, name))[1]
        low = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(getattr(resource, name), (low, low))


def process_limits(bounds: Mapping[str, int | None], *, alone: bool) -> Mapping[str, int]:
    """Return what the kernel limits in each process, by its name there.

    `alone`: its user namespace is its own; elsewhere the kernel would count all processes of the user.
    """
    limits = {"RLIMIT_NOFILE": bounds["descriptors"], "RLIMIT_FSIZE": bounds["disk"], "RLIMIT_CORE": 0}
    if bounds["memory"] is not None:
        limits["RLIMIT_DATA"] = bounds["memory"] + _RESERVED
    if alone:
        limits["RLIMIT_NPROC"] = bounds["processes"]
        limits["RLIMIT_SIGPENDING"] = SIGNALS
    return {name: limit for name, limit in limits.items() if limit is not None}


def measure(processes: Path, worker: int | None, most: int | None) -> Use:
    """Return what the processes in a /proc hold, or those of the worker's session and its descendants.

    Stops at more than `most` processes: what a provider starts must not be the host's work.
    """
    found = Use(0, 0)
    family = {worker}
    for number, fields in sorted(_processes(processes, None if worker is not None else most)):
        if worker is not None:
            if number != worker and int(fields[_SESSION]) != worker and int(fields[_PARENT]) not in family:
                continue
            family.add(number)
        threads = max(int(fields[_THREADS]), 1)
        found = Use(found.memory + int(fields[_RESIDENT]) * _PAGE, found.processes + threads)
        if most is not None and found.processes > most:
            break
    return found


def _processes(folder: Path, most: int | None) -> Iterator[tuple[int, list[str]]]:
    for count, name in enumerate(each for each in os.listdir(folder) if each.isdigit()):
        if most is not None and count > most + 1:
            return
        with suppress(OSError, IndexError):
            yield int(name), (folder / name / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()


def measure_sockets(network: Path, most: int) -> int:
    """Return the bytes that the sockets of a network (`/proc/PID/net`) may hold: the kernel keeps what nobody reads.

    Each counts as what it may hold, and one of TCP also as what it holds. Stops at more than `most` bytes.
    """
    total = int((network / "sockstat").read_text("ascii").split()[2]) * int(_BUFFER.read_text("ascii"))
    for name in ("tcp", "tcp6"):
        if total > most or not (network / name).exists():
            break
        for line in (network / name).read_text("ascii").splitlines()[1:]:
            total += sum(int(number, 16) for number in line.split()[_QUEUES].split(":"))
    return total


def measure_disk(folders: Sequence[Path]) -> int | None:
    """Return the bytes of all files below these folders.

    None if they cannot be counted: more than `MAX_FILES`, or below a folder that cannot be read.
    """
    total, count = 0, 0
    waiting = [*folders]
    while waiting:
        place = waiting.pop()
        try:
            if not place.is_dir():
                total += place.lstat().st_blocks * 512
                continue
            with os.scandir(place) as entries:
                for entry in entries:
                    count += 1
                    if count > MAX_FILES:
                        return None
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):  # it has just been removed
                return None
    return total


class OpenFiles(NamedTuple):
    """What processes have open: the number of their descriptors, and the bytes of files that have no name any more."""

    descriptors: int
    deleted: int


def measure_open(processes: Path, folders: Sequence[Path], most: int) -> OpenFiles | None:
    """Return what all processes in a /proc have open or mapped; deleted files count where these folders are.

    Stops at more than `most` descriptors. None if a process has mapped more than can be counted.
    """
    devices = {folder.stat().st_dev for folder in folders if folder.exists()}
    mapped = {f"{os.major(each):02x}:{os.minor(each):02x}" for each in devices}
    descriptors, deleted = 0, dict[tuple[object, int], int]()
    for process in (each for each in os.listdir(processes) if each.isdigit()):
        with suppress(OSError), os.scandir(processes / process / "fd") as entries:
            for entry in entries:
                descriptors += 1
                if descriptors > most:
                    return OpenFiles(descriptors, 0)
                with suppress(OSError):
                    found = entry.stat()
                    if not found.st_nlink and found.st_dev in devices and stat.S_ISREG(found.st_mode):
                        device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
                        deleted[device, found.st_ino] = found.st_blocks * 512
        with suppress(OSError), (processes / process / "maps").open("rb") as maps:
            text = maps.read(MAX_MAPPED + 1)
            if len(text) > MAX_MAPPED:
                return None
            for line in text.splitlines():
                if line.endswith(b"(deleted)"):
                    places, _, _, device, inode, *_ = line.decode("utf-8", "replace").split()
                    begin, _, end = places.partition("-")
                    if device in mapped:
                        deleted.setdefault((device, int(inode)), int(end, 16) - int(begin, 16))
    return OpenFiles(descriptors, sum(deleted.values()))


class ProcessWatch:
    """Starts a process in a thread that stays as long as the process, and ends it when it exceeds a bound.

    The thread stays since the kernel ends what bubblewrap runs when the thread that started it ends. `before` are the
    bytes in the folders that are not of the provider's making, `group` the control group that it runs in, if any.
    """

    def __init__(
        self,
        bounds: Bounds,
        folders: Sequence[Path],
        before: int,
        kill: Callable[[subprocess.Popen[bytes]], None],
        group: Cgroup | None = None,
    ) -> None:
        self._exceeded = ""
        self._group = group
        self._bounds = bounds
        self._folders = folders
        self._before = before
        self._kill = kill
        self._started = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._error: BaseException | None = None

    @property
    def excess(self) -> str:
        """What was too much, empty for nothing."""
        if not self._exceeded and self._group is not None and self._group.has_exceeded():
            self._exceeded = _too_much_memory(self._bounds.memory)
        return self._exceeded

    def start(
        self, start: Callable[[], subprocess.Popen[bytes]], inner: Callable[[], int | None] | None
    ) -> subprocess.Popen[bytes]:
        """Start it. `inner` waits for the id of the first process in its own namespaces. Raises what `start` does."""
        threading.Thread(target=self._run, args=(start, inner), name="toolplug-apart-watch", daemon=True).start()
        self._started.wait()
        if self._process is None:
            raise self._error or RuntimeError("no process")
        return self._process

    def _run(self, start: Callable[[], subprocess.Popen[bytes]], inner: Callable[[], int | None] | None) -> None:
        try:
            self._process = start()
        except BaseException as error:  # noqa: BLE001  raised again where it is waited for
            self._error = error
        finally:
            self._started.set()
        if self._process is not None:
            self._watch(self._process, inner)
        if self._group is not None:
            self._exceeded = self.excess  # while the group is there to be asked
            remove_empty(self._group)

    def _watch(self, process: subprocess.Popen[bytes], inner: Callable[[], int | None] | None) -> None:
        first = None if inner is None else inner()
        for count in itertools.count(1):
            with suppress(subprocess.TimeoutExpired):
                process.wait(WATCH_S)
                return
            try:
                found = self._find_exceeded(process.pid, count) if inner is None else self._find_inside(first, count)
            except (OSError, IndexError, ValueError):
                continue  # it has just ended
            if found and not self._exceeded:
                self._exceeded = found
                self._kill(process)

    def _find_exceeded(self, worker: int, count: int) -> str:
        """Return what a process that is not confined, with those that it has started, has too much of."""
        exceeded = self._compare(measure(Path("/proc"), worker, self._bounds.processes))
        return exceeded or (self._compare_disk(0) if count % _DISK_EVERY == 0 else "")

    def _find_inside(self, first: int | None, count: int) -> str:
        """Return what the processes of these namespaces have too much of; they are all of one provider."""
        processes, bounds = Path(f"/proc/{first}/root/proc"), self._bounds
        # Until its own /proc is there, it is the host's.
        if os.stat(processes).st_dev == os.stat("/proc").st_dev:
            return ""
        use = measure(processes, None, bounds.processes)
        if bounds.memory is not None:
            use = use._replace(memory=use.memory + measure_sockets(Path(f"/proc/{first}/net"), bounds.memory))
        exceeded = self._compare(use)
        if exceeded or count % _DISK_EVERY:
            return exceeded
        most = (bounds.descriptors or DESCRIPTORS) * DESCRIPTORS_OF_ALL
        opened = measure_open(processes, self._folders, most)
        if opened is None:
            return "it has mapped more files than can be counted"
        if opened.descriptors > most:
            return f"its processes have more than {most} open files"
        return self._compare_disk(opened.deleted)

    def _compare(self, use: Use) -> str:
        bounds = self._bounds
        if bounds.processes is not None and use.processes > bounds.processes:
            return f"it has more than {bounds.processes} processes and threads"
        if bounds.memory is not None and use.memory > bounds.memory:
            return _too_much_memory(bounds.memory)
        return ""

    def _compare_disk(self, deleted: int) -> str:
        if self._bounds.disk is None:
            return ""
        written = measure_disk(self._folders)
        if written is None:
            return f"its folders cannot be counted: {UNCOUNTED}"
        if written + deleted - self._before > self._bounds.disk:
            return f"it has written more than {format_size(self._bounds.disk)}"
        return ""


def _too_much_memory(bound: int | None) -> str:
    return f"its processes hold more than {format_size(bound or 0)} of memory"
