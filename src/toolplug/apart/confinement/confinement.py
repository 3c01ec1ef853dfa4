"""What `run` of an entry means on this machine: confined by bubblewrap, with bounds, or neither, and why.

A confined process has namespaces of its own, and a root with what it needs and what it was granted. Nothing of the
host's tree is there but what is named: a read-only `/` would show its files, those of other users and the sockets of
its services among them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from toolplug.apart.confinement.bounds import DISK, NO_BOUNDS, Bounds
from toolplug.apart.confinement.file_grants import FileGrant, OpenedFile, list_grants
from toolplug.apart.confinement.interpreter import EnvironmentPart, environment_parts
from toolplug.apart.confinement.system_calls import filter_program, has_filter
from toolplug.apart.permissions import Permissions
from toolplug.config.run_settings import HOST_HOOKS, IN_PROCESS, RunSettings
from toolplug.config.units import format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """How the processes of one entry run.

    `sandbox` is None where they are not confined; `refusal` is why, if they should have been. `asked` is what the
    package says that it needs, None where it says nothing.
    """

    run: RunSettings = IN_PROCESS
    bounds: Bounds = NO_BOUNDS
    files: Sequence[FileGrant] = ()
    sandbox: Sandbox | None = None
    refusal: ConfinementRefusal | None = None
    asked: Permissions | None = None

    @property
    def watched(self) -> bool:
        """Whether the host looks after its processes."""
        return self.sandbox is not None or any(bound is not None for bound in self.bounds)

    @property
    def required(self) -> bool:
        """Whether a provider that cannot be confined must not start."""
        return self.run.confine == "required"

    def lacks_hook(self, hook: str) -> bool:
        """Return whether a hook of the provider sees the whole host, and is not granted."""
        return self.run.confined and hook in HOST_HOOKS and hook not in self.run.hooks

    @property
    def has_all_tenants(self) -> bool:
        """Whether it may use the records of a tenant while no call of it runs."""
        return not self.run.confined or self.run.tenants == "all"

    def list_ungranted(self) -> list[str]:
        """Return what the package asks for and `run` does not grant, a text for each kind."""
        if self.asked is None or not self.run.confined:
            return []
        granted: Mapping[str, Iterable[str]] = {
            "network": self.run.network or (),
            "environment": self.run.environment or (),
            "hooks": self.run.hooks,
        }
        texts: list[str] = []
        for name, words in granted.items():
            missing = [word for word in getattr(self.asked, name) if word not in set(words)]
            if missing:
                texts.append(f"it asks for {name}: {', '.join(missing)}, which run.{name} does not grant")
        if self.asked.files and not self.run.files:
            texts.append(f"it asks for files: {', '.join(self.asked.files)}, and run.files grants none")
        return texts

    def describe(self) -> dict[str, object]:
        """Return how it runs, what it asks for and what it is granted, as `doctor` shows it."""
        run, bounds = self.run, self.bounds
        granted = [
            f"{name}: {', '.join(words)}"
            for name in ("network", "files", "environment", "hooks")
            if (words := getattr(run, name))
        ]
        granted += ["tenants: all"] if run.confined and run.tenants == "all" else []
        limits = {
            "memory": None if bounds.memory is None else format_size(bounds.memory),
            "processes": bounds.processes,
            "descriptors": bounds.descriptors,
            "disk": None if bounds.disk is None else format_size(bounds.disk),
        }
        return {
            "confined": self.sandbox is not None,
            "reason": self.refusal.reason if self.refusal is not None else "",
            "asked": None if self.asked is None else self.asked.describe(),
            "granted": granted if run.confined else ["everything: it is not confined"],
            "bounds": {name: limit for name, limit in limits.items() if limit is not None},
        }


UNCONFINED: Confinement = Confinement()


def confine(
    run: RunSettings,
    config_dir: Path,
    python: str,
    *,
    modules: Sequence[str] = (),
    folders: Sequence[Path] = (),
    asked: Permissions | None = None,
) -> Confinement:
    """Return how processes of an entry run here: by this interpreter, with these modules and folders of modules.

    Blocks for the start of two short processes if they are to be confined. Raises `InvalidDefinition` for what cannot
    be granted.
    """
    bounds = Bounds.of(run)
    if not run.confined:
        return Confinement(run=run, bounds=bounds, asked=asked)
    files = list_grants(run.files or (), config_dir)
    found = find_bubblewrap()
    if isinstance(found, ConfinementRefusal):
        return Confinement(run=run, bounds=bounds, files=files, refusal=found, asked=asked)
    sandbox = Sandbox(
        bubblewrap=found,
        parts=environment_parts(python, modules, folders, [each.path for each in files]),
        environment=granted_variables(run),
        bounds=bounds,
    )
    refusal = sandbox.probe(python)
    kept = sandbox if refusal is None else None
    return Confinement(run=run, bounds=bounds, files=files, sandbox=kept, refusal=refusal, asked=asked)


def granted_variables(run: RunSettings) -> dict[str, str]:
    """Return the variables of the host that an entry grants, of those that are set."""
    return {name: os.environ[name] for name in run.environment or () if name in os.environ}


PROXY_SOCKET = "/run/toolplug/network"
"""Where the process finds the host's proxy."""
PROXY_PORT = 8123
"""Of the forwarder in the process's own network, in which nothing else listens."""
NOBODY = "65534"
"""The user and group that the process sees itself as; to the kernel it is the host's user without any capability."""
_USERS = f"host:x:{NOBODY}:{NOBODY}::/tmp:/nonexistent\n"
_GROUPS = f"host:x:{NOBODY}:\n"
_HOSTS = "127.0.0.1 localhost\n::1 localhost\n"
_MASKED = ("cmdline", "config.gz", "kallsyms", "kcore", "key-users", "keys", "kmsg", "sched_debug", "timer_list")
"""Files of /proc that tell of the whole machine; none of them knows namespaces."""
_VARIABLES = ("LANG", "LC_ALL", "LC_CTYPE")
_NAMESPACES = ("user", "ipc", "pid", "net", "uts", "cgroup-try")
_PROBE_S = 30.0


class Opening(NamedTuple):
    """What a process has in addition to its environment: granted files, its own folder, and the socket of the proxy.

    `counted` are the folders whose files count against its bound of disk, and `before` the bytes that were in them.
    """

    files: Sequence[OpenedFile] = ()
    state_dir: Path | None = None
    proxy: Path | None = None
    counted: Sequence[Path] = ()
    before: int = 0


NOTHING: Opening = Opening()


class SandboxCommand(NamedTuple):
    """A command, and the descriptors that it inherits in addition to those of its program; `told` says its inner id."""

    words: list[str]
    descriptors: tuple[int, ...]
    told: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """How the processes of one provider are confined. `environment` are the variables that it was granted."""

    bubblewrap: str
    parts: Sequence[EnvironmentPart]
    environment: Mapping[str, str]
    bounds: Bounds
    opening: Opening = NOTHING

    def open_with(self, opening: Opening) -> Sandbox:
        """Return the same with what was granted."""
        return replace(self, opening=opening)

    @contextmanager
    def wrap(self, program: Sequence[str]) -> Generator[SandboxCommand]:
        """Give the command that runs a program confined; its descriptors are closed afterwards.

        The arguments go through a descriptor: the process can read the command line of bubblewrap.
        """
        with ExitStack() as stack:

            def put(content: bytes) -> int:
                descriptor = os.memfd_create("toolplug")
                stack.callback(os.close, descriptor)
                os.write(descriptor, content)
                os.lseek(descriptor, 0, os.SEEK_SET)
                return descriptor

            told, telling = os.pipe()
            stack.callback(os.close, telling)
            files = {
                "/etc/passwd": put(_USERS.encode()),
                "/etc/group": put(_GROUPS.encode()),
                "/etc/hosts": put(_HOSTS.encode()),
            }
            program_filter = put(filter_program())
            words = [*self._words(files), "--seccomp", str(program_filter), "--info-fd", str(telling)]
            arguments = put(b"".join(os.fsencode(word) + b"\0" for word in words))
            descriptors = (arguments, telling, program_filter, *files.values())
            yield SandboxCommand([self.bubblewrap, "--args", str(arguments), "--", *program], descriptors, told)

    def probe(self, python: str) -> ConfinementRefusal | None:
        """Run an interpreter in it without any code of others; return why that cannot be done here, or None."""
        with self.wrap([python, "-I", "-S", "-c", ""]) as command:
            try:
                done = subprocess.run(
                    command.words,
                    pass_fds=command.descriptors,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    env={},
                    timeout=_PROBE_S,
                    check=False,
                )
                failure = done.stderr.decode("utf-8", "replace") if done.returncode else None
            except (OSError, subprocess.TimeoutExpired) as error:
                failure = str(error)
            finally:
                os.close(command.told)
        return None if failure is None else explain(failure)

    def _words(self, files: Mapping[str, int]) -> list[str]:
        size = str(self.bounds.disk or DISK)
        words = [f"--unshare-{each}" for each in _NAMESPACES]
        words += ["--uid", NOBODY, "--gid", NOBODY, "--hostname", "apart", "--die-with-parent", "--cap-drop", "ALL"]
        words += ["--proc", "/proc"]
        for name in _MASKED:
            words += ["--ro-bind", "/dev/null", f"/proc/{name}"] if os.path.exists(f"/proc/{name}") else []
        words += ["--dev", "/dev", "--size", size, "--tmpfs", "/tmp", "--size", size, "--tmpfs", "/dev/shm"]
        for path, target in self.parts:
            words += ["--ro-bind", path, path] if target is None else ["--symlink", target, path]
        for path, descriptor in files.items():
            words += ["--ro-bind-data", str(descriptor), path]
        for opened in self.opening.files:
            words += ["--bind" if opened.grant.writable else "--ro-bind", opened.source, opened.grant.path]
        if self.opening.state_dir is not None:
            words += ["--bind", str(self.opening.state_dir), str(self.opening.state_dir)]
        if self.opening.proxy is not None:
            words += ["--ro-bind", str(self.opening.proxy), PROXY_SOCKET]
        # Last, when all places for mounts are made. /dev, and / itself, are memory without a bound.
        for path in ("/dev", "/proc", "/"):
            words += ["--remount-ro", path]
        for name, value in self._variables().items():
            words += ["--setenv", name, value]
        return [*words, "--chdir", "/"]

    def _variables(self) -> dict[str, str]:
        its = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp"}
        its |= {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        if self.opening.proxy is not None:
            proxy = f"http://127.0.0.1:{PROXY_PORT}"
            its |= {
                name: proxy for upper in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY") for name in (upper, upper.lower())
            }
            its |= dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1")
        return {**its, **self.environment}


def find_bubblewrap() -> str | ConfinementRefusal:
    """Return the path of bubblewrap, or why nothing can be confined here."""
    if not sys.platform.startswith("linux"):
        reason = f"processes are confined on Linux only, and this is {sys.platform}"
        return ConfinementRefusal(reason, "run the host on Linux, or in a container")
    if not has_filter():
        reason = f"there is no filter of system calls for the processor {os.uname().machine}"
        return ConfinementRefusal(reason, "run the host on x86_64 or aarch64")
    found = shutil.which("bwrap")
    return found or ConfinementRefusal(
        "bubblewrap is not installed: there is no bwrap on the PATH", "apt-get install bubblewrap"
    )


_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
_SYSCTL = "/proc/sys/"


class ConfinementRefusal(NamedTuple):
    """Why a process cannot be confined, and what to do."""

    reason: str
    fix: str


def _read(path: str) -> str | None:
    """Return the content of a file, empty if it cannot be read; None if there is none."""
    place = Path(path)
    try:
        return place.read_text("utf-8", "replace").strip() if place.exists() else None
    except OSError:
        return ""


def explain(failure: str, read: Callable[[str], str | None] = _read) -> ConfinementRefusal:
    """Return what the words of bubblewrap mean on this machine; `read` returns the content of a file of it."""
    last = next((line.strip() for line in reversed(failure.splitlines()) if line.strip()), "no words")
    reason = f"bubblewrap does not start: {last[:300]}"
    in_container = any(read(path) is not None for path in _CONTAINER_FILES)
    if "mount proc" in last:
        option = "--security-opt systempaths=unconfined" if in_container else "mount /proc without anything over it"
        return ConfinementRefusal(reason, f"start the container with {option}" if in_container else option)
    if not any(word in last for word in ("namespace", "uid map", "Operation not permitted", "Permission denied")):
        return ConfinementRefusal(reason, "update bubblewrap to 0.8 or later, and see its words")
    if in_container:
        return ConfinementRefusal(reason, _container_option(read))
    for name, off, fix in (
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
    ):
        if read(_SYSCTL + name) == off:
            return ConfinementRefusal(reason, f"sysctl -w {fix}")
    return ConfinementRefusal(
        reason, "let this user make user namespaces: a security module of this machine refuses them"
    )


def _container_option(read: Callable[[str], str | None]) -> str:
    """Return the option of a container whose engine refuses namespaces: by its filter, or by AppArmor's profile."""
    filtered = "Seccomp:\t2" in (read("/proc/self/status") or "")
    option = "seccomp=unconfined" if filtered else "apparmor=unconfined"
    return f"start the container with --security-opt {option}"
