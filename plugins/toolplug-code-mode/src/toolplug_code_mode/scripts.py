"""Calls of `run_code`: a new run, or one that goes on from where a person was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

from toolplug import CallContext, ProviderContext, Sealer, ToolResult, ToolStatus
from toolplug.errors import (
    HostKeyError,
    QuotaExceeded,
    StoreConflict,
    StoreError,
    ToolError,
    ToolUnavailable,
    Unsealable,
)
from toolplug_code_mode.calls import Calls, MadeCall, PendingCall, list_made
from toolplug_code_mode.functions import Functions, FunctionTables
from toolplug_code_mode.interpreter import VERSION, Busy, Ended, Interpreter, NotAccepted, Paused
from toolplug_code_mode.limits import CHECKOUT_S, LOOK_S, MAX_ANSWER, MAX_LOOK_S, MAX_PAUSED
from toolplug_code_mode.runs import Run, equal_digest, find_runs, pack
from toolplug_code_mode.values import Printed, Settled, as_text, json_value, report_made

_GONE = (
    "no run of this script waits for this approval: it has ended or expired, or the script, the caller, its agent or"
    " its session is another one; call again without an approval"
)


class Scripts:
    """Runs the scripts of callers. `most`: the calls of one run."""

    def __init__(self, site: ProviderContext, interpreter: Interpreter, tables: FunctionTables, most: int) -> None:
        self._site = site
        self._interpreter = interpreter
        self._tables = tables
        self._most = most
        self._here: set[str] = set()

    async def run(self, code: str, context: CallContext) -> ToolResult:
        """Run a script, or go on with a paused run of it: that of the approval, or an equal one.

        Raises `ToolUnavailable` if the store fails, and `QuotaExceeded`.
        """
        # That of the script itself, where each script must be approved, the host has used up: it is not in the context.
        try:
            return await self._join(code, context, context.approval) or await self._begin(code, context)
        except QuotaExceeded:
            raise
        except StoreError as error:
            raise ToolUnavailable(f"its store cannot answer: {error}", code="store_unavailable") from error

    async def _join(self, code: str, context: CallContext, ticket: str | None) -> ToolResult | None:
        """Return the answer of a run of this call that has begun before; None to begin one."""
        store, equal = self._site.store(context.principal), equal_digest(code, context, await self._scope(context))
        watched: set[str] = set()
        pause_s = LOOK_S
        while True:
            runs = await find_runs(store, self._sealer, context.principal.tenant, equal)
            run = _choose(runs, ticket, watched, self._here)
            if run is None:
                return None if ticket is None else _refuse(_GONE)
            before = run.kept
            if before.state == "ended":
                return await self._open_answer(run)
            if before.state == "paused":
                result = await self._go_on(run, code, context, again=run.id in watched)
                if result is not None:
                    return result
            elif before.state == "lost" or (not await run.is_leased() and await run.lose()):
                return _outcome_unknown(await run.read_journal())
            watched.add(run.id)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_LOOK_S)

    async def _begin(self, code: str, context: CallContext) -> ToolResult:
        store, equal = self._site.store(context.principal), equal_digest(code, context, await self._scope(context))
        run = Run(store, self._sealer, context.principal.tenant, equal)
        calls = Calls(await self._tables.of(context.tools), context, self._most, run.journal)
        return await self._drive(run, code, calls, Printed(), None)

    async def _go_on(self, run: Run, code: str, context: CallContext, *, again: bool) -> ToolResult | None:
        """Go on with a paused run; None if another call does. `again`: another call has just asked whether it may."""
        try:
            facts, saved = await run.unseal()
        except Unsealable as error:
            return _refuse(f"the paused script cannot go on: it was {error}", await run.read_journal())
        functions = await self._tables.of(context.tools)
        different = _difference(facts, functions)
        if different:
            return _refuse(
                f"the paused script cannot go on: {different}; run a changed script", await run.read_journal()
            )
        calls = _restore(facts, Calls(functions, context, self._most, run.journal))
        if again:
            return _waiting(calls)
        if not await run.take(calls.expect(calls.pending.values())):
            return None
        printed = Printed(str(facts["printed"]), cast("int", facts["missing"]))
        return await self._drive(run, code, calls, printed, saved)

    async def _drive(self, run: Run, code: str, calls: Calls, printed: Printed, saved: bytes | None) -> ToolResult:
        """Run the script until it ends or pauses, and keep what is to be kept of it."""
        self._here.add(run.id)
        try:
            try:
                if saved is None:
                    value = await self._interpreter.run(code, calls, printed)
                else:
                    value = await self._interpreter.go_on(saved, code, calls, printed)
                if isinstance(value, Paused):
                    return await self._pause(run, code, calls, printed, value.saved)
                await calls.finish()
                result = _answer(value, printed)
            except Ended as error:
                await calls.finish()
                said = f"{error}\n[printed: {printed.text}]" if printed.beginning else str(error)
                result = ToolResult(status=ToolStatus.TOOL_ERROR, output=said + report_made(calls.lines))
            # Under its lease: without one, another process would find it lost.
            await run.end(_kept_answer(result))
            result = _with_changes(result, calls.ran)
        except NotAccepted as error:
            text = "\n".join(["the script was not run:", *error.lines[:20]])
            return ToolResult(status=ToolStatus.INVALID_ARGUMENTS, output=text)
        except Busy as error:
            if saved is not None:
                return await self._pause(run, code, calls, printed, saved)
            return ToolResult(status=ToolStatus.LIMITED, output=str(error), retry_after_s=CHECKOUT_S)
        except StoreConflict:
            # Another process has found it without a lease, and has said so to its caller: nothing more is made of it.
            await calls.finish()
            return _outcome_unknown(calls.lines)
        finally:
            await calls.aclose()
            self._here.discard(run.id)
            await run.end_lease()
        return result

    async def _pause(self, run: Run, code: str, calls: Calls, printed: Printed, saved: bytes) -> ToolResult:
        made = {each: call for each, call in calls.made.items() if each not in calls.pending}
        lines = list_made(made.values())
        facts: dict[str, object] = {
            "version": VERSION,
            "digests": {each.name: each.definition.ref.digest for each in calls.functions.named_in(code)},
            "pending": [
                [each.id, each.name, each.arguments, each.line, each.ticket] for each in calls.pending.values()
            ],
            "answers": calls.answers,
            "asked": {call_id: dict(asked) for call_id, asked in calls.asked.items()},
            "count": calls.count,
            "ran": calls.ran,
            "made": made,
            "printed": printed.beginning,
            "missing": printed.missing,
        }
        packed = pack(facts, saved)
        if len(packed) > MAX_PAUSED:
            text = f"the script holds {len(packed)} bytes where it must wait for a person, {MAX_PAUSED} are allowed"
            return ToolResult(status=ToolStatus.TOOL_ERROR, output=text + report_made(lines))
        tickets = [each.ticket for each in calls.pending.values() if each.ticket]
        await run.pause(lines, tickets, packed, _seconds_left(calls.asked.values()))
        return _waiting(calls)

    async def _open_answer(self, run: Run) -> ToolResult:
        try:
            facts, _ = await run.unseal()
        except Unsealable as error:
            return _refuse(f"the script has ended, and its answer was {error}")
        status, output = ToolStatus(str(facts["status"])), str(facts["output"])
        structured = json.loads(output) if status is ToolStatus.SUCCESS and output.startswith("{") else None
        return ToolResult(output=output, status=status, structured=structured)

    async def _scope(self, context: CallContext) -> str:
        """Return the scope of the credentials that the caller brings, by the key of the host; empty for none."""
        if not context.credentials:
            return ""
        return (await self._sealer()).digest(json.dumps(sorted(context.credentials.items())).encode())

    async def _sealer(self) -> Sealer:
        try:
            return await self._site.sealer()
        except (HostKeyError, LookupError) as error:
            sealed = "what a script has called of tools that are not read-only, and where it waits, is sealed"
            raise ToolError(f"{sealed}, and that is not possible here: {error}") from None


def _choose(runs: Sequence[Run], ticket: str | None, watched: set[str], here: set[str]) -> Run | None:
    """Return the run that a call is about: that of its ticket, or one that has paused, or was lost."""
    if ticket is not None:
        return next((run for run in runs if ticket in run.kept.tickets), None)

    def rank(run: Run) -> int:
        state, paused = run.kept.state, bool(run.kept.tickets)
        if state == "ended":
            return 0 if run.id in watched and paused else 9
        # An equal script is a run of its own, while the other one runs here; of one elsewhere it may be the repetition.
        return 1 if state == "paused" else 2 if paused else 9 if run.id in here else 3

    best = min(runs, key=rank, default=None)
    return None if best is None or rank(best) == 9 else best


def _with_changes(result: ToolResult, ran: Sequence[Mapping[str, object]]) -> ToolResult:
    """Return the result with the calls whose arguments a person has changed, as that of one such call has them."""
    if not ran:
        return result
    notes = [
        f"[a person has changed the arguments of {each['name']} (line {each['line']} of the script): "
        f"it ran with {json.dumps(each['arguments'], ensure_ascii=False)}]"
        for each in ran
    ]
    parts = [{"type": "text", "text": note} for note in notes]
    return result._replace(parts=(*result.parts, *parts), metadata={**result.metadata, "ran": {"calls": [*ran]}})


def _kept_answer(result: ToolResult) -> Mapping[str, object]:
    """Return the answer as other calls of a run that has paused may get it."""
    output = result.output
    if len(output) > MAX_ANSWER:
        output = "the script has ended, and its result is too long to be given twice"
    return {"output": output, "status": result.status.value}


def _difference(facts: Mapping[str, object], functions: Functions) -> str:
    """Return in words why a paused run does not fit any more; empty if it does."""
    if facts["version"] != VERSION:
        return f"the interpreter that it was saved by is {facts['version']}, and this one is {VERSION}"
    for name, digest in cast("Mapping[str, str]", facts["digests"]).items():
        function = functions.by_name.get(name)
        if function is None:
            return f"the tool {name} is gone, or scripts may not call it any more"
        if function.definition.ref.digest != digest:
            return f"the tool {name} has changed since"
    return ""


def _restore(facts: Mapping[str, object], calls: Calls) -> Calls:
    """Put what was kept of the calls of a paused run into those of this call."""
    pending = [
        PendingCall(*each) for each in cast("list[tuple[int, str, dict[str, object], int, str]]", facts["pending"])
    ]
    calls.pending.update({each.id: each for each in pending})
    calls.answers.update({int(key): each for key, each in cast("Mapping[str, Settled]", facts["answers"]).items()})
    asked = cast("Mapping[str, Mapping[str, object]]", facts["asked"])
    calls.asked.update({int(key): each for key, each in asked.items()})
    made = cast("Mapping[str, tuple[str, str, str | None]]", facts["made"])
    calls.made.update({int(key): MadeCall(*each) for key, each in made.items()})
    calls.count = cast("int", facts["count"])
    calls.ran += cast("list[dict[str, object]]", facts.get("ran", []))  # none in a run of an earlier release
    return calls


def _waiting(calls: Calls) -> ToolResult:
    """Return the answer of a script that waits for a person: its first question, and all if there are several."""
    waiting = dict(sorted(calls.asked.items()))
    questions = [
        {**asked, "arguments": calls.pending[call_id].arguments, "line": calls.pending[call_id].line}
        for call_id, asked in waiting.items()
    ]
    shown = [f"{calls.pending[each].shown} (line {calls.pending[each].line} of the script)" for each in waiting]
    said = " and ".join(shown)
    text = f"a person must approve {said} first; then repeat this call with approval {questions[0]['id']!r}"
    metadata: dict[str, object] = {"approval": questions[0]}
    if len(questions) > 1:
        metadata["approvals"] = questions
    return _refuse(text)._replace(metadata=metadata)


def _outcome_unknown(made: Sequence[str]) -> ToolResult:
    text = (
        'outcome of tool "run_code" is unknown: the process that ran this script has ended, and it is not run again'
        f"{report_made(made)}; write a script that does the rest"
    )
    return ToolResult(status=ToolStatus.TOOL_ERROR, output=text, metadata={"code": "outcome_unknown"})


def _refuse(reason: str, made: Sequence[str] = ()) -> ToolResult:
    text = f'tool "run_code" is not allowed: approval: {reason}{report_made(made)}'
    return ToolResult(status=ToolStatus.DENIED, output=text)


def _seconds_left(asked: Iterable[Mapping[str, object]]) -> float:
    """Return for how long the last of these questions can be decided."""
    ends = [datetime.fromisoformat(str(each["expires_at"])) for each in asked]
    return max((max(ends) - datetime.now(UTC)).total_seconds(), 1.0)


def _answer(value: object, printed: Printed) -> ToolResult:
    answer = {
        "result": json_value(value),
        **({"printed": printed.text} if printed.beginning or printed.missing else {}),
    }
    return ToolResult(output=as_text(answer), structured=answer)
