"""The thread that sums up what containers use while code runs, and ends those that are over a limit.

It is a thread because a busy event loop would look too late.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Thread

from toolplug_code_interpreter.processes import file_count, memory_bytes
from toolplug_code_interpreter.settings import Settings

INTERVAL_S = 0.02
BYTES_A_FILE = 4096
"""A container may have as many files as its disk would hold of this size: each costs memory of the kernel."""

Exceeded = Callable[[str], None]
"""Ends the container; takes the limit that it is over. Called in the watching thread."""


class Watch:
    """Watches running containers, by the process with which they end."""

    def __init__(self, settings: Settings) -> None:
        self._memory = int(settings.memory)
        self._files = max(int(settings.disk) // BYTES_A_FILE, 1000)
        self._memory_text = settings.memory.human_readable()
        self._watched: dict[int, Exceeded] = {}
        self._changed = Condition()
        self._thread: Thread | None = None
        self._ended = False

    def add(self, init: int, exceeded: Exceeded) -> None:
        """Watch a container until it is removed."""
        with self._changed:
            self._watched[init] = exceeded
            if self._thread is None:
                self._thread = Thread(target=self._run, name="code-interpreter-watch", daemon=True)
                self._thread.start()
            self._changed.notify()

    def remove(self, init: int) -> None:
        """Watch a container no more."""
        with self._changed:
            self._watched.pop(init, None)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._watched)
                if self._ended:
                    return
                watched = list(self._watched.items())
            for init, exceeded in watched:
                self._check(init, exceeded)
            with self._changed:
                self._changed.wait_for(lambda: self._ended, INTERVAL_S)

    def _check(self, init: int, exceeded: Exceeded) -> None:
        over = self._over(init)
        if over is not None:
            with self._changed:
                if self._watched.pop(init, None) is not None:  # else it has ended, and its number may be another's
                    exceeded(over)

    def _over(self, init: int) -> str | None:
        if memory_bytes(init, enough=self._memory) > self._memory:
            return f"its processes used more than {self._memory_text} of memory together"
        if file_count(init, "/mnt") > self._files:
            return f"it had more than {self._files} files"
        return None
