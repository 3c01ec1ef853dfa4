"""The containers of all callers: who has which, how many there may be, and when they end."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pwd
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from toolplug import Principal
from toolplug.apart import NoCgroups
from toolplug_code_interpreter.container import Container
from toolplug_code_interpreter.sandbox.bubblewrap import Launcher
from toolplug_code_interpreter.sandbox.interpreter import Unavailable
from toolplug_code_interpreter.sandbox.watch import Watch
from toolplug_code_interpreter.settings import Settings

UID_COUNT = 1000

MAX_ENDED = 50
"""Ended containers of one tenant of which it is known why."""
MAX_TENANTS = 1000

_LOCKS = Path("/run/toolplug-code-interpreter")
"""A lock ends with the process that holds it, so that several hosts on a machine can share the ids."""


class NoSuchContainer(Exception):
    """The caller has no container of this id. `why`: of its own that ended; an unknown one and another's are alike."""

    def __init__(self, container: str, why: str = "") -> None:
        super().__init__(
            f"no container {container!r}; "
            + (f"it has ended: {why}" if why else "it may have been deleted, or ended after its time without a call")
        )


class TooManyContainers(Exception):
    """There is no room for another container, and none that may be ended for it."""


SharingKey = tuple[str, str, str, str]
"""Tenant, subject, scope of credentials, and session, conversation or request of calls that share a container."""


@dataclass(slots=True, eq=False)
class ContainerEntry:
    """A container with its owner and its times in seconds. `shared`: None for one that was created by name."""

    id: str
    name: str
    owner: Principal
    idle_s: float
    shared: SharingKey | None
    uid: int | None
    container: Container
    created_at: int
    active_at: int
    timer: asyncio.TimerHandle | None = None


class Uids:
    """Hands out user ids that no user and no container has, from `first` on; None where toolplug is not root."""

    def __init__(self, first: int) -> None:
        self._range = range(first, first + UID_COUNT)
        self._held: dict[int, int] = {}

    def take(self) -> int | None:
        """Return a user id for one container. Blocks for a moment. Raises `Unavailable` if none is left."""
        if os.geteuid() != 0:
            return None
        try:
            _LOCKS.mkdir(mode=0o700, exist_ok=True)
            for uid in self._range:
                if uid not in self._held and not _is_user(uid) and self._lock(uid):
                    return uid
        except OSError as error:
            raise Unavailable(f"user ids for containers cannot be reserved in {_LOCKS}: {error}") from None
        raise Unavailable(f"no user id from {self._range[0]} to {self._range[-1]} is left (first_uid)")

    def give_back(self, uid: int | None) -> None:
        """Let another container have the user id; all processes with it have ended."""
        if uid is not None:
            os.close(self._held.pop(uid))

    def _lock(self, uid: int) -> bool:
        file = os.open(_LOCKS / str(uid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._held[uid] = file
        return True


class Containers:
    """Starts, finds and ends containers. `started` counts them."""

    def __init__(self, launcher: Launcher, settings: Settings) -> None:
        self.started = 0
        self._launcher = launcher
        self._settings = settings
        self._watch = Watch(settings)
        self._entries: dict[str, ContainerEntry] = {}
        self._starting: Counter[str] = Counter()
        self._shared: dict[SharingKey, asyncio.Task[ContainerEntry]] = {}
        self._ends: set[asyncio.Task[None]] = set()
        self._uids = Uids(settings.first_uid)
        self._ended: OrderedDict[str, OrderedDict[str, tuple[Principal, str]]] = OrderedDict()  # by tenant, by id

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def no_cgroups(self) -> str | None:
        """Why containers have no control groups, None if they have."""
        return str(self._launcher.cgroups) if isinstance(self._launcher.cgroups, NoCgroups) else None

    async def check(self) -> None:
        """Start a sandbox and end it. Raises `Unavailable` where that does not work."""
        await self._watch.open()
        uid = self._uids.take()
        try:
            sandbox = await self._launcher.start(uid, self._watch.mark)
            await sandbox.close()
        finally:
            self._uids.give_back(uid)

    async def create(
        self, owner: Principal, name: str, idle_s: float | None = None, shared: SharingKey | None = None
    ) -> ContainerEntry:
        """Start a container. Raises `TooManyContainers` and `Unavailable`."""
        await self._watch.open()
        # It counts before there is room: another may have to end first, and more calls come until then.
        self._starting[owner.tenant] += 1
        try:
            await self._make_room(owner.tenant)
            uid = self._uids.take()
            try:
                sandbox = await self._launcher.start(uid, self._watch.mark)
            except BaseException:
                self._uids.give_back(uid)
                raise
        finally:
            self._starting[owner.tenant] -= 1
        self.started += 1
        container = Container(sandbox, self._settings, self._watch)
        idle_s = min(idle_s or self._settings.idle, self._settings.idle)
        now = int(time.time())
        entry = ContainerEntry(f"cntr_{token_hex(16)}", name, owner, idle_s, shared, uid, container, now, now)
        self._entries[entry.id] = entry
        self.touch(entry)
        return entry

    async def share(self, owner: Principal, key: str, scope: str = "") -> ContainerEntry:
        """Return the container that calls with this key share, a new one for the first. An empty key is shared by none.

        `scope` stands for the credentials that a call brings: of two people behind one API key each has its own.

        Raises `TooManyContainers` and `Unavailable`.
        """
        place = (owner.tenant, owner.subject, scope, key)
        if not key:
            return await self.create(owner, "auto", shared=place)
        task = self._shared.get(place)
        if task is None:
            task = self._shared[place] = asyncio.create_task(self.create(owner, "auto", shared=place))
            task.add_done_callback(lambda done: self._shared_started(place, done))
        return await asyncio.shield(task)

    def _shared_started(self, place: SharingKey, task: asyncio.Task[ContainerEntry]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._shared.pop(place, None)

    def find(self, caller: Principal, container: str) -> ContainerEntry:
        """Return a container of the caller. Raises `NoSuchContainer`."""
        entry = self._entries.get(container)
        if entry is None or not _may_use(entry.owner, caller):
            ended = self._ended.get(caller.tenant)
            known = None if ended is None else ended.get(container)
            raise NoSuchContainer(container, known[1] if known is not None and _may_use(known[0], caller) else "")
        return entry

    def list_for(self, caller: Principal) -> Sequence[ContainerEntry]:
        """Return the caller's containers, oldest first."""
        return [each for each in self._entries.values() if _may_use(each.owner, caller)]

    def touch(self, entry: ContainerEntry) -> None:
        """Begin the time without a call again."""
        entry.active_at = int(time.time())
        if entry.timer is not None:
            entry.timer.cancel()
        if entry.id in self._entries:
            entry.timer = asyncio.get_running_loop().call_later(entry.idle_s, self._expire, entry)

    async def delete(self, caller: Principal, container: str) -> None:
        """End a container of the caller. Raises `NoSuchContainer`."""
        await self._end(self.find(caller, container), "it was deleted")

    async def drop_ended(self, entry: ContainerEntry) -> None:
        """Forget a container that has ended by itself."""
        if entry.container.ended is not None:
            await self._end(entry, entry.container.ended)

    async def aclose(self) -> None:
        """End all containers, those that are starting too."""
        await asyncio.gather(*self._shared.values(), return_exceptions=True)
        await asyncio.gather(*(self._end(each, "toolplug stops") for each in list(self._entries.values())))
        await asyncio.gather(*self._ends)
        await self._watch.close()
        self._launcher.close()

    async def _make_room(self, tenant: str) -> None:
        """End the automatic container that is longest without a call, if need be. Raises `TooManyContainers`."""
        settings = self._settings
        mine = [each for each in self._entries.values() if each.owner.tenant == tenant]
        if len(mine) + self._starting[tenant] > settings.max_containers_per_tenant:
            await self._end_one(mine, f"{len(mine)} containers of this tenant are running (max_containers_per_tenant)")
        if len(self._entries) + self._starting.total() > settings.max_containers:
            every = list(self._entries.values())
            await self._end_one(every, f"{len(every)} containers are running (max_containers)")

    async def _end_one(self, among: Sequence[ContainerEntry], full: str) -> None:
        spare = [each for each in among if each.shared is not None and not each.container.busy]
        if not spare:
            raise TooManyContainers(f"{full}; delete one, or wait until one has ended")
        await self._end(min(spare, key=lambda each: each.active_at), "another container needed its place")

    def _expire(self, entry: ContainerEntry) -> None:
        if entry.container.busy:
            self.touch(entry)
            return
        task = asyncio.create_task(self._end(entry, "its time without a call is over"), name="code-interpreter-end")
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _end(self, entry: ContainerEntry, why: str) -> None:
        if self._entries.pop(entry.id, None) is None:
            return
        self._remember(entry, why)
        if entry.timer is not None:
            entry.timer.cancel()
        if entry.shared is not None:
            self._shared.pop(entry.shared, None)
        try:
            await entry.container.end(why)
        finally:
            self._uids.give_back(entry.uid)

    def _remember(self, entry: ContainerEntry, why: str) -> None:
        """Remember why a container has ended, for the next call that names it."""
        ended = self._ended.setdefault(entry.owner.tenant, OrderedDict())
        self._ended.move_to_end(entry.owner.tenant)
        ended[entry.id] = (entry.owner, entry.container.ended or why)
        if len(ended) > MAX_ENDED:
            ended.popitem(last=False)
        if len(self._ended) > MAX_TENANTS:
            self._ended.popitem(last=False)


def _may_use(owner: Principal, caller: Principal) -> bool:
    """Return whether a caller sees a container; a credential that names agents sees those of its own subject only."""
    return owner.tenant == caller.tenant and (caller.agents is None or owner.subject == caller.subject)


def _is_user(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
