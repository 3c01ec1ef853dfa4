"""Changes between the processes that share a SQLite file: each sends its own to the Unix sockets of the others.

SQLite tells a process that another one has committed only when it asks. With sockets the change itself is elsewhere
within a millisecond. A send never blocks, and nothing depends on its arrival: each transaction has a number in the
file, and a process that has not heard of one after two looks reports that it may have missed changes.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from typing_extensions import TypedDict

from toolplug.errors import StoreRefused, StoreUnavailable
from toolplug.sqlite.errors import real_path
from toolplug.sqlite.serving_lock import CAN_SHARE, open_lock, try_lock
from toolplug.stores.store import Change, Event

LOOK_S = 0.1
"""Seconds between two looks at the number of the last transaction."""
# Looking is all that is left without sockets: 200 small statements a second, for an answer within 5 ms.
LOOK_WITHOUT_SOCKETS_S = 0.005
MOST_PENDING_BYTES = 1024 * 1024
"""Of changes for a process that does not receive; beyond that it misses some."""

# Linux takes 208 KiB by default (`net.core.wmem_max`); small ones leave room for several in the buffer.
_DATAGRAM_BYTES = 64 * 1024
# A larger change is told without its bytes; who needs them reads the record.
_LARGEST_CHANGE_BYTES = 24 * 1024
_AT_ONCE = 64
"""Datagrams that are received before other tasks have their turn."""
_NUMBERS_LATE_S = 0.04
"""How long a process is not woken for transactions that concern others only; less than `LOOK_S`."""
_LONGEST_ADDRESS = 100
"""A socket's address has at most 107 bytes on Linux, 103 elsewhere."""
_LOCK_WAIT_S = 1.0
_LOG = logging.getLogger("toolplug.stores")


def wake_folder(store: Path) -> Path:
    """Return the folder with the lock and the sockets of the processes that share a file."""
    real = real_path(store)
    return real.with_name(f"{real.name}-wake")


class SharedLock:
    """A lock that each process has while it has a shared file open. `first`: no other process had it at the start."""

    def __init__(self, file: FileIO, *, first: bool) -> None:
        self._file = file
        self.first: bool = first

    @classmethod
    async def open(cls, store: Path) -> SharedLock:
        """Take the lock; a first process keeps all others from opening until `share`.

        Raises `StoreUnavailable` if the first one does not end that, and `OSError` for a folder that cannot be made.
        """
        if not CAN_SHARE:
            raise StoreRefused(
                f"{store}: this system cannot share a SQLite file; use toolplug-redis or toolplug-postgres"
            )
        file = open_lock(wake_folder(store) / "lock")
        give_up_at = asyncio.get_running_loop().time() + _LOCK_WAIT_S
        try:
            first = try_lock(file)
            while not first and not try_lock(file, shared=True):
                if asyncio.get_running_loop().time() >= give_up_at:
                    raise StoreUnavailable(f"{store}: a process that is just opening this file is stuck; end it")
                await asyncio.sleep(0.01)
        except BaseException:
            file.close()
            raise
        return cls(file, first=first)

    def share(self) -> None:
        """Let other processes open the file."""
        try_lock(self._file, shared=True)

    def close(self) -> None:
        """Release the lock."""
        self._file.close()


class Announced(NamedTuple):
    """A change of one transaction. `to`: the ids of the stores that need to hear of it; `None` is one for all."""

    change: Change
    to: Collection[str | None]


class ChangeSockets:
    """The socket of one open store, and the way to those of the others.

    `heard` is called with the changes of other processes, `missed` when some may have been missed.
    """

    def __init__(
        self, store: Path, name: str, *, heard: Callable[[Sequence[Change]], None], missed: Callable[[], None]
    ) -> None:
        self._folder = wake_folder(store)
        self._name = name
        self._heard = heard
        self._missed = missed
        self._directory = -1
        self._peers: dict[str, _Peer] = {}
        self._numbers = CommitNumbers()
        self._flush_later: asyncio.TimerHandle | None = None

    def open(self, number: int) -> None:
        """Receive; `number` is that of a transaction after which the first reads begin. Raises `OSError`."""
        # Datagrams: a message arrives whole or not at all, and a sender never waits for a reader that is stuck.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._directory = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._socket.setblocking(False)
            self._socket.bind(self._address(self._name))
        except OSError:
            self._release()
            raise
        self._numbers.restart(number)
        asyncio.get_running_loop().add_reader(self._socket, self._receive)
        self._find_peers()
        for peer in self._peers.values():
            peer.send_hello()

    def close(self) -> None:
        """Send what is pending to those that receive, and remove the socket."""
        if self._flush_later is not None:
            self._flush_later.cancel()
        for peer in self._peers.values():
            peer.flush()
            peer.close()
        asyncio.get_running_loop().remove_reader(self._socket)
        # Another process may have removed it, which took this one for dead.
        with suppress(OSError):
            os.unlink(self._name, dir_fd=self._directory)
        self._release()

    def announce(self, number: int, announced: Iterable[Announced]) -> None:
        """Send the changes of a transaction of this process."""
        self._numbers.note([number])
        if not self._peers:
            return
        encoded = [(each.to, _encode(each.change)) for each in announced]
        # A copy: a peer that has ended is removed while it is sent to.
        for name, peer in tuple(self._peers.items()):
            peer.put([item for to, item in encoded if None in to or name in to], number)
        if self._flush_later is None and any(peer.late for peer in self._peers.values()):
            self._flush_later = asyncio.get_running_loop().call_later(_NUMBERS_LATE_S, self._flush)

    def look(self, number: int) -> None:
        """Receive, find new processes, and call `missed` if a transaction that the last look saw is still unknown."""
        self._receive()
        self._find_peers()
        if self._numbers.overdue(number):
            self._missed()

    def _flush(self) -> None:
        self._flush_later = None
        for peer in tuple(self._peers.values()):
            peer.flush()

    def _receive(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                # Twice what is sent: a larger one of another version would be cut silently.
                datagram = self._socket.recv(2 * _DATAGRAM_BYTES)
            except OSError:
                return
            try:
                sender, numbers, changes = _decode(datagram)
            except (ValueError, KeyError, TypeError):
                # The process of another version.
                self._missed()
                continue
            if sender not in self._peers:
                self._connect(sender)
            # The changes first: they are passed on before anything is taken for complete.
            self._heard(changes)
            self._numbers.note(numbers)

    def _find_peers(self) -> None:
        with suppress(OSError):
            for name in os.listdir(self._directory):
                if name not in self._peers and name not in (self._name, "lock"):
                    self._connect(name)

    def _connect(self, name: str) -> None:
        to = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            to.setblocking(False)
            to.connect(self._address(name))
        except OSError as error:
            to.close()
            self._forget(name, error)
        else:
            self._peers[name] = _Peer(self._name, to, lambda error: self._forget(name, error))

    def _forget(self, name: str, error: OSError) -> None:
        """Forget a process that has ended, and remove the socket that it left."""
        self._peers.pop(name, None)
        # The file is there and nobody receives: its process ended without removing it.
        if error.errno == errno.ECONNREFUSED:
            with suppress(OSError):
                os.unlink(name, dir_fd=self._directory)

    def _address(self, name: str) -> str:
        address = str(self._folder.absolute() / name)
        if len(os.fsencode(address)) <= _LONGEST_ADDRESS:
            return address
        # Where there is no such folder the address is invalid, and the store does without sockets.
        return f"/proc/self/fd/{self._directory}/{name}"

    def _release(self) -> None:
        self._socket.close()
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1


class CommitNumbers:
    """Which transactions of all processes are known here: all up to one, and some after it."""

    def __init__(self) -> None:
        self._known = 0
        self._ahead: set[int] = set()
        self._seen = 0

    def restart(self, number: int) -> None:
        """Take all up to this one as known."""
        # Numbers that came ahead stay: the sockets may have been faster than the look at the file.
        self._known = self._seen = number
        self._ahead = {each for each in self._ahead if each > number}
        self._advance()

    def note(self, numbers: Iterable[int]) -> None:
        """Take these as known."""
        self._ahead.update(number for number in numbers if number > self._known)
        self._advance()

    def overdue(self, number: int) -> bool:
        """Return whether one that existed at the last call is unknown; then all up to `number` are known."""
        if self._known < self._seen:
            self.restart(number)
            return True
        self._seen = number
        return False

    def _advance(self) -> None:
        while self._known + 1 in self._ahead:
            self._known += 1
            self._ahead.discard(self._known)


class _Item(NamedTuple):
    """A change as a piece of JSON, and the bytes that it describes."""

    description: str
    content: bytes

    @property
    def size(self) -> int:
        return len(self.description) + len(self.content)


class _Peer:
    """The other end of one process: changes, and the numbers of their transactions, that it has not received yet."""

    def __init__(self, sender: str, to: socket.socket, gone: Callable[[OSError], None]) -> None:
        self._sender = sender
        self._socket = to
        self._gone = gone
        self._pending: deque[_Item | int] = deque()
        self._bytes = 0
        self._blocked = False

    @property
    def late(self) -> bool:
        """Whether something is pending that no socket waits for."""
        return bool(self._pending) and not self._blocked

    def send_hello(self) -> None:
        """Send an empty datagram, by which the other process finds this one."""
        with suppress(OSError):
            self._socket.send(_datagram(self._sender, (), ()))

    def put(self, items: Sequence[_Item], number: int) -> None:
        """Send the changes of a transaction, or later its number if there are none."""
        self._bytes += sum(item.size for item in items)
        self._pending.extend(items)
        self._pending.append(number)
        # Numbers have no bytes here but take memory as well; hence the second bound.
        if self._bytes > MOST_PENDING_BYTES or len(self._pending) > MOST_PENDING_BYTES // 64:
            # It will find that the numbers are missing.
            # Dropped, not sent late: after a gap the other end reads everything again in any case.
            self._pending.clear()
            self._bytes = 0
        elif items and not self._blocked:
            self.flush()

    def flush(self) -> None:
        """Send what is pending, until the buffer of the other process is full."""
        while self._pending:
            batch = self._next_batch()
            items = [each for each in batch if isinstance(each, _Item)]
            numbers = [each for each in batch if isinstance(each, int)]
            try:
                self._socket.send(_datagram(self._sender, numbers, items))
            # Its buffer is full. The loop says when there is room; what is pending waits, up to `MOST_PENDING_BYTES`.
            except BlockingIOError:
                self._wait()
                return
            except OSError as error:
                self._pending.clear()
                self._bytes = 0
                # These two are of this one message; any other error means that the process is gone.
                if error.errno not in (errno.ENOBUFS, errno.EMSGSIZE):
                    self.close()
                    self._gone(error)
                return
            for _ in batch:
                self._pending.popleft()
            self._bytes -= sum(item.size for item in items)
        self._stop_waiting()

    def close(self) -> None:
        """Release the socket."""
        self._stop_waiting()
        self._socket.close()

    def _next_batch(self) -> list[_Item | int]:
        batch: list[_Item | int] = []
        size = 0
        for each in self._pending:
            size += each.size if isinstance(each, _Item) else 16
            if size > _DATAGRAM_BYTES and batch:
                break
            batch.append(each)
        return batch

    def _wait(self) -> None:
        if not self._blocked:
            self._blocked = True
            asyncio.get_running_loop().add_writer(self._socket, self.flush)

    def _stop_waiting(self) -> None:
        if self._blocked:
            self._blocked = False
            asyncio.get_running_loop().remove_writer(self._socket)


_Head = TypedDict(
    "_Head",
    {"from": str, "numbers": list[int], "changes": list[tuple[str, int, int | None, list[tuple[int, int]] | None]]},
)


def _datagram(sender: str, numbers: Sequence[int], items: Sequence[_Item]) -> bytes:
    """Return one line of JSON, `{from, numbers, changes}`, and after it the bytes of all changes."""
    changes = ",".join(item.description for item in items)
    head = f'{{"from":"{sender}","numbers":{json.dumps(numbers)},"changes":[{changes}]}}\n'
    return b"".join([head.encode(), *(item.content for item in items)])


def _encode(change: Change) -> _Item:
    """Return the change as `[key, revision, bytes of the value or null, [[id, bytes], …] or null]`."""
    content = [] if change.value is None else [change.value]
    value = None if change.value is None else len(change.value)
    events = None
    if change.events is not None:
        events = [(event.id, len(event.data)) for event in change.events]
        content.extend(event.data for event in change.events)
    item = _Item(json.dumps([change.key, change.revision, value, events]), b"".join(content))
    if item.size <= _LARGEST_CHANGE_BYTES:
        return item
    return _Item(json.dumps([change.key, change.revision, None, None]), b"")


def _decode(datagram: bytes) -> tuple[str, list[int], list[Change]]:
    line, _, content = datagram.partition(b"\n")
    head: _Head = json.loads(line)
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        return content[at - size : at]

    changes: list[Change] = []
    for key, revision, size, sizes in head["changes"]:
        value = None if size is None else take(size)
        events = None if sizes is None else tuple(Event(number, take(length)) for number, length in sizes)
        changes.append(Change(key, revision, value, events))
    return head["from"], head["numbers"], changes
