"""The reference servers as entries of `mcp_servers`; nothing is fetched when they start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.node.installed import node, script

Entry = dict[str, object]

_GIT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
_AUTHOR = ["-c", "user.name=Ada", "-c", "user.email=ada@localhost"]


def python_server(name: str, *arguments: str) -> Entry:
    """A server whose package is installed beside the interpreter."""
    return {"command": str(Path(sys.executable).with_name(name)), "args": list(arguments)}


def node_server(name: str, *arguments: str, **environment: str) -> Entry:
    """A server of npm."""
    program = str(script("servers", f"@modelcontextprotocol/{name}"))
    return {"command": str(node()), "args": [program, *arguments], "env": environment}


def of_folder(folder: Path) -> Mapping[str, Entry]:
    """All of them on pipes, with what they need in a folder of their own."""
    repository, files = folder / "repository", folder / "files"
    files.mkdir()
    (files / "note.txt").write_text("remember the milk")
    committed(repository, "Begin")
    return {
        "clock": python_server("mcp-server-time", "--local-timezone", "UTC"),
        "git": {**python_server("mcp-server-git", "--repository", str(repository)), "env": _GIT},
        "everything": node_server("server-everything", "stdio"),
        "files": node_server("server-filesystem", str(files)),
        "memory": node_server("server-memory", MEMORY_FILE_PATH=str(folder / "memory.json")),
        "broken": python_server("mcp-server-sqlite", "--db-path", str(folder / "rows.db")),
    }


def committed(repository: Path, message: str) -> None:
    """A repository with one commit."""
    git = shutil.which("git")
    assert git is not None
    for arguments in (["init", "-q", repository], [*_AUTHOR, "commit", "-q", "--allow-empty", "-m", message]):
        at = [] if "init" in arguments else ["-C", repository]
        subprocess.run([git, *at, *arguments], env={**os.environ, **_GIT}, check=True)


@contextmanager
def everything_over_http(port: int) -> Iterator[str]:
    """The server `everything` on a port of this machine; gives its URL."""
    entry = node_server("server-everything", "streamableHttp")
    command = [entry["command"], *entry["args"]]
    with subprocess.Popen(
        command, env={**os.environ, "PORT": str(port)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "listening" in line.lower():
                break
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()
