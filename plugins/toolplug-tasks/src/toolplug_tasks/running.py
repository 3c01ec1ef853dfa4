"""The tasks that this process runs, and those of other processes as clients ask for them.

A task ends where its process does: nobody can say then what the call has done. That is noticed by the lease of the
process, when a client asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

import mcp_types as types
from prometheus_client import CollectorRegistry, Counter, Gauge

from toolplug import NO_APPROVALS, HostApprovals, PartApprovals, PartServices
from toolplug.catalog import as_object, dump_json
from toolplug.cluster import Follower
from toolplug.errors import StoreError
from toolplug.mcp_extensions import ExtendedCall, ExtensionRefused, Fields
from toolplug.runtime import BackgroundTasks, log_crash, wait_for_results
from toolplug.stores import Change
from toolplug_tasks.decisions import Decisions
from toolplug_tasks.records import FINAL, POLL_MS, PREFIX, StoredTask, Task, TaskOwner, TaskRecords, key_of_id
from toolplug_tasks.settings import TaskSettings
from toolplug_tasks.work import Work, refusal_of

OUTCOME_UNKNOWN = "outcome_unknown"
MAX_ANSWERS = 256 * 1024
"""Bytes of one answer: forms have fields, and no files."""
_ACTIONS = ("accept", "decline", "cancel")
_GONE = "the process that ran the call has ended; the tool may have had its effect"
_RETRY_S = 1.0
_LOG = logging.getLogger("toolplug.tasks")


class TaskMetrics:
    """What `/metrics` says of tasks."""

    def __init__(self, namespace: str, registry: CollectorRegistry) -> None:
        self.running: Gauge = Gauge(f"{namespace}_tasks_running", "Tasks of this process that run.", registry=registry)
        self.ended: Counter = Counter(
            f"{namespace}_tasks_ended", "Tasks that have ended, by their last status.", ["status"], registry=registry
        )


class RunningTasks:
    """The tasks of one host. Implements `toolplug_tasks.work.Keeper`."""

    def __init__(self, services: PartServices, settings: Callable[[], TaskSettings]) -> None:
        self._services = services
        self._settings = settings
        self.records: TaskRecords = TaskRecords(services.store)
        self.decisions: Decisions = Decisions(self._approvals)
        self._works: dict[str, Work] = {}
        self._ending = BackgroundTasks()
        self._beating = BackgroundTasks()
        self._follower: Follower | None = None
        self._starting = asyncio.Lock()
        self._closing = False
        self._metrics = TaskMetrics(services.namespace, services.metrics)

    @property
    def owner(self) -> str:
        """The name of this process, for records."""
        return self._services.processes.name

    @property
    def timeout_s(self) -> float:
        """Seconds that a task may run."""
        return self._settings().task_timeout

    def _approvals(self) -> HostApprovals:
        asked = self._services.calls.approvals
        return asked.current if isinstance(asked, PartApprovals) else NO_APPROVALS

    async def answer(self, call: ExtendedCall) -> Fields:
        """Return the result of a call, or a task if it is not done in time. Raises `ExtensionRefused`."""
        work, after = Work(call, self), self._settings().tasks_after
        running = work.start()
        try:
            await _either(work, running, after)
            if not running.done() and not await work.try_begin():
                # The caller has as many tasks as it may have: the call has the time that it has without them.
                await _either(work, running, max(call.timeout_s - after, 0.0))
        # Its client has gone without an answer: it knows of no task, and nobody will ask for the result.
        except BaseException:
            running.cancel()
            raise
        if work.key:
            return {**work.task, "resultType": "task"}
        if not running.done():
            running.cancel()
            said = f"the call was ended after {call.timeout_s:g} s: no more tasks of this caller can be kept now"
            raise ExtensionRefused(types.INTERNAL_ERROR, said)
        return running.result()

    async def accept(self, call: ExtendedCall) -> Task | None:
        """Begin a call as a task, and return it; None if the caller has too many. Raises `StoreError`."""
        work = Work(call, self)
        if not await work.begin():
            return None
        work.start()
        return work.task

    async def scope_of(self, credentials: Mapping[str, str]) -> str:
        """Return the scope of the credentials that a caller brings. Raises `StoreError`."""
        return await self._services.calls.scope_of(credentials)

    async def listen(self) -> None:
        """Hear of what others write of tasks, from the first one on. Raises `StoreError`."""
        async with self._starting:
            if self._follower is None:
                follower = Follower(self._services.store, PREFIX, self._hear, self._look)
                await follower.start()
                self._follower = follower

    def follow(self, work: Work) -> None:
        """Keep what others write of this task, and write its end."""
        self._works[work.key] = work
        self._metrics.running.inc()
        self._ending.start(self._end(work), "toolplug-task-end")
        if not self._beating:
            self._beating.start(self._beat(), "toolplug-tasks")

    async def current(self, caller: TaskOwner, task_id: object) -> Task | None:
        """Return a caller's task, `failed` if its process has died; None if there is none. Raises `StoreError`."""
        # Of a task that runs here nothing is read: clients ask once a second.
        work = self._works.get(key_of_id(caller, task_id) or "")
        if work is not None and work.seen is not None:
            return work.seen
        found = await self.records.find_of(caller, task_id)
        if found is None:
            return None
        key, stored = found
        if stored["task"]["status"] in FINAL or await self._lives(key, stored["owner"]):
            return stored["task"]
        lost = await self.records.change(key, self._lose)
        return None if lost is None else lost["task"]

    async def cancel(self, caller: TaskOwner, task_id: object) -> bool:
        """Cancel a caller's task, unless it has ended; return False if there is none. Raises `StoreError`."""
        found = await self.records.find_of(caller, task_id)
        if found is None:
            return False
        cancelled = partial(self.records.end, status="cancelled", statusMessage="its client has cancelled it")
        return await self._change(found[0], cancelled) is not None

    async def delete(self, caller: TaskOwner, task_id: object) -> bool:
        """End and forget a caller's task; return False if there is none. Raises `StoreError`."""
        found = await self.records.find_of(caller, task_id)
        if found is None:
            return False
        await self.records.delete(*found)
        if (work := self._works.get(found[0])) is not None:
            work.see(None)
        return True

    async def update(self, caller: TaskOwner, task_id: object, responses: object) -> bool:
        """Pass on the answers of a task's user; what is not asked is ignored. Return False if there is no such task.

        Raises `ExtensionRefused` for what is no answer, and `StoreError`.
        """
        found = await self.records.find_of(caller, task_id)
        if found is None:
            return False
        asked = as_object(found[1]["task"].get("inputRequests"))
        answers = {name: _check_answer(name, each) for name, each in as_object(responses).items() if name in asked}

        def take(stored: StoredTask) -> bool:
            task = stored["task"]
            open_requests = as_object(task.get("inputRequests"))
            taken = {name: each for name, each in answers.items() if name in open_requests}
            left = {name: each for name, each in open_requests.items() if name not in taken}
            if not taken:
                return False
            stored["answers"] |= taken
            task["inputRequests"] = left
            if not left:
                del task["inputRequests"]
                task["status"] = "working"
            return True

        return not answers or await self._change(found[0], take) is not None

    async def finish(self) -> None:
        """Wait until the calls that have ended have their results; those that wait for a person do not."""
        works = self._works.values()
        await wait_for_results([work.running for work in works if work.running is not None and not work.waits])

    async def aclose(self) -> None:
        """End what runs: nobody can say then what a call has done."""
        # Before the calls are ended: their ends are then written once, and not again until the store can.
        self._closing = True
        for work in self._works.values():
            work.stop()
        await self._ending.wait()
        await self._beating.cancel()
        await self.decisions.aclose()
        if self._follower is not None:
            await self._follower.aclose()

    async def _change(self, key: str, change: Callable[[StoredTask], bool]) -> StoredTask | None:
        """Change a task as `TaskRecords.change` does; if it runs here, this process has then seen it."""
        stored = await self.records.change(key, change)
        if (work := self._works.get(key)) is not None:
            work.see(stored)
        return stored

    def _lose(self, stored: StoredTask) -> bool:
        error = {"code": types.INTERNAL_ERROR, "message": _GONE, "data": {"code": OUTCOME_UNKNOWN}}
        return self.records.end(stored, status="failed", statusMessage=_GONE, error=error)

    async def _lives(self, key: str, owner: str) -> bool:
        """Return whether a process runs the task."""
        processes = self._services.processes
        # By the store object and not by the name, which changes where the lease of this process has lapsed.
        if owner.partition(".")[0] == self._services.store.id:
            return key in self._works
        return owner in await processes.running([owner])

    async def _end(self, work: Work) -> None:
        """Wait for the end of a task's call, and write it."""
        try:
            result = await work.result()
            end = self._lose if result is None else partial(self.records.end, status="completed", result=dict(result))
        except ExtensionRefused as error:
            end = partial(self.records.end, status="failed", statusMessage=str(error), error=refusal_of(error))
        except Exception as error:  # noqa: BLE001  a named boundary: the client learns that it failed, the log where
            log_crash("a task", error)
            failed = {"code": types.INTERNAL_ERROR, "message": "Internal error; the log of the host has the cause"}
            end = partial(self.records.end, status="failed", error=failed)
        stored: StoredTask | None = None
        # The work stays known until its end is written: until then the task would count as lost.
        try:
            stored = await self._write(work.key, end)
        finally:
            del self._works[work.key]
            self._metrics.running.dec()
            self._metrics.ended.labels("deleted" if stored is None else stored["task"]["status"]).inc()

    async def _write(self, key: str, end: Callable[[StoredTask], bool]) -> StoredTask | None:
        """Write the end of a task, as soon as the store can; a host that is closing tries once."""
        while True:
            try:
                return await self._change(key, end)
            except StoreError as error:
                _LOG.error("the end of a task cannot be written: %s", error)
                if self._closing:
                    return None
                await asyncio.sleep(_RETRY_S)

    async def _beat(self) -> None:
        """Write what has changed of the running tasks: their progress, and the name of this process."""
        name = self.owner
        while self._works:
            await asyncio.sleep(POLL_MS / 1000)
            renamed, name = name != self.owner, self.owner
            for work in [*self._works.values()]:
                if not renamed and work.message == work.written:
                    continue
                try:
                    await self._change(work.key, partial(_tell, work.message, name))
                    work.written = work.message
                except StoreError as error:
                    _LOG.warning("the progress of a task is not written: %s", error)

    async def _hear(self, change: Change) -> None:
        work = self._works.get(change.key)
        if work is not None:
            await self._look_at(work)

    async def _look(self) -> None:
        for work in [*self._works.values()]:
            await self._look_at(work)

    async def _look_at(self, work: Work) -> None:
        """Take what others have written of a task: its end, or answers."""
        stored = await self.records.find(work.key)
        work.see(stored)
        if stored is None or stored["task"]["status"] in FINAL:
            work.stop()
        else:
            work.take(stored)


def _tell(message: str, owner: str, stored: StoredTask) -> bool:
    task = stored["task"]
    if task["status"] in FINAL:
        return False
    stored["owner"] = owner
    task.pop("statusMessage", None)
    if message:
        task["statusMessage"] = message
    return True


def _check_answer(name: str, answer: object) -> Mapping[str, object]:
    """Return the answer to a question. Raises `ExtensionRefused`."""
    fields = as_object(answer)
    content = fields.get("content")
    if fields.get("action") not in _ACTIONS or not (content is None or isinstance(content, dict)):
        said = f"inputResponses.{name}: it should have an action of {', '.join(_ACTIONS)}, and content as an object"
        raise ExtensionRefused(types.INVALID_PARAMS, said)
    if len(dump_json(fields)) > MAX_ANSWERS:
        raise ExtensionRefused(types.INVALID_PARAMS, f"inputResponses.{name}: it has over {MAX_ANSWERS} bytes")
    return {"action": fields["action"], **({} if content is None else {"content": content})}


async def _either(work: Work, running: asyncio.Task[Fields], within_s: float) -> None:
    """Wait until the call has ended or is a task."""
    kept = asyncio.ensure_future(work.kept.wait())
    try:
        await asyncio.wait({kept, running}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        kept.cancel()
