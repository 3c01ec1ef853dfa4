"""Reloads of a host that serves: on SIGHUP, and with `--reload` after changes to the configuration or the code."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import NamedTuple, TypeAlias

from toolplug.cli.options import operator
from toolplug.cli.output import problems_in
from toolplug.errors import ToolplugError
from toolplug.host.file.settings import changed_sections
from toolplug.host.host import Host
from toolplug.packages.loading import file_of_module
from toolplug.providers.registry import FunctionRegistry

_LOG = logging.getLogger("toolplug.cli.serve")


async def can_restart(file: Path) -> bool:
    """Check the configuration and the code in a child process, log the problems, and return whether there are none."""
    # `-B` as in `serve`: a compiled module counts as current if its source was saved again in the same second at the
    # same size.
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-B", "-m", "toolplug.cli.main", "check", "-c", str(file), stdout=PIPE, stderr=STDOUT
    )
    try:
        output, _ = await child.communicate()
    except asyncio.CancelledError:
        child.kill()
        await child.wait()
        raise
    if child.returncode == 0:
        return True
    _LOG.error("the changed code was not taken up: %s", output.decode(errors="replace").strip())
    return False


def replace_process(port: int) -> None:
    """Restart with the same command line, on the same port (the last `--port` of a command line applies)."""
    sys.stdout.flush()
    sys.stderr.flush()
    # The same process id, which supervisors and terminals know.
    command = [argument for argument in sys.orig_argv[1:] if argument != "--open"]  # the page is open
    if "dev" in command:
        command.append("--no-open")
    os.execv(sys.executable, [sys.executable, *command, "--port", str(port)])


LOOK_EVERY_MS = 1_000
"""Milliseconds between comparisons of files without an event: finds changes from before the watcher runs."""
CLOCK_STEP_NS = 10_000_000
"""How far the clock that stamps files may be behind."""

Marks: TypeAlias = dict[Path, tuple[int, int]]
"""The modification time in nanoseconds and the size in bytes of every file."""


class Watched(Enum):
    """The subject of a burst of changes: the configuration only, or code too."""

    FILE = "file"
    CODE = "code"


async def changes(file: Path, running: Callable[[], ProviderCode], *, since_ns: int) -> AsyncGenerator[Watched]:
    """Yield once for every burst of changes of the file (an absolute path) and of the providers' code.

    `running` is called again after each burst, since a reload changes it. Watches the folders of files, because editors
    replace files. Files saved after `since_ns`, a time before anything was read, are changes too. Files of providers
    count as the configuration: a reload is enough for them.
    """
    awatch = import_module("watchfiles").awatch  # of the extra `server`: `serve --stdio` has its reloads without
    seen: Marks = {}
    logged = ""
    while True:
        code = running()
        files = {file, *code.files}
        folders = {folder for name in code.packages for folder in _folders(name)}
        # The older marks win: what has changed while the last burst was handled is found by the first comparison.
        seen = _marks(files, folders) | seen
        if since_ns:
            now_ns, first_ns = time.time_ns(), since_ns - CLOCK_STEP_NS  # one from the future has a wrong clock
            late = {path for path, (changed_ns, _) in seen.items() if first_ns <= changed_ns <= now_ns}
            since_ns = 0
            if late:
                yield Watched.FILE if late <= files else Watched.CODE
                continue
        watched = ", ".join(map(str, (file, *sorted({*code.files, *folders} - {file}))))
        # Each save begins a new round, mostly of the same files.
        _LOG.log(logging.DEBUG if watched == logged else logging.INFO, "watching %s", watched)
        logged = watched
        changed = set[Path]()
        parents = {path.parent for path in files}
        async for _ in awatch(*parents, *folders, rust_timeout=LOOK_EVERY_MS, yield_on_timeout=True):
            now = _marks(files, folders)
            changed = {path for path in seen | now if seen.get(path) != now.get(path)}
            seen = now
            if changed:
                break
        yield Watched.FILE if changed <= files else Watched.CODE


class ProviderCode(NamedTuple):
    """The code of the running providers: top-level packages, and files that the configuration names."""

    packages: frozenset[str]
    files: frozenset[Path]


def provider_code(registry: FunctionRegistry) -> ProviderCode:
    """Return the code of the running providers."""
    modules = {type(generation.provider).__module__.partition(".")[0] for generation in registry.running().values()}
    files = {name: file for name in modules if (file := file_of_module(name)) is not None}
    return ProviderCode(frozenset(modules - files.keys()), frozenset(files.values()))


def _folders(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(folder).resolve() for folder in spec.submodule_search_locations or ()] if spec is not None else []


def _marks(files: Iterable[Path], folders: Collection[Path]) -> Marks:
    found: Marks = {}
    for path in (*files, *(code for folder in folders for code in folder.rglob("*.py"))):
        try:
            stat = path.stat()
        except OSError:
            continue  # the file is just being replaced
        found[path] = (stat.st_mtime_ns, stat.st_size)
    return found


class Reloading:
    """Reloads the configuration on request, one reload at a time; an invalid configuration changes nothing."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._wanted = asyncio.Event()

    def want(self) -> None:
        """Request a reload; further requests before it begins have no effect."""
        self._wanted.set()

    async def run(self) -> None:
        """Reload at each request until cancelled."""
        while True:
            await self._wanted.wait()
            # Before the reload: a request during it leads to one more.
            self._wanted.clear()
            before = self._host.settings
            try:
                done = await self._host.reload(by=operator())
            except (ToolplugError, OSError) as error:
                for problem in problems_in(error):
                    _LOG.error("configuration not reloaded: %s", problem)
            except Exception:  # noqa: BLE001  an error in a package's code must not end the service
                _LOG.exception("configuration not reloaded")
            else:
                kept = [key for key in done.kept if key in self._host.entry_keys]
                parts = ((done.started, "started"), (done.stopped, "stopped"), (kept, "unchanged"))
                changes = [f"{', '.join(keys)} {what}" for keys, what in parts if keys] or ["no providers"]
                if sections := changed_sections(before, self._host.settings):
                    changes.append(f"other sections that changed: {', '.join(sections)}")
                _LOG.info("configuration reloaded: %s", "; ".join(changes))
