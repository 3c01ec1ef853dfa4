"""Functions that a hostile document has in its hands, to be called in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from threading import Thread

KEPT: list[bytes] = []


def double(data: bytes) -> bytes:
    """Return it twice."""
    return data * 2


def in_pieces(data: bytes) -> Iterator[bytes]:
    """Return so many bytes, in pieces of odd sizes."""
    left = int(data)
    while left:
        size = min(left, 99_991)
        yield b"x" * size
        left -= size


def remember(data: bytes) -> bytes:
    """Return what this process was given before."""
    KEPT.append(data)
    return b",".join(KEPT)


def show_process(data: bytes) -> bytes:
    """Return its id and the names of its variables."""
    return f"{os.getpid()} {' '.join(sorted(os.environ))}".encode()


def wait_for_ever(data: bytes) -> bytes:
    """Do nothing, without CPU time; a file says which process it is."""
    if data:
        with open(data.decode(), "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
    time.sleep(600)
    return b""


def spin(data: bytes) -> bytes:
    """Work for ever in C, where no exception reaches it."""
    sum(iter(int, 1))
    return b""


def eat_memory(data: bytes) -> bytes:
    """Take memory without an end."""
    taken: list[bytes] = []
    while True:
        taken.append(b"x" * 10_000_000)


def take(data: bytes) -> bytes:
    """Take so much memory at once."""
    return str(len(b"x" * int(data))).encode()


def crash(data: bytes) -> bytes:
    """Crash in C, as a parser would."""
    ctypes = import_module("ctypes")
    print("about to crash", file=sys.stderr)
    ctypes.string_at(1)
    return b""


def leave(data: bytes) -> bytes:
    """End the process, with words on its output."""
    os.write(2, b"first\nlast words\n\n")
    os._exit(int(data))


def raise_it(data: bytes) -> bytes:
    """Raise what it is told to."""
    raise {"value": ValueError("wrong"), "exit": SystemExit(0), "import": ImportError("no such package")}[data.decode()]


def raise_late(data: bytes) -> Iterator[bytes]:
    """Raise in the middle of an answer."""
    yield b"x" * 200_000
    raise ValueError("late")


def return_none(data: bytes) -> None:
    """Return what is no answer."""


def talk(data: bytes) -> bytes:
    """Print a lot, and read what is not for it."""
    for _ in range(20_000):
        print("noise " * 20)
    os.write(1, b"e\0\0\0\0" * 1_000)
    return sys.stdin.buffer.read() + b"quiet"


def forge(data: bytes) -> bytes:
    """Write these bytes where the answers go."""
    for descriptor in range(3, 16):
        try:
            os.write(descriptor, data)
        except OSError:
            continue
    time.sleep(600)
    return b""


def fill(data: bytes) -> bytes:
    """Write a long file."""
    with open(data.decode(), "wb") as file:
        for _ in range(300):
            file.write(b"x" * 1_000_000)
    return b""


def leave_a_child(data: bytes) -> bytes:
    """Start a process that holds all that it inherits, and say which it is."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return str(child.pid).encode()


def work_on_after_it(data: bytes) -> bytes:
    """Return the id of this process; a thread of it goes on for so many seconds of CPU time."""

    def work(until: float) -> None:
        while time.process_time() < until:
            pass

    Thread(target=work, args=(time.process_time() + float(data),), daemon=True).start()
    return str(os.getpid()).encode()
