"""Law 5 in a small world: two places, a queue of two, calls that end, hang, are abandoned, cancelled and told late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.execution.harness import Harness, turns, workers_alive
from tests.virtual_time import VirtualLoop

from toolplug.execution.limiters import ConcurrencyLimit

PLACES = 2
HURRIED_S, PATIENT_S = 10.0, 3600.0
"""In virtual time; a call also sees how much real time has passed since it began, which is next to nothing beside."""


class CallsOverPermits(RuleBasedStateMachine):
    """Calls of one tool behind two places; the model is the set of tools that run.

    `ended` more often than admitted, or less often, shows as a number of running tools that the places do not allow.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.harness = Harness()
        self.permits = ConcurrencyLimit(PLACES, 2, "plays")
        self.size = PLACES
        self.most = PLACES
        self.inside: dict[int, asyncio.Future[str]] = {}
        self.callers: list[asyncio.Task[Any]] = []
        self.begun = 0
        self.run(self.harness.__aenter__())

    def run(self, awaitable: Any) -> None:
        self.loop.run_until_complete(awaitable)
        self.loop.run_until_complete(turns(8))

    async def tool(self, call: Any, context: Any) -> str:
        manner = call.arguments["manner"]
        if manner == "raises at once":
            raise SystemExit
        if manner == "returns at once":
            return "done"
        number, self.begun = self.begun, self.begun + 1
        self.inside[number] = asyncio.get_running_loop().create_future()
        try:
            while True:
                try:
                    how = await asyncio.shield(self.inside[number])
                except asyncio.CancelledError:
                    if manner == "clings":
                        continue
                    raise
                if how == "raise":
                    raise ValueError
                return "done"
        finally:
            del self.inside[number]

    @precondition(lambda self: len(self.callers) < 6)
    @rule(manner=st.sampled_from(["waits", "clings", "raises at once", "returns at once"]), hurried=st.booleans())
    def call(self, manner: str, hurried: bool) -> None:
        timeout_s = HURRIED_S if hurried else PATIENT_S

        async def begin() -> None:
            made = self.harness.call(self.tool, {"manner": manner}, limiters=(self.permits,), timeout_s=timeout_s)
            self.callers.append(asyncio.ensure_future(made))

        self.run(begin())
        if hurried:
            self.run(asyncio.wait([self.callers[-1]]))

    @precondition(lambda self: self.inside)
    @rule(data=st.data(), how=st.sampled_from(["return", "raise"]), caller_too=st.booleans())
    def end(self, data: st.DataObject, how: str, caller_too: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.inside)))

        async def act() -> None:
            self.inside[number].set_result(how)
            if caller_too and self.callers:
                self.callers[0].cancel()

        self.run(act())
        self.forget()

    @precondition(lambda self: self.callers)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        caller = data.draw(st.sampled_from(range(len(self.callers))))

        async def act() -> None:
            self.callers[caller].cancel()

        self.run(act())
        self.forget()

    @rule(size=st.integers(0, 3))
    def resize(self, size: int) -> None:
        self.size = size

        async def act() -> None:
            self.permits.resize(size, 2)

        self.run(act())
        self.most = max(size, min(self.most, len(self.inside)))

    def forget(self) -> None:
        self.callers = [caller for caller in self.callers if not caller.done()]
        self.most = max(self.size, min(self.most, len(self.inside)))

    @invariant()
    def no_more_run_than_there_are_places(self) -> None:
        self.forget()
        assert len(self.inside) <= self.most

    @invariant()
    def what_runs_is_what_is_counted(self) -> None:
        assert self.harness.switch.running == self.harness.counters.in_flight == len(self.inside)

    @invariant()
    def nobody_waits_while_a_place_is_free(self) -> None:
        if len(self.inside) < self.size:
            assert len([caller for caller in self.callers if not caller.done()]) <= len(self.inside)

    def teardown(self) -> None:
        self.resize(PLACES)
        while self.inside or any(not caller.done() for caller in self.callers):
            for ending in list(self.inside.values()):
                if not ending.done():
                    ending.set_result("return")
            self.run(turns(1))

        async def all_places_are_back() -> None:
            admitted = [await self.permits.admit(0.0) is None for _ in range(PLACES)]
            assert admitted == [True] * PLACES
            assert len([caller for caller in self.callers if not caller.done()]) == 0
            assert self.harness.idle() == (0, 0, 0)
            assert workers_alive() <= 1

        self.permits.resize(PLACES, 0)
        self.run(all_places_are_back())
        self.run(self.harness.__aexit__())
        self.loop.close()


CallsOverPermits.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestPermitsAreBackExactlyOnce = pytest.mark.slow(pytest.mark.requirement("LAW-5")(CallsOverPermits.TestCase))
