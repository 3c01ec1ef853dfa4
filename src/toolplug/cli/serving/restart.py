"""A new process in the place of this one: how `serve --reload` takes up changed code."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from subprocess import PIPE, STDOUT

_LOG = logging.getLogger("toolplug.cli.serve")


async def starts_again(file: Path) -> bool:
    """Would a new process get as far as this one; where it would not, its reasons are logged.

    The code is imported and the configuration checked in a child process, so that a slip of the pen does not end the
    service that runs.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "toolplug.cli.main", "check", "-c", str(file), stdout=PIPE, stderr=STDOUT
    )
    try:
        said, _ = await child.communicate()
    except asyncio.CancelledError:
        child.kill()
        await child.wait()
        raise
    if child.returncode == 0:
        return True
    _LOG.error("the changed code was not taken up: %s", said.decode(errors="replace").strip())
    return False


def replace_process(port: int) -> None:
    """Begin again with the same command line, on the port that was taken; the last `--port` of a line counts."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], "--port", str(port)])
