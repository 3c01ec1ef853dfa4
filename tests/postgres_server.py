"""A PostgreSQL server of the tests: its files in a temporary folder, at a Unix socket and a free port."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PATIENCE_S = 60
PASSWORD = "p#ss/w@rd:%"
QUOTED = "p%23ss%2Fw%40rd%3A%25"


def programs() -> Path | None:
    """Return the folder of the newest installed server's programs, which Debian keeps out of the path."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return versions[-1].parent if versions else None


class PostgresServer:
    """A server that can be stopped, killed and started again.

    PostgreSQL refuses to run as root, who therefore lends it another user.
    """

    def __init__(self, folder: Path) -> None:
        found = programs()
        assert found is not None
        self._programs = found
        self.folder = folder
        self.port = _free_port()
        self._as: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            user = next(one for one in pwd.getpwall() if one.pw_name in ("postgres", "nobody"))
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(folder, user.pw_uid, user.pw_gid)

    def url(self, database: str = "postgres", *, user: str = "postgres", password: str = QUOTED, **options: str) -> str:
        """Return the URL of a database, over TCP."""
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}?{query}".removesuffix("?")

    def create(self) -> None:
        """Make the files of an empty database."""
        password = self.folder / "password"
        password.write_text(PASSWORD)
        self._run("initdb", "--no-sync", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256",
            "--username=postgres", f"--pwfile={password}", "-D", str(self.folder / "data"))  # fmt: skip

    def start(self, **settings: str) -> None:
        """Start it, and wait until it answers."""
        options = {
            "port": str(self.port), "listen_addresses": "127.0.0.1", "unix_socket_directories": str(self.folder),
            "fsync": "off", "max_connections": "60", **settings,
        }  # fmt: skip
        command = [str(self._programs / "postgres"), "-D", str(self.folder / "data")]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.folder, stderr=log, **self._as)
        give_up_at = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert time.monotonic() < give_up_at, (self.folder / "log").read_text()
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        """Send a signal to all its processes, each of which is the leader of a session of its own."""
        assert self._process is not None
        first = self._process.pid
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for pid in (first, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill all its processes at once."""
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
            self._process.wait(PATIENCE_S)
            self._process = None

    def _answers(self) -> bool:
        command = [self._programs / "pg_isready", "--quiet", "-h", self.folder, "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        command = [self._programs / program, *arguments]
        ran = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.folder, **self._as)
        assert ran.returncode == 0, ran.stderr


@contextmanager
def postgres(**settings: str) -> Iterator[PostgresServer]:
    """A server with an empty database, killed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="toolplug-postgres-") as folder:
        server = PostgresServer(Path(folder))
        server.create()
        server.start(**settings)
        try:
            yield server
        finally:
            server.kill()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
