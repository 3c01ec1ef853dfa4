"""bubblewrap: a process with namespaces of its own, whose root has what it needs and what it was granted.

Nothing of the host's tree is there but what is named: a read-only `/` would show its files, those of other users and
the sockets of its services among them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from toolplug.apart.confinement.bounds import DISK, Bounds
from toolplug.apart.confinement.file_grants import OpenedFile
from toolplug.apart.confinement.interpreter import EnvironmentPart
from toolplug.apart.confinement.refusals import ConfinementRefusal, explain
from toolplug.apart.confinement.system_calls import filter_program, has_filter

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
    """What a process has beside its environment: granted files, its own folder, and the socket of the proxy.

    `counted` are the folders whose files count against its bound of disk, and `before` the bytes that were in them.
    """

    files: Sequence[OpenedFile] = ()
    state_dir: Path | None = None
    proxy: Path | None = None
    counted: Sequence[Path] = ()
    before: int = 0


NOTHING: Opening = Opening()


class SandboxCommand(NamedTuple):
    """A command with the descriptors that it is to inherit beside those of its program; `told` says its inner id."""

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
