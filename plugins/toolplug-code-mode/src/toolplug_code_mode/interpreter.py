"""The interpreter: scripts run in a bounded pool of processes of its own, and stop where they call a tool."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any, NamedTuple

import pydantic_monty as monty

from toolplug_code_mode.calls import Calls, line_of
from toolplug_code_mode.functions import Functions
from toolplug_code_mode.limits import CHECKOUT_S, MAX_TRACEBACK, MORE_SUSPENSIONS, MOST_CHECKOUTS, SUSPENSIONS
from toolplug_code_mode.settings import Settings
from toolplug_code_mode.values import Printed

VERSION: str = monty.__version__
_FINDING = re.compile(r"script:(\d+):\d+: \w+\[([\w-]+)\] (.*)")
_SCRIPT, _INPUT = "script", "<python-input-0>"
"""What the script is called, by the checker and, whatever it was called, in tracebacks."""


class NotAccepted(Exception):
    """The script was not run: `lines` say what the checker or the parser does not accept."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        super().__init__("\n".join(lines))


class Ended(Exception):
    """The script, or the interpreter, has ended with an error, whose text the model gets."""


class Busy(Exception):
    """No process of the pool was free in time."""


class Paused(NamedTuple):
    """A script that waits for a person, as bytes with which any process can go on."""

    saved: bytes


class Interpreter:
    """A pool of processes, each of which begins with the first script that needs it; for use after `open`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool = monty.AsyncMonty(
            binary_path=_find_binary(),
            min_processes=0,
            max_processes=settings.processes,
            checkout_timeout=CHECKOUT_S,
            max_checkouts_per_worker=MOST_CHECKOUTS,
        )

    async def open(self) -> None:
        """Open the pool, which has no process yet."""
        await self._pool.__aenter__()

    async def aclose(self) -> None:
        """End the processes."""
        await self._pool.__aexit__(None, None, None)

    async def run(self, code: str, calls: Calls, printed: Printed) -> object:
        """Check a script, run it, and return its last value, or `Paused` if it waits for a person.

        Raises `NotAccepted`, `Ended` and `Busy`.
        """
        functions = calls.functions
        async with self._session(functions.stubs_for(code)) as session:
            try:
                snapshot = await session.feed_start(
                    code, external_lookup=_placeholders(functions), print_callback=printed
                )
            except monty.MontyTypingError as error:
                raise NotAccepted(_findings(error.display(), functions)) from None
            except monty.MontySyntaxError as error:
                raise NotAccepted([f"/code: {error.display('type-msg')}"]) from None
            return await _drive(snapshot, code, calls)

    async def go_on(self, saved: bytes, code: str, calls: Calls, printed: Printed) -> object:
        """Go on with a script that has paused, as `run`. `saved` must be what this library has saved itself."""
        async with self._session("") as session:
            calls.asked.clear()  # each is asked about again
            lookup = _placeholders(calls.functions)
            snapshot = await session.load_snapshot(saved, external_lookup=lookup, print_callback=printed)
            return await _drive(snapshot, code, calls)

    @asynccontextmanager
    async def _session(self, stubs: str) -> AsyncGenerator[monty.AsyncMontySession]:
        """Yield a process of its own. Raises `Busy`, and `Ended` for what goes wrong in it."""
        settings = self._settings
        limits: monty.ResourceLimits = {
            "max_feed_duration_secs": settings.max_s,
            "max_memory": settings.memory,
            "max_suspensions": SUSPENSIONS * settings.max_calls + MORE_SUSPENSIONS,
            "max_total_sleep_secs": settings.max_s,
        }
        checkout = self._pool.checkout(
            script_name=_SCRIPT,
            limits=limits,
            type_check=True,
            type_check_stubs=stubs,
            type_check_format="concise",
        )
        try:
            session = await checkout.__aenter__()
        except TimeoutError:
            raise Busy(f"all {settings.processes} processes for scripts are taken") from None
        try:
            yield session
        except monty.MontyCrashedError as error:
            raise Ended(f"the interpreter has ended: {error}"[:MAX_TRACEBACK]) from None
        except monty.MontyRuntimeError as error:
            raise Ended(error.display("traceback").replace(_INPUT, _SCRIPT)[-MAX_TRACEBACK:]) from None
        except monty.MontyError as error:
            raise Ended(str(error)[:MAX_TRACEBACK]) from None
        finally:
            await checkout.__aexit__(None, None, None)


async def _drive(snapshot: monty.AsyncSnapshot, code: str, calls: Calls) -> object:
    """Answer the script's calls until it has ended, or waits for a person."""
    while not isinstance(snapshot, monty.MontyComplete):
        if isinstance(snapshot, monty.AsyncNameLookupSnapshot):
            snapshot = await snapshot.resume_auto()
        elif isinstance(snapshot, monty.AsyncFutureSnapshot):
            answers = await calls.make(snapshot.pending_call_ids)
            if not answers:
                return Paused(snapshot.dump())
            snapshot = await snapshot.resume(answers)
        elif snapshot.is_os_function:
            snapshot = await snapshot.resume_not_handled()
        else:
            at = snapshot.position
            line, name = line_of(code, at.start, at.filename), str(snapshot.function_name)
            refusal = calls.note(snapshot.call_id, name, snapshot.args, snapshot.kwargs, line)
            snapshot = await snapshot.resume({"future": ...} if refusal is None else refusal)
    return snapshot.output


def _find_binary() -> Path | None:
    """Return the program of the processes as its wheel lists it; None to leave it to the library to find one."""
    # The library looks into the folder of scripts, which is another one where packages are on PYTHONPATH.
    try:
        listed = files("pydantic-monty-runtime") or ()
    except PackageNotFoundError:
        return None
    return next((Path(str(each.locate())) for each in listed if each.name in ("monty", "monty.exe")), None)


def _placeholders(functions: Functions) -> dict[str, Any]:
    """Return what stands for the functions where a script has one as a value; it is never called here."""

    async def placeholder(**_: object) -> None:
        raise LookupError

    return dict.fromkeys(functions.by_name, placeholder)


def _findings(text: str, functions: Functions) -> list[str]:
    """Return the checker's findings as lines `/code: line 3: …`, with the reason where a tool may not be called."""
    lines: list[str] = []
    for line in text.splitlines():
        found = _FINDING.match(line)
        if found is None:
            lines += [f"/code: {line}"] if line.strip() else []
            continue
        number, rule, said = found.groups()
        name = said.split("`")[1] if rule == "unresolved-reference" and "`" in said else ""
        if name in functions.left_out:
            said += "; scripts may not call this tool (the setting `callers`): call it without a script"
        elif name:
            said += "; find_functions says which functions there are"
        lines.append(f"/code: line {number}: {said} [{rule}]")
    return lines
