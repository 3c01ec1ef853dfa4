"""The settings that every installed provider type takes, each asked for in a child process.

A host imports nothing that its configuration does not name, so this one does not either: a package that hangs, exits
or fills the memory costs only its own answer.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pydantic import BaseModel, ValidationError

CHILD_S = 10.0
AT_ONCE = 4


class SettingsSchema(BaseModel):
    """What one child answered. Without a `model`, and not `open`, the type takes no settings."""

    model: dict[str, object] | None = None
    open: bool = False
    error: str = ""


def settings_schemas(types: Iterable[str], *, within_s: float = CHILD_S) -> dict[str, SettingsSchema]:
    """Ask a child for each type; what fails is open, with the reason in `error`."""
    names = list(types)
    with ThreadPoolExecutor(AT_ONCE) as askers:
        return dict(zip(names, askers.map(partial(_asked, within_s=within_s), names), strict=True))


def _asked(name: str, *, within_s: float) -> SettingsSchema:
    child = subprocess.Popen(
        [sys.executable, "-m", "toolplug.host.file.settings_child", name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        answer, _ = child.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        _end(child)
        return SettingsSchema(open=True, error=f"no answer within {within_s:g} s")
    try:
        found = SettingsSchema.model_validate_json(answer)
    except ValidationError:
        return SettingsSchema(open=True, error=f"no answer; the process ended with {child.returncode}")
    return found.model_copy(update={"open": True}) if found.error else found


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the child with everything that it has started."""
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdout is not None:
        child.stdout.close()
