"""A small world: two sessions of two tenants, their plugins, their readers and a host on one store that fails.

Whoever plays with it calls its methods in any order; what must hold is checked on the way, by what the store was given
(`Ledger`), and at the end, when everything has come to rest (`rest`). Time is virtual: the same play ends the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from tests.sessions.fixtures import definition
from tests.sessions.harness import Harness, Seams
from tests.sessions.observers import Call, StreamClient, Tools

from toolplug.catalog.call import CallContext, Principal, ToolCall
from toolplug.errors import ApiError, SessionGone, StoreError
from toolplug.parts.sessions.limits import MAX_WAITING_EVENTS
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.streams.events import EVERYBODY, STATUS, LogEntry
from toolplug.parts.sessions.tools.negotiation import Registration, ToolChanges
from toolplug.parts.sessions.tools.session_tool import StreamRole


class ModelHarness(Harness):
    """Every method begins something and lets it go as far as `turns` lets it."""

    def __init__(self, seams: Seams, *, kept_events: int) -> None:
        super().__init__(seams, kept_events=kept_events)
        self.clients: list[StreamClient] = []
        self.left: list[StreamClient] = []
        self.calls: list[Call] = []
        self.numbers = 0

    # What may happen.

    def create(self, slot: int) -> None:
        """A new session in the place of one that is over."""
        if self._session(slot) is None:
            self._go(self._create(slot))

    def register(self, slot: int, names: Sequence[str], *, bad: bool, atomic: bool) -> None:
        """Replace the set; one definition may be bad."""
        session = self._session(slot)
        if session is None:
            return
        wanted = {name: self._description(slot) for name in names}
        tools: list[object] = [definition(name, text) for name, text in wanted.items()]
        if bad:
            tools.insert(len(tools) // 2, {"name": "bad", "inputSchema": []})
        asked = Registration(plugin_type=f"p{slot}", tools=tools, atomic=atomic)
        self._change(session, lambda _: wanted, session.register(asked), set(names))

    def update(self, slot: int, names: Sequence[str], expected: int | None) -> None:
        """Add, remove and modify: each name by what it is now, in turn."""
        session = self._session(slot)
        if session is None:
            return
        there = session.state.tools.tools
        added = {name: self._description(slot) for name in names if name not in there}
        kept = [name for name in names if name in there]
        removed, modified = kept[::2], {name: self._description(slot) for name in kept[1::2]}
        changes = ToolChanges(
            added=[definition(name, text) for name, text in added.items()],
            removed=removed,
            modified=[definition(name, text) for name, text in modified.items()],
        )

        def after(tools: Tools) -> Tools:
            if set(added) & set(tools) or not {*removed, *modified} <= set(tools):
                return {"impossible": ""}
            return {name: text for name, text in tools.items() if name not in removed} | modified | added

        self._change(session, after, session.update(changes, "play", expected), None)

    def open(self, slot: int, role: StreamRole, *, resume: bool) -> None:
        """A stream: new, or going on from where another one of that session stopped."""
        session = self._session(slot)
        if session is not None:
            before = (
                [client for client in self.left if client.session.code == session.code and client.begun]
                if resume
                else []
            )
            self._go(self._open(session, role, before[-1] if before else None))

    def read(self, which: int | None) -> None:
        """One reader reads what waits, the others are slow; or all of them do."""
        clients = self.clients if which is None or not self.clients else [self.clients[which % len(self.clients)]]
        for client in clients:
            if client.waiting and (client.reading is None or client.reading.done()):
                client.reading = self._go(client.hear())

    def cut(self, which: int) -> tuple[int, StreamRole] | None:
        """A stream ends on its reader's side; whose it was."""
        if not self.clients:
            return None
        client = self.clients[which % len(self.clients)]
        self._run(self._now(lambda: self._cut(client)))
        return client.ledger.slot, client.reader.role

    def call(self, slot: int, name: str) -> None:
        """Somebody calls a tool of the session."""
        session = self._session(slot)
        if session is None:
            return
        self.numbers += 1
        ledger = self.ledgers[f"session/{session.code}"]
        call = Call(self.numbers, slot, ledger, name, session.revision)
        arguments = {"number": call.number, "slot": slot}
        context = CallContext(Principal(tenant=session.tenant))
        call.task = self._go(session.executor.execute(ToolCall(f"c{call.number}", name, arguments), context))
        self.calls.append(call)

    def cancel(self, which: int) -> None:
        """A caller goes away."""
        if self.calls:
            call = self.calls[which % len(self.calls)]
            call.cancelled = call.cancelled or not call.task.done()
            call.task.cancel()

    def answer(self, which: int, *, waiting: bool = False, wrong_session: bool = False) -> None:
        """A plugin answers one of the last requests that it has heard, by choice one that waits; or another does."""
        requests = [(client, request) for client in self.clients for request in client.requests.values()]
        heard = [(client, request["id"], self._call_of(request)) for client, request in requests]
        if waiting:
            heard = [(client, request, call) for client, request, call in heard if call.answer is None]
        if not heard:
            return
        client, request, call = heard[-1 - which % len(heard)]
        slot = 1 - client.ledger.slot if wrong_session else client.ledger.slot
        session = self._session(slot)
        if session is None or (not wrong_session and session is not client.session):
            return
        value = {"number": call.number, "slot": client.ledger.slot, "times": self.numbers}

        def taken() -> None:
            code = _refusal(lambda: session.relay.answer(request, value))
            if wrong_session:
                assert code == "request_not_found", "a session took the answer to another one's request"
            elif code is None:
                assert call.answer is None, "two answers were taken"
                call.answer = value

        self._run(self._now(taken))

    def flood(self, slot: int) -> None:
        """More events than a reader holds, at once."""
        session = self._session(slot)
        if session is not None:
            entry = LogEntry(STATUS, EVERYBODY, b'{"sessionCode":"%s"}' % session.code.encode())
            raw = b"%s %s 0\n%s" % (entry.event.encode(), entry.audience.encode(), entry.data)
            self._run(self.inner.extend(f"session/{session.code}", events=[raw] * (MAX_WAITING_EVENTS + 1)))

    def end(self, slot: int) -> None:
        """Somebody ends the session."""
        session = self._session(slot)
        if session is not None:
            self._go(self._quietly(session.end()))

    def restart(self, *, killed: bool) -> None:
        """The host stops, or dies without a word, and starts again on the same store; nobody stays with it."""
        if killed:
            self.store.down = True
        self._run(self._now(self._leave))
        self.begin_again()

    # What must hold.

    def check(self) -> None:
        """At any moment: what is listed is what can be called, and no more waits than may."""
        for session in filter(None, map(self._session, range(len(self.slots)))):
            names = list(session.state.tools.tools)
            assert list(session.executor.catalog) == (names if session.reachable else [])
            assert session.revision <= self.ledgers[f"session/{session.code}"].revision

    def rest(self) -> None:
        """Everything heals and comes to an end: everybody knows all that was written, and nothing is left."""
        self.heal()
        self._settle()
        for client in self.clients:
            assert client.over or not client.ledger.over, "a stream outlived its session"
            assert client.over or client.revision == client.ledger.revision, f"a reader stopped at {client.revision}"
        self._renew_plugins()
        self._check_leases()
        self.wait(35.0)
        self._settle()
        assert not self.work, "work that never ends"
        for call in self.calls:
            call.check()
        self._run(self._now(self._leave))
        self.come_to_nothing()

    def _renew_plugins(self) -> None:
        """Every plugin's streams end, and one of each opens."""
        for client in [client for client in self.clients if client.reader.role == "plugin"]:
            self._run(self._now(partial(self._cut, client)))
        for slot in range(len(self.slots)):
            self.open(slot, "plugin", resume=True)
        self._settle()

    def _call_of(self, request: Mapping[str, Any]) -> Call:
        number = request["arguments"]["number"]
        return next(call for call in self.calls if call.number == number)

    def _check_leases(self) -> None:
        """A request that waits has been sent on a stream that is open, if one is."""
        for call in self.calls:
            plugins = [client for client in self.clients if client.reader.role == "plugin" and not client.over]
            open_clients = [client for client in plugins if client.ledger is call.ledger]
            if call.task.done() or not open_clients:
                continue
            heard = [request["arguments"]["number"] for client in open_clients for request in client.requests.values()]
            assert call.number in heard, f"call {call.number} waits, and no open stream was asked"

    # How it is done.

    async def _open(self, session: Session, role: StreamRole, before: StreamClient | None) -> None:
        after = None if before is None else str(before.last_id)
        try:
            reader = await session.open_stream(role, after)
        except (StoreError, SessionGone):
            return
        self.clients.append(StreamClient(session, self.ledgers[f"session/{session.code}"], reader, before))

    def _cut(self, client: StreamClient) -> None:
        self.clients.remove(client)
        if client.reading is not None:
            client.reading.cancel()
        client.session.close_stream(client.reader)
        self.left.append(client)

    def _leave(self) -> None:
        """Everybody who waits for the host goes away."""
        for call in self.calls:
            call.cancelled = call.cancelled or not call.task.done()
        for client in [*self.clients]:
            self._cut(client)
        for task in self.work:
            task.cancel()

    def _change(
        self,
        session: Session,
        after: Callable[[Tools], Tools],
        change: Coroutine[Any, Any, Any],
        names: set[str] | None,
    ) -> None:
        ledger = self.ledgers[f"session/{session.code}"]

        async def changed() -> None:
            try:
                done = await change
            except (ApiError, SessionGone, StoreError):
                return
            assert done.revision <= ledger.revision, "acknowledged before it was written"
            assert names is None or set(ledger.history[done.revision]) == names, "not what was registered"

        ledger.under_way.append(after)
        self._go(changed())

    async def _quietly(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except (StoreError, SessionGone):
            return

    def _settle(self) -> None:
        """Let every reader read all that there is, with a store that works."""
        for _ in range(2):
            for _ in range(100):
                self.turns(8)
                if not any(client.waiting for client in self.clients):
                    break
                self.read(None)
            # A follower that met a failing store looks again after half a second.
            self.wait(1.0)

    def _description(self, slot: int) -> str:
        self.numbers += 1
        return f"s{slot} {self.numbers}"


def _refusal(act: Callable[[], None]) -> str | None:
    """Why it was refused, None where it was not."""
    try:
        act()
    except ApiError as refusal:
        return refusal.code
    return None
