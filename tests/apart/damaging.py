"""A provider that does what a machine suffers from. Only for a process with low bounds, in namespaces of its own."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

from toolplug import FunctionProvider, ProviderContext, tool

_MIB = 1024 * 1024


class Damaging(FunctionProvider):
    """Does what a machine suffers from, within bounds that a test sets low."""

    async def start(self, site: ProviderContext) -> None:
        self.site = site

    @tool
    def pid(self) -> int:
        """Return the id of this process, as it sees it."""
        return os.getpid()

    @tool
    def damage(self, how: str) -> str:
        """Do it, and return what was reached."""
        return str(getattr(self, f"_{how}")())

    def _fork(self) -> int:
        for _ in range(400):
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
        time.sleep(5)
        return 400

    def _zombies(self) -> int:
        for _ in range(400):
            if os.fork() == 0:
                os._exit(0)
        time.sleep(5)
        return 400

    def _threads(self) -> int:
        for _ in range(400):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        time.sleep(5)
        return 400

    def _eat(self) -> int:
        held = bytearray()
        while len(held) < 400 * _MIB:
            held += b"x" * _MIB
            time.sleep(0.002)
        time.sleep(5)
        return len(held)

    def _eat_shared(self) -> int:
        held = mmap.mmap(-1, 400 * _MIB)
        for place in range(0, len(held), 4096):
            held[place] = 1
        time.sleep(5)
        return len(held)

    def _eat_in_children(self) -> int:
        for _ in range(8):
            if os.fork() == 0:
                held = b"x" * (40 * _MIB)
                time.sleep(60)
                os._exit(len(held) % 7)
        time.sleep(5)
        return 8

    def _eat_in_sockets(self) -> int:
        """Have the kernel hold what nobody reads: it is the memory of no process."""
        for _ in range(6):
            if os.fork() == 0:
                held = [socket.socketpair() for _ in range(50)]
                for each in (each for pair in held for each in pair):
                    each.setblocking(False)
                    with suppress(BlockingIOError):
                        while True:
                            each.send(b"x" * 65536)
                time.sleep(60)
                os._exit(len(held) % 7)
        time.sleep(5)
        return 6

    def _open_in_children(self) -> int:
        for _ in range(30):
            if os.fork() == 0:
                held = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
                time.sleep(60)
                os._exit(len(held) % 7)
        time.sleep(5)
        return 30

    def _fill_deleted(self) -> int:
        """Write to files that have no name any more."""
        held = []
        for number in range(30):
            held.append((self.site.state_dir / str(number)).open("wb", buffering=0))
            os.unlink(held[-1].name)
            held[-1].write(b"x" * (2 * _MIB))
            time.sleep(0.02)
        time.sleep(5)
        return len(held)

    def _fill_mapped(self) -> int:
        """Write to files that have no name, and no descriptor either."""
        held = []
        for number in range(30):
            descriptor = os.open(self.site.state_dir / str(number), os.O_RDWR | os.O_CREAT)
            os.unlink(self.site.state_dir / str(number))
            os.write(descriptor, b"x" * (2 * _MIB))
            held.append(ctypes.CDLL(None).mmap(None, 2 * _MIB, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0))
            os.close(descriptor)
            time.sleep(0.02)
        time.sleep(5)
        return len(held)

    def _fill_deep(self) -> int:
        """Write where the path is longer than the kernel takes."""
        os.chdir(self.site.state_dir)
        for _ in range(20):
            os.mkdir("x" * 250)
            os.chdir("x" * 250)
        return self._fill(Path())

    def _fill_state(self) -> int:
        return self._fill(self.site.state_dir)

    def _fill_tmp(self) -> int:
        return self._fill(Path("/tmp"))

    def _fill_shared(self) -> int:
        return self._fill(Path("/dev/shm"))

    def _fill(self, folder: Path) -> int:
        for number in range(30):
            (folder / str(number)).write_bytes(b"x" * (2 * _MIB))
            time.sleep(0.02)
        time.sleep(5)
        return 30

    def _one_large_file(self) -> int:
        with open(self.site.state_dir / "large", "wb") as file:
            return sum(file.write(b"x" * _MIB) for _ in range(60))

    def _many_files(self) -> int:
        for number in range(25_000):
            (self.site.state_dir / str(number)).touch()
        time.sleep(5)
        return 25_000

    def _open_much(self) -> int:
        return len([os.open("/dev/null", os.O_RDONLY) for _ in range(600)])

    def _die(self) -> int:
        os._exit(3)

    def _crash(self) -> int:
        return ctypes.string_at(0)[0]

    def _kill_all(self) -> int:
        os.kill(-1, signal.SIGKILL)
        return 1

    def _stop_all(self) -> int:
        os.kill(0, signal.SIGSTOP)
        return 1

    def _stay(self) -> int:
        """Start a process that leaves its session, and end."""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for number in range(3, 200):
                    with suppress(OSError):
                        os.close(number)
                time.sleep(120)
            os._exit(0)
        time.sleep(0.5)
        os._exit(4)

    def _loop(self) -> int:
        while True:
            pass
