"""Hides from a process what only POSIX systems have: its folder is put first on the `PYTHONPATH` of that process.

The standard library of a POSIX system cannot do without these, so it is imported before, and keeps what it has.
"""

from __future__ import annotations

import asyncio  # noqa: F401
import builtins
import concurrent.futures.process  # noqa: F401
import importlib
import multiprocessing.popen_fork
import multiprocessing.popen_spawn_posix
import multiprocessing.resource_tracker  # noqa: F401
import os
import pathlib  # noqa: F401
import shutil  # noqa: F401
import signal
import socket
import subprocess
import sys
import tempfile  # noqa: F401
import threading  # noqa: F401
from collections.abc import Mapping
from types import ModuleType
from typing import Any

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty")
"""Hidden from the modules of toolplug and its plugins only: other packages have code of their own for Windows."""
SIGNALS = ("SIGHUP", "SIGKILL")
FUNCTIONS = ("fork", "forkpty", "killpg", "geteuid", "register_at_fork", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY")

_importing, _loading = builtins.__import__, importlib.import_module
_kill, _family, _pair = signal.SIGKILL, socket.AF_UNIX, socket.socketpair


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(_kill)


def _make_pair(family: int | None = None, *more: int) -> tuple[socket.socket, socket.socket]:
    return _pair(_family if family is None else family, *more)


def _is_hidden(name: str, asking: object) -> bool:
    return name in MODULES and str(asking).startswith("toolplug")


def _import(name: str, globals: Mapping[str, object] | None = None, *more: Any, **named: Any) -> ModuleType:  # noqa: A002  as Python calls it
    if _is_hidden(name, (globals or {}).get("__name__")):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return _importing(name, globals, *more, **named)


def _import_module(name: str, package: str | None = None) -> ModuleType:
    if _is_hidden(name, sys._getframe(1).f_globals.get("__name__")):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return _loading(name, package)


def _hide() -> None:
    sys.modules["uvloop"] = None  # type: ignore[assignment]  there is none for Windows
    subprocess.Popen.kill = _end  # type: ignore[method-assign]
    socket.socketpair = _make_pair  # type: ignore[assignment]
    builtins.__import__ = _import
    importlib.import_module = _import_module
    for holder, names in ((signal, SIGNALS), (os, FUNCTIONS), (socket, ("AF_UNIX",))):
        for name in names:
            if hasattr(holder, name):
                delattr(holder, name)


_hide()
