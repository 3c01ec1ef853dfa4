"""One call while it runs: at first for the request that made it, and as a task once there is a record of it.

run ──▶ result                                   the answer, where nobody has been told of a task
 │      questions of a server before the work    the answer; of a task: `input_required`, then run again
 │      a refusal with a ticket                  a task at once, which waits for the decision, then run again
 └ asks while it runs                            a task at once, `input_required`
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping
from typing import Any, Protocol, cast

from toolplug import CallContext, CannotAsk, Principal, UserAnswer
from toolplug.catalog import as_object
from toolplug.errors import StoreError
from toolplug.mcp_extensions import ExtendedCall, ExtensionRefused, Fields, TaskDeadline
from toolplug_tasks.decisions import Decisions
from toolplug_tasks.records import FINAL, StoredTask, Task, TaskOwner, TaskRecords

WAITS = "waits for approval"
MAX_MESSAGE = 500
"""Characters of a task's message, which tools and servers write."""
_LOG = logging.getLogger("toolplug.tasks")


class Keeper(Protocol):
    """What a call needs of the tasks of its process."""

    records: TaskRecords
    decisions: Decisions

    @property
    def owner(self) -> str:
        """The name of this process, for records."""
        ...

    @property
    def timeout_s(self) -> float:
        """Seconds that a task may run."""
        ...

    async def scope_of(self, credentials: Mapping[str, str]) -> str:
        """Return the scope of the credentials that a caller brings. Raises `StoreError`."""
        ...

    async def listen(self) -> None:
        """Hear of what others write of tasks. Raises `StoreError`."""
        ...

    def follow(self, work: Work) -> None:
        """Keep what others write of this task, and write its end."""
        ...


class Work:
    """A call that runs, and its task if it has one. `key` is that of the record, empty before there is one."""

    def __init__(self, call: ExtendedCall, keeper: Keeper) -> None:
        self._call = call
        self._keeper = keeper
        self._loop = asyncio.get_running_loop()
        self._beginning = asyncio.Lock()
        self._refused = False
        self._numbers = itertools.count(1)
        self._asked: dict[str, asyncio.Future[Fields]] = {}
        self._waits_for_decision = False
        self.running: asyncio.Task[Fields] | None = None
        self._started = asyncio.Event()
        self.caller: Principal = call.context.principal
        self.kept = asyncio.Event()
        self.key: str = ""
        self.task: Task = {}
        self._seen: StoredTask | None = None
        self.message: str = ""
        self.written: str = ""

    def start(self) -> asyncio.Task[Fields]:
        """Run the call in a task of its own, which a request that ends does not end."""
        self.running = self._loop.create_task(self._run(), name="toolplug-task")
        self._started.set()
        return self.running

    @property
    def waits(self) -> bool:
        """Whether it waits for a person."""
        return self._waits_for_decision or any(not answer.done() for answer in self._asked.values())

    def stop(self) -> None:
        """Cancel the call."""
        if self.running is not None:
            self.running.cancel()

    async def result(self) -> Fields | None:
        """Wait for the end of the call and return its result; None if it was cancelled. Raises what it has raised."""
        await self._started.wait()
        assert self.running is not None, "it has been started"
        await asyncio.wait({self.running})
        return None if self.running.cancelled() else self.running.result()

    async def begin(self, message: str = "") -> bool:
        """Make a record of it, unless there is one; return False if there can be none. Raises `StoreError`."""
        async with self._beginning:
            if not self.key and not self._refused:
                keeper = self._keeper
                whose = TaskOwner(self.caller, await keeper.scope_of(self._call.context.credentials))
                # Before the record: from then on another process may end it.
                await keeper.listen()
                added = await keeper.records.add(whose, keeper.owner, message, keeper.timeout_s)
                if added is None:
                    self._refused = True
                    return False
                key, stored = added
                self.task = stored["task"]
                self.key, self.written = key, message
                self.see(stored)
                keeper.follow(self)
                self.kept.set()
        if self.key and message:
            self.message = message
        return bool(self.key)

    async def try_begin(self, message: str = "") -> bool:
        """Return whether there is a record of it, as `begin` does; a failure of the store is logged."""
        try:
            return await self.begin(message)
        except StoreError as error:
            self._refused = True
            _LOG.error("a call stays with its request, as the store fails: %s", error)
            return False

    @property
    def seen(self) -> Task | None:
        """The task as this process has last written or read it; None if it was deleted, or has no record."""
        return None if self._seen is None else self._seen["task"]

    def see(self, stored: StoredTask | None) -> None:
        """Remember the task as it was written or read, unless a newer one is known."""
        known = self.seen
        # The times are texts of one form and zone, which sort as they are.
        if stored is None or known is None or stored["task"]["lastUpdatedAt"] >= known["lastUpdatedAt"]:
            self._seen = stored

    def take(self, stored: StoredTask) -> None:
        """Take what the user has answered."""
        for name, answer in stored["answers"].items():
            waiting = self._asked.get(name)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Take a report of progress, from any thread; the last one is the message of the task."""
        done = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        # A plain assignment: the process looks at it once a second.
        self.message = (f"{done}: {message}" if message else done)[:MAX_MESSAGE]

    async def _run(self) -> Fields:
        given, within_s = self._call.context, self._keeper.timeout_s
        deadline = given.deadline or TaskDeadline.after(self._loop.time(), within_s)
        context = given._replace(deadline=deadline, report=_both(given, self))
        result = await self._call.run(context, during=self._ask_during)
        while True:
            ticket = _waiting_ticket(result)
            if result.get("resultType") == "input_required":
                async with self._beginning:  # a record of it may be on its way
                    if not self.key:
                        return result
                responses = await self._ask(as_object(result.get("inputRequests")))
                state = cast("str | None", result.get("requestState"))
                result = await self._call.run(context, during=self._ask_during, responses=responses, state=state)
            elif ticket is not None and ticket != context.approval:
                if not await self.try_begin(WAITS) or not await self._wait_for_decision(ticket):
                    return result
                self.message = ""
                context = context._replace(approval=ticket)
                result = await self._call.run(context, during=self._ask_during)
            else:
                return result

    async def _wait_for_decision(self, ticket: str) -> bool:
        """Wait for the decision on a ticket, and return whether the call may run."""
        self._waits_for_decision = True
        try:
            return await self._keeper.decisions.wait(self.caller.tenant, ticket)
        finally:
            self._waits_for_decision = False

    async def _ask_during(self, question: str, schema: Mapping[str, object]) -> UserAnswer:
        if not await self.try_begin():
            raise CannotAsk("no task can be kept, which would ask")
        params = {"mode": "form", "message": question, "requestedSchema": dict(schema)}
        answer = (await self._ask({"question": {"method": "elicitation/create", "params": params}}))["question"]
        return UserAnswer(cast("Any", answer["action"]), as_object(answer.get("content")))

    async def _ask(self, requests: Fields) -> dict[str, Fields]:
        """Ask the user, and wait for all answers. Names are used once in the life of a task."""
        names = {f"{next(self._numbers)}.{key}": key for key in requests}
        asked = {name: self._loop.create_future() for name in names}
        self._asked |= asked

        def show(stored: StoredTask) -> bool:
            task = stored["task"]
            if task["status"] in FINAL:
                return False
            shown = {**task.get("inputRequests", {}), **{name: requests[key] for name, key in names.items()}}
            task |= {"status": "input_required", "inputRequests": shown}
            return True

        def forget(stored: StoredTask) -> bool:
            stored["answers"] = {name: each for name, each in stored["answers"].items() if name not in names}
            return True

        records = self._keeper.records
        # A server may answer without a question, to be called again with its state.
        if asked:
            self.see(await records.change(self.key, show))
            await asyncio.wait(asked.values())
            self.see(await records.change(self.key, forget))
        return {key: self._asked.pop(name).result() for name, key in names.items()}


def _both(context: CallContext, work: Work) -> Any:
    def report(progress: float, total: float | None = None, message: str | None = None) -> None:
        context.report(progress, total, message)
        work.report(progress, total, message)

    return report


def _waiting_ticket(result: Fields) -> str | None:
    """Return the ticket that a person can decide, of a refused call."""
    meta = as_object(result.get("_meta"))
    if meta.get("toolplug/status") != "denied":
        return None
    ticket = as_object(as_object(meta.get("toolplug/metadata")).get("approval")).get("id")
    return ticket if isinstance(ticket, str) else None


def refusal_of(error: ExtensionRefused) -> Fields:
    """Return the error of a task whose call was refused by the protocol."""
    return {"code": error.code, "message": str(error), **({"data": dict(error.data)} if error.data else {})}
