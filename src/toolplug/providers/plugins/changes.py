"""The hook `provider_changed`: the records of providers for every plugin that follows them.

pluggy's historic calls are not used: they keep every call, and replay them within `register`, where one that raises
leaves a plugin registered by half. Here a plugin gets the present records first, then for each key the newest change.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from toolplug.crashes import CodeOwner, log_crash
from toolplug.providers.entry import ProviderRecord, ProviderState
from toolplug.runtime.tasks import BackgroundTasks

CHANGED_S = 5.0
"""How long one call of the hook may take."""

_WHAT = "provider_changed()"


class ChangeFollower(NamedTuple):
    """One implementation of a hook that takes one thing; `identity` is the same object as long as its plugin runs."""

    identity: object
    ask: Callable[[Any], object]
    owner: CodeOwner

    async def tell(self, change: object, what: str, then: str) -> None:
        """Ask it, for `CHANGED_S` at most. A failure is logged: `what` has failed, and `then` is what comes of it."""
        try:
            async with asyncio.timeout(CHANGED_S):
                value = self.ask(change)
                if inspect.isawaitable(value):
                    await value
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # A plugin may raise a cancellation of its own, which ends its call only; one of this task goes on.
            if task is not None and task.cancelling():
                raise
        except BaseException as error:  # noqa: BLE001  code of a plugin, a SystemExit included
            log_crash(what, error, self.owner, then=then)


@dataclass(slots=True, eq=False)
class _Following:
    follower: ChangeFollower
    seen: dict[str, ProviderRecord] = field(default_factory=dict[str, ProviderRecord])
    waiting: dict[str, ProviderRecord] = field(default_factory=dict[str, ProviderRecord])
    task: asyncio.Task[None] | None = None


class ProviderChanges:
    """Passes on records in the background, to each follower one at a time."""

    def __init__(self) -> None:
        self._following: dict[int, _Following] = {}
        self._tasks = BackgroundTasks()

    def publish(self, followers: Sequence[ChangeFollower], records: Iterable[ProviderRecord]) -> None:
        """Pass these records, which are those of all providers now, to these followers and no others."""
        # What is left in `before` afterwards belongs to plugins that no longer run.
        before, self._following = self._following, {}
        now = {record.key: record for record in records} if followers else {}
        for follower in followers:
            # By identity: a plugin that goes on under other rules has seen the records already.
            following = before.pop(id(follower.identity), None) or _Following(follower)
            self._following[id(follower.identity)] = following
            gone = {key: _mark_removed(record) for key, record in following.seen.items() if key not in now}
            for key, record in (now | gone).items():
                if following.seen.get(key) != record:
                    following.seen[key] = following.waiting[key] = record
            for key in gone:
                del following.seen[key]
            # One task a follower, so that it hears of one change at a time and in their order.
            if following.waiting and following.task is None:
                following.task = self._tasks.start(_pass_on(following), f"toolplug-changes-{follower.owner.key}")
        for following in before.values():
            if following.task is not None:
                following.task.cancel()

    async def end(self) -> None:
        """Stop passing on records."""
        await self._tasks.cancel()


def _mark_removed(record: ProviderRecord) -> ProviderRecord:
    return replace(
        record, state=ProviderState.DISABLED, reason="removed from the configuration", fix="", tools=(), routes=()
    )


async def _pass_on(following: _Following) -> None:
    while following.waiting:
        record = following.waiting.pop(next(iter(following.waiting)))
        await following.follower.tell(record, _WHAT, f"it missed a change of {record.key!r}")
        # A plugin that answers at once would otherwise pass on a hundred records in one turn of the loop.
        await asyncio.sleep(0)
    following.task = None
