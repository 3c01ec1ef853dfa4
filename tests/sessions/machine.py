"""Hypothesis plays with the small world."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.sessions.ground import TTL_S, Seams
from tests.sessions.world import World

from toolplug.sessions.session_tool import StreamRole

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
        self.world = World(self.seams, kept_events=kept)
        for slot in (0, 1):
            self.world.register(slot, ["a", "b"], bad=False, atomic=False)
            self.world.open(slot, "plugin", resume=False)
            self.world.open(slot, "client", resume=False)
        self.world.turns(20)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.world.rest()
        finally:
            self.world.close()

    @rule(slot=SLOT, names=NAMES, bad=st.booleans(), atomic=st.booleans(), turns=FEW_TURNS)
    def register(self, slot: int, names: list[str], bad: bool, atomic: bool, turns: int) -> None:
        self.world.register(slot, names, bad=bad, atomic=atomic)
        self.world.turns(turns)

    @rule(slot=SLOT, names=NAMES, expected=st.sampled_from([None, None, None, 1, 2]), turns=FEW_TURNS)
    def update(self, slot: int, names: list[str], expected: int | None, turns: int) -> None:
        self.world.update(slot, names, expected)
        self.world.turns(turns)

    @rule(slot=SLOT, role=st.sampled_from(["client", "plugin"]), resume=st.booleans(), turns=FEW_TURNS)
    def open(self, slot: int, role: StreamRole, resume: bool, turns: int) -> None:
        self.world.open(slot, role, resume=resume)
        self.world.turns(turns)

    @rule(which=st.none() | WHICH, turns=FEW_TURNS)
    def read(self, which: int | None, turns: int) -> None:
        self.world.read(which)
        self.world.turns(turns)

    @rule(which=WHICH, turns=FEW_TURNS)
    def cut(self, which: int, turns: int) -> None:
        self.world.cut(which)
        self.world.turns(turns)

    @rule(slot=SLOT, role=st.sampled_from(["client", "plugin"]), resume=st.booleans(), slow=FEW_TURNS, gaps=GAPS)
    def open_amid_changes(self, slot: int, role: StreamRole, resume: bool, slow: int, gaps: list[int]) -> None:
        self.world.pace("read", 0, slow)
        self.world.pace("events", 0, 6 - slow)
        self.world.update(slot, ["a"], None)
        self.world.turns(gaps[0])
        self.world.open(slot, role, resume=resume)
        self.world.turns(gaps[1])
        self.world.update(slot, ["b"], None)
        self.world.turns(gaps[2])
        self.world.update(slot, ["c"], None)

    @rule(which=WHICH, turns=FEW_TURNS)
    def reconnect(self, which: int, turns: int) -> None:
        slot, role = self.world.cut(which) or (0, "plugin")
        self.world.turns(turns)
        self.world.open(slot, role, resume=True)

    @rule(slot=SLOT, names=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3), turns=FEW_TURNS)
    def call(self, slot: int, names: list[str], turns: int) -> None:
        for name in names:
            self.world.call(slot, name)
            self.world.turns(turns)

    @rule(which=WHICH, turns=FEW_TURNS)
    def serve(self, which: int, turns: int) -> None:
        self.world.read(None)
        self.world.turns(turns)
        self.world.answer(which, waiting=True)

    @rule(which=WHICH, wrong_session=st.booleans())
    def answer(self, which: int, wrong_session: bool) -> None:
        self.world.answer(which, wrong_session=wrong_session)

    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        self.world.cancel(which)

    @rule(operation=st.sampled_from(["read", "commit", "extend", "events"]), before=st.integers(0, 3), after=FEW_TURNS)
    def pace(self, operation: str, before: int, after: int) -> None:
        self.world.pace(operation, before, after)

    @rule(slot=SLOT, how=st.sampled_from(["flood", "flood", "fail", "fail", "stop", "kill", "end", "wait", "expire"]))
    def disturb(self, slot: int, how: str) -> None:
        match how:
            case "flood":
                self.world.flood(slot)
            case "fail":
                self.world.fail(2 * slot)
            case "end":
                self.world.end(slot)
            case "wait":
                self.world.wait(0.6 + 31 * slot)
            case "expire":
                self.world.wait(TTL_S + 1)
            case _:
                self.world.restart(killed=how == "kill")
        self.world.turns(3)
        self.world.create(slot)

    @invariant()
    def what_is_listed_can_be_called(self) -> None:
        if hasattr(self, "world"):
            self.world.check()
