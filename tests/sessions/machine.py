"""Hypothesis plays with the small world."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.sessions.harness import TTL_S, Seams
from tests.sessions.model_harness import ModelHarness

from toolplug.parts.sessions.tools.session_tool import StreamRole

SLOT = st.sampled_from([0, 1])
WHICH = st.integers(0, 7)
NAMES = st.lists(st.sampled_from(["a", "b", "c"]), unique=True, max_size=3)
FEW_TURNS = st.integers(0, 6)
GAPS = st.lists(FEW_TURNS, min_size=3, max_size=3)


class SessionsMachine(RuleBasedStateMachine):
    """`seams` is what the world is made of; a subclass brings a bug in."""

    seams = Seams()

    @initialize(kept=st.sampled_from([6, 600]))
    def begin(self, kept: int) -> None:
        self.harness = ModelHarness(self.seams, kept_events=kept)
        for slot in (0, 1):
            self.harness.register(slot, ["a", "b"], bad=False, atomic=False)
            self.harness.open(slot, "plugin", resume=False)
            self.harness.open(slot, "client", resume=False)
        self.harness.turns(20)

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        try:
            self.harness.rest()
        finally:
            self.harness.close()

    @rule(slot=SLOT, names=NAMES, bad=st.booleans(), atomic=st.booleans(), turns=FEW_TURNS)
    def register(self, slot: int, names: list[str], bad: bool, atomic: bool, turns: int) -> None:
        self.harness.register(slot, names, bad=bad, atomic=atomic)
        self.harness.turns(turns)

    @rule(slot=SLOT, names=NAMES, expected=st.sampled_from([None, None, None, 1, 2]), turns=FEW_TURNS)
    def update(self, slot: int, names: list[str], expected: int | None, turns: int) -> None:
        self.harness.update(slot, names, expected)
        self.harness.turns(turns)

    @rule(slot=SLOT, role=st.sampled_from(["client", "plugin"]), resume=st.booleans(), turns=FEW_TURNS)
    def open(self, slot: int, role: StreamRole, resume: bool, turns: int) -> None:
        self.harness.open(slot, role, resume=resume)
        self.harness.turns(turns)

    @rule(which=st.none() | WHICH, turns=FEW_TURNS)
    def read(self, which: int | None, turns: int) -> None:
        self.harness.read(which)
        self.harness.turns(turns)

    @rule(which=WHICH, turns=FEW_TURNS)
    def cut(self, which: int, turns: int) -> None:
        self.harness.cut(which)
        self.harness.turns(turns)

    @rule(slot=SLOT, role=st.sampled_from(["client", "plugin"]), resume=st.booleans(), slow=FEW_TURNS, gaps=GAPS)
    def open_amid_changes(self, slot: int, role: StreamRole, resume: bool, slow: int, gaps: list[int]) -> None:
        self.harness.pace("read", 0, slow)
        self.harness.pace("events", 0, 6 - slow)
        self.harness.update(slot, ["a"], None)
        self.harness.turns(gaps[0])
        self.harness.open(slot, role, resume=resume)
        self.harness.turns(gaps[1])
        self.harness.update(slot, ["b"], None)
        self.harness.turns(gaps[2])
        self.harness.update(slot, ["c"], None)

    @rule(which=WHICH, turns=FEW_TURNS)
    def reconnect(self, which: int, turns: int) -> None:
        slot, role = self.harness.cut(which) or (0, "plugin")
        self.harness.turns(turns)
        self.harness.open(slot, role, resume=True)

    @rule(slot=SLOT, names=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3), turns=FEW_TURNS)
    def call(self, slot: int, names: list[str], turns: int) -> None:
        for name in names:
            self.harness.call(slot, name)
            self.harness.turns(turns)

    @rule(which=WHICH, turns=FEW_TURNS)
    def serve(self, which: int, turns: int) -> None:
        self.harness.read(None)
        self.harness.turns(turns)
        self.harness.answer(which, waiting=True)

    @rule(which=WHICH, wrong_session=st.booleans())
    def answer(self, which: int, wrong_session: bool) -> None:
        self.harness.answer(which, wrong_session=wrong_session)

    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        self.harness.cancel(which)

    @rule(operation=st.sampled_from(["read", "commit", "extend", "events"]), before=st.integers(0, 3), after=FEW_TURNS)
    def pace(self, operation: str, before: int, after: int) -> None:
        self.harness.pace(operation, before, after)

    @rule(slot=SLOT, how=st.sampled_from(["flood", "flood", "fail", "fail", "stop", "kill", "end", "wait", "expire"]))
    def disturb(self, slot: int, how: str) -> None:
        match how:
            case "flood":
                self.harness.flood(slot)
            case "fail":
                self.harness.fail(2 * slot)
            case "end":
                self.harness.end(slot)
            case "wait":
                self.harness.wait(0.6 + 31 * slot)
            case "expire":
                self.harness.wait(TTL_S + 1)
            case _:
                self.harness.restart(killed=how == "kill")
        self.harness.turns(3)
        self.harness.create(slot)

    @invariant()
    def what_is_listed_can_be_called(self) -> None:
        if hasattr(self, "harness"):
            self.harness.check()
