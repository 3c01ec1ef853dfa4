"""The calls of one run of a script: each is an ordinary call of the caller, made when the script waits for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from secrets import token_hex
from typing import NamedTuple, cast

from toolplug import CallContext, ToolCall, ToolStatus
from toolplug_code_mode.functions import Functions
from toolplug_code_mode.limits import MAX_LINES, MAX_SHOWN
from toolplug_code_mode.values import Settled, arguments_of, as_text, exception_of, value_of

VIA = "code"
"""What the audit log says of the calls of scripts."""

in_script: ContextVar[bool] = ContextVar("toolplug_code_mode_in_script", default=False)
"""Whether this code runs for a script: one that calls another one is refused, through whichever tool."""


@dataclass(slots=True)
class PendingCall:
    """A call that the script has made and not been answered yet.

    `line` is that of the script, 0 for code of `eval`; `ticket` that of the approval for which it waits.
    """

    id: int
    name: str
    arguments: dict[str, object]
    line: int
    ticket: str | None = None

    @property
    def shown(self) -> str:
        """The call as Python writes it, cut where it is long."""
        text = ", ".join(f"{name}={as_text(value)}" for name, value in self.arguments.items())
        text = f"{self.name}({text})"
        return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…)"


class MadeCall(NamedTuple):
    """A call that may have changed something, and what became of it; `outcome` is None while nobody knows."""

    name: str
    shown: str
    outcome: str | None = None

    @property
    def line(self) -> str:
        """The call and its outcome, for people."""
        return f"{self.shown}: {self.outcome or 'outcome unknown'}"


def list_made(made: Iterable[MadeCall]) -> list[str]:
    """Return the lines of some calls: the newest ones, after how many there are before them."""
    calls = [*made]
    before, listed = calls[:-MAX_LINES], calls[-MAX_LINES:]
    counts = Counter(f"{each.name}: {each.outcome or 'outcome unknown'}" for each in before)
    return [*(f"{count} times {line}" for line, count in counts.items()), *(each.line for each in listed)]


Journal = Callable[[Sequence[str]], Awaitable[None]]


@dataclass(slots=True)
class Calls:
    """The calls of one run, at most `most`.

    `pending`, `answers`: those that the script has not been answered, by their ids; `asked`: those of the pending ones
    about which a person is asked, with the approval that the result of the call has. `made`: those that may have
    changed something, with what became of them; `journal` is given these before another one is made. `ran`: the calls
    that ran with arguments which a person has put in place of the script's.
    """

    functions: Functions
    context: CallContext
    most: int
    journal: Journal
    count: int = 0
    pending: dict[int, PendingCall] = field(default_factory=dict[int, PendingCall])
    answers: dict[int, Settled] = field(default_factory=dict[int, Settled])
    asked: dict[int, Mapping[str, object]] = field(default_factory=dict[int, "Mapping[str, object]"])
    made: dict[int, MadeCall] = field(default_factory=dict[int, MadeCall])
    ran: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    _tasks: dict[int, asyncio.Task[Settled | None]] = field(default_factory=dict[int, "asyncio.Task[Settled | None]"])

    def note(
        self, call_id: int, name: str, args: Sequence[object], given: Mapping[str, object], line: int
    ) -> Settled | None:
        """Take a call of the script, to be made when it is waited for; return the exception if it cannot be made."""
        self.count += 1
        if name not in self.functions.by_name:
            return exception_of(f"name {name!r} is not defined", "NameError")
        if args:
            return exception_of(f"{name}() takes keyword arguments only", "TypeError")
        if self.count > self.most:
            return exception_of(f"a script may make {self.most} calls of tools, and this is one more")
        try:
            self.pending[call_id] = PendingCall(call_id, name, arguments_of(given), line)
        except ValueError as error:
            return exception_of(f"{name}(): {error}", "TypeError")
        return None

    @property
    def lines(self) -> list[str]:
        """The calls that may have changed something, with their outcomes, as the journal has them."""
        return list_made(self.made.values())

    def expect(self, calls: Iterable[PendingCall]) -> list[str]:
        """Count those of the calls that may change something as made, and return the lines of all of these."""
        for each in calls:
            if not self.functions.by_name[each.name].read_only:
                self.made[each.id] = MadeCall(each.name, each.shown)
        return self.lines

    async def make(self, wanted: Iterable[int]) -> dict[int, Settled]:
        """Make the calls that have not begun, and return the answers of those that have one.

        That is at least one, or none where a person is asked about each of them, and no other call runs any more.
        """
        ids = [*wanted]
        begun = [
            self.pending[each] for each in ids if each in self.pending.keys() - self._tasks.keys() - self.asked.keys()
        ]
        new = [each for each in begun if each.id not in self.made and not self.functions.by_name[each.name].read_only]
        if new:
            await self.journal(self.expect(new))
        if len(ids) == len(begun) == 1 and not self._tasks:
            # Most scripts wait for one call after the other: a task for each would cost as much as the call.
            answer = await self._make(begun[0])
            return {} if answer is None else {self.pending.pop(ids[0]).id: answer}
        for each in begun:
            self._tasks[each.id] = asyncio.create_task(self._make(each))
        while not any(each in self.answers for each in ids):
            running = [self._tasks[each] for each in ids if each in self._tasks]
            if not running:
                await self.finish()
                break
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            self._collect()
        return {each: self.answers.pop(each) for each in ids if each in self.answers}

    async def finish(self) -> None:
        """Wait for the calls that the script did not wait for, as one that was sent cannot be taken back."""
        if self._tasks:
            await asyncio.wait(self._tasks.values())
        self._collect()

    async def aclose(self) -> None:
        """Cancel what runs, if the caller is gone."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _collect(self) -> None:
        for call_id, task in [(each, task) for each, task in self._tasks.items() if task.done()]:
            del self._tasks[call_id]
            answer = task.result()
            if answer is not None:
                del self.pending[call_id]
                self.answers[call_id] = answer

    async def _make(self, call: PendingCall) -> Settled | None:
        """Make the call, and return its answer; None if a person is asked about it."""
        context = self.context._replace(approval=call.ticket, idempotency_key=None, via=(*self.context.via, VIA))
        wire = self.functions.by_name[call.name].definition.wire
        before = in_script.set(True)
        try:
            result = await self.context.tools.execute(ToolCall(f"code_{token_hex(8)}", wire, call.arguments), context)
        finally:
            in_script.reset(before)
        asked = result.metadata.get("approval")
        if result.status is ToolStatus.DENIED and isinstance(asked, Mapping):
            self.asked[call.id] = cast("Mapping[str, object]", asked)
            call.ticket = str(self.asked[call.id]["id"])
            self.made.pop(call.id, None)
            return None
        if (ran := result.metadata.get("ran")) is not None:
            self.ran.append({"name": call.name, "line": call.line, "arguments": ran})
        if call.id in self.made:
            self.made[call.id] = self.made[call.id]._replace(outcome=result.status.value)
        return value_of(result)


def line_of(code: str, offset: int, filename: str) -> int:
    """Return the line of a place in the script, which the interpreter counts in bytes; 0 for code of `eval`."""
    return 0 if filename.startswith("<string>") else code.encode()[:offset].count(b"\n") + 1
