"""Sessions of one host: creating, finding and ending them, loading them after a restart, and their metrics."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple, Self, get_args

from toolplug import library_types
from toolplug.catalog.call import Principal, check_code
from toolplug.catalog.text import clean_text, pluralize
from toolplug.errors import ApiError, RecordDamaged, SessionGone, SessionNotFound, StoreConflict, StoreRefused
from toolplug.execution.accounting import audit
from toolplug.execution.metrics import UncheckedCollector, counter_family, cumulate, gauge_family
from toolplug.host.quotas.settings import Owner, quota_exceeded
from toolplug.parts.sessions.expiry import REMEMBERED, kept_sign, latest_expiry
from toolplug.parts.sessions.limits import SessionLimits
from toolplug.parts.sessions.peers.peers import Peers
from toolplug.parts.sessions.peers.shared_records import NewSession, NewSessions
from toolplug.parts.sessions.record import (
    TOKEN_BEGIN,
    SessionState,
    abbreviate_code,
    code_of_token,
    is_token_of,
    new_code,
    new_token,
    read_state,
    record_key,
    state_bytes,
    token_digest,
)
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.shared import ReservedNames, SessionCounters, SessionServices, SessionTypes
from toolplug.parts.sessions.stored import stored_codes
from toolplug.parts.sessions.tools.session_tool import PluginStatus, SessionPlanner, StreamRole
from toolplug.runtime.tasks import SingleFlight
from toolplug.stores.store import Store

COUNTED_S = 10.0
"""Seconds for which a count of the sessions that other processes have created is used."""
_LOG = logging.getLogger("toolplug.sessions")


class SessionCreated(NamedTuple):
    """A new session and the token of its plugin, of which only the digest is stored."""

    session: Session
    token: str


class Sessions:
    """The live sessions of this process; used inside `async with`, on one event loop.

    `begun` is called with the creator of each new session, `over` with the code of each that has ended. If `serving`,
    entering loads the sessions in the store (10,000 take about a second); else another process serves them, and each is
    loaded on demand. `processes` are those that serve the same sessions; None where this one serves them alone.
    """

    def __init__(
        self,
        store: Store,
        planner: SessionPlanner,
        neighbours: ReservedNames,
        *,
        limits: SessionLimits,
        begun: Callable[[Principal], object] = lambda _: None,
        over: Callable[[str], object] = lambda _: None,
        serving: bool = True,
        processes: library_types.Processes | None = None,
    ) -> None:
        self.serving: bool = serving
        self._begun = begun
        self._over = over
        self._live: dict[str, Session] = {}
        self._creating = 0
        self._counted_until = 0.0
        self._counting = SingleFlight(self._count_all, "toolplug-sessions-count")
        self._owned: Counter[Owner] = Counter()
        self._new = NewSessions(store, self._lives)
        self._peers = None
        if processes is not None and processes.joined:
            self._peers = Peers(store, processes, self._live.get, lambda: self.live)
        self._shared = SessionServices(
            store=store,
            limits=limits,
            planner=planner,
            neighbours=neighbours,
            forget=self._forget,
            peers=None if self._peers is None else self._peers.records,
        )

    @property
    def token_prefixes(self) -> tuple[str, ...]:
        """What the tokens of plugins begin with."""
        return (TOKEN_BEGIN,)

    def code_of_token(self, token: str) -> str | None:
        """Return the session code in a plugin token; None for a malformed token."""
        return code_of_token(token)

    @property
    def limits(self) -> SessionLimits:
        """The current limits of the operator."""
        return self._shared.limits

    @property
    def counters(self) -> SessionCounters:
        """The counters of all sessions since the start."""
        return self._shared.counters

    @property
    def types(self) -> SessionTypes:
        """The kinds of applications that this process has seen."""
        return self._shared.types

    @property
    def live(self) -> tuple[Session, ...]:
        """The sessions that have not ended, as far as this process knows."""
        return tuple(self._live.values())

    async def __aenter__(self) -> Self:
        if not self.serving:
            return self
        try:
            if self._peers is not None:
                await self._peers.__aenter__()
            async for codes in stored_codes(self._shared.store):
                await asyncio.gather(*map(self.load, codes))
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def stop(self) -> None:
        """End every stream and waiting call now, so that a server that waits for its connections can stop."""
        for session in self.live:
            session.stop()

    async def aclose(self) -> None:
        """End every stream and waiting call; the sessions stay in the store, from which the next process loads them."""
        self.stop()
        if self._peers is not None:
            await self._peers.__aexit__(None, None, None)
        await self._counting.aclose()
        await self._shared.background.aclose()
        self._live.clear()
        self._owned.clear()

    async def create(
        self, principal: Principal, *, plugin_type: str = "", ttl_s: float | None = None, request_id: str = ""
    ) -> SessionCreated:
        """Create a session of the principal's tenant. Raises `ApiError` (also for a quota) and `StoreError`."""
        await self._count_others()
        # Those that are being created count, as the store is awaited before they are live.
        if len(self._live) + self._creating >= self.limits.max_sessions:
            message = (
                f"{pluralize(self.limits.max_sessions, 'session')} open already; end one, or wait until one expires"
            )
            audit("session.create", "too_many_sessions", principal, "session", request_id)
            raise ApiError("too_many_sessions", message, retry_after_s=60.0)
        self._creating += 1
        try:
            ttl_s = self.limits.ttl_s if ttl_s is None else ttl_s
            created = await self._create(principal, clean_text(plugin_type), ttl_s, request_id)
        finally:
            self._creating -= 1
        self.counters.created += 1
        self._begun(principal)
        audit("session.create", "done", principal, abbreviate_code(created.session.code), request_id)
        return created

    async def find(self, code: str, tenant: str) -> Session:
        """Return the live session of this tenant.

        Raises `InvalidSessionCode`, `SessionNotFound` (also for another tenant's), `SessionGone` and `StoreError`.
        """
        return await self._find(code, lambda state: state.tenant == tenant)

    async def bring(self, code: str) -> Session:
        """Return the live session of this code, of any tenant, as new as this call. Raises like `find`."""
        return await self._find(code, lambda _: True)

    async def with_token(self, code: str, token: str) -> Session | None:
        """Return the live session if this is its plugin token, else None. Raises like `find`.

        The session is as this process knows it, since its token never changes: `fresh` makes it current.
        """
        try:
            return await self._find(code, lambda state: is_token_of(state.token_digest, token), fresh=False)
        except _Foreign:
            return None

    async def load(self, code: str) -> Session | None:
        """Return the live session of this code, of any tenant; None if there is none. Raises `StoreError`.

        An unreadable record is logged and counts as none, so that it does not keep the host from starting.
        """
        try:
            return self._live.get(code) or await self._load(code)
        except StoreRefused as error:
            _LOG.error("%s cannot be loaded: %s", abbreviate_code(code), error)
            return None

    async def fresh(self, session: Session) -> None:
        """Take over what other processes have changed of a session before this call. Raises like `find`."""
        if self._peers is not None:
            await self._peers.fresh(session.code)
            session.check()

    def known_session(self, code: str, tenant: str) -> Session:
        """Return a live session of this process, like `find` but without reading the store."""
        check_code(code)
        session = self._live.get(code)
        if session is None or session.tenant != tenant:
            raise SessionNotFound(code)
        session.check()
        return session

    def reconfigure(self, limits: SessionLimits, planner: SessionPlanner) -> None:
        """Replace the limits and the plans of all sessions."""
        self._shared.limits, self._shared.planner = limits, planner
        for session in self.live:
            session.replan()

    async def end(self, session: Session, principal: Principal, *, request_id: str = "") -> None:
        """End the session at once, and audit it. Raises `StoreError`."""
        await session.end()
        audit("session.end", "done", principal, abbreviate_code(session.code), request_id)

    async def _create(self, principal: Principal, plugin_type: str, ttl_s: float, request_id: str) -> SessionCreated:
        while True:
            code = new_code()
            token = new_token(code)
            try:
                async with self._place(code, principal, ttl_s, request_id):
                    now = self._shared.store.now()
                    state = SessionState(
                        tenant=principal.tenant,
                        created_by=principal.subject,
                        token_digest=token_digest(token),
                        ttl_s=ttl_s,
                        plugin_type=plugin_type,
                        updated_at=now,
                    )
                    record = await self._shared.store.commit(
                        record_key(code), state_bytes(state), expected=0, ttl_s=ttl_s * REMEMBERED
                    )
            except StoreConflict:
                # Forty random bits: it happens, and the store alone can say so.
                continue  # the code is taken
            # A look at the sessions of all processes may have loaded it before the store's answer was here.
            session = self._live.get(code) or self._adopt(
                code, state, record, sign_at=self._shared.store.now(), expires_at=now + ttl_s
            )
            return SessionCreated(session, token)

    @asynccontextmanager
    async def _place(self, code: str, principal: Principal, ttl_s: float, request_id: str) -> AsyncGenerator[None]:
        """Count a session that is stored inside the block. Raises `QuotaExceeded` and `StoreError` on entering."""
        levels = [*self.limits.quotas.levels("sessions", principal.tenant, principal.subject)]

        def check(unstored: Counter[Owner]) -> None:
            for owner, limit in levels:
                # `unstored`: sessions that other processes are creating at this moment.
                if self._owned[owner] + unstored[owner] >= limit:
                    audit("session.create", "quota_exceeded", principal, "session", request_id)
                    raise quota_exceeded("sessions", owner, limit)

        if levels and self._peers is not None:
            await self._new.add(levels[0][0], NewSession(code, principal.tenant, principal.subject, ttl_s), check)
            yield
            return
        owners = ((principal.tenant,), (principal.tenant, principal.subject))
        # Without other processes what is counted here is all there is.
        check(Counter())
        self._count(owners, 1)
        try:
            yield
        finally:
            self._count(owners, -1)

    async def _lives(self, code: str) -> bool | None:
        """Return whether the session is live, after loading it; None if it has no record that can be read."""
        try:
            return True if code in self._live or await self._load(code, lambda _: True) else None
        except SessionGone:
            return False
        except StoreRefused:
            return None

    async def list_sessions(self) -> tuple[Session, ...]:
        """Return the live sessions of all processes. Raises `StoreError`."""
        if self._peers is not None:
            async for codes in stored_codes(self._shared.store):
                known = [code for code in codes if code in self._live]
                await asyncio.gather(*(self.load(code) for code in codes if code not in self._live))
                await asyncio.gather(*map(self._peers.fresh, known))
        return self.live

    async def _count_others(self) -> None:
        """Take over the sessions of all processes, if they may reach a limit. Raises `StoreError`."""
        if self._peers is not None and asyncio.get_running_loop().time() >= self._counted_until:
            await self._counting.join()

    async def _count_all(self) -> None:
        began = asyncio.get_running_loop().time()
        records = 0
        async for codes in stored_codes(self._shared.store, at_once=1000):
            # Keys only. Records are read where the number may reach a limit.
            records += len(codes)
        if records >= self.limits.max_sessions or self.limits.quotas.sets("sessions"):
            await self.list_sessions()
        # From the beginning of the count: what was created meanwhile may not be in it.
        self._counted_until = began + COUNTED_S

    async def _find(self, code: str, opens: Callable[[SessionState], bool], *, fresh: bool = True) -> Session:
        check_code(code)
        session = self._live.get(code)
        if session is None:
            session = await self._load(code, opens)
        elif fresh and self._peers is not None:
            await self._peers.fresh(code)
        if session is None:
            raise SessionNotFound(code)
        if not opens(session.state):
            raise _Foreign(code)
        # The timer may be late: a session that has expired is refused from the first moment on.
        await session.expire()
        session.check()
        return session

    async def _load(self, code: str, opens: Callable[[SessionState], bool] | None = None) -> Session | None:
        """Load a session from the store; None if none can be read, or if it is over and `opens` is None.

        Raises `SessionGone` for a session that is over, or `_Foreign` if `opens` refuses its state.
        """
        record = await self._shared.store.read(record_key(code))
        if record is None:
            return None
        try:
            state = read_state(record.value, self._shared.pool)
        except RecordDamaged as error:
            _LOG.error("%s counts as none until it expires: %s", abbreviate_code(code), error)
            return None
        expires_at = latest_expiry(record, state.ttl_s)
        if state.gone is None and expires_at > self._shared.store.now():
            # Again, after the store was awaited: another task may have loaded it meanwhile, and there must be one
            # object.
            session = self._live.get(code)
            if session is None:
                sign_at = kept_sign(record, state.ttl_s)
                session = self._adopt(code, state, record.revision, sign_at=sign_at, expires_at=expires_at)
                if session.peer is not None:
                    await session.peer.refresh()
            return session
        if opens is not None:
            if not opens(state):
                raise _Foreign(code)
            raise SessionGone(code, state.gone or "session_expired")
        return None

    def _adopt(self, code: str, state: SessionState, record: int, *, sign_at: float, expires_at: float) -> Session:
        session = Session(code, state, record, self._shared, sign_at=sign_at, expires_at=expires_at)
        self._live[code] = session
        self._count(_owners(state), 1)
        return session

    def _forget(self, code: str) -> None:
        session = self._live.pop(code, None)
        if session is not None:
            self._count(_owners(session.state), -1)
        self._over(code)

    def _count(self, owners: Iterable[Owner], change: int) -> None:
        for owner in owners:
            self._owned[owner] += change
            # A counter of zero is removed, since anybody can make sessions under any number of subjects.
            if not self._owned[owner]:
                del self._owned[owner]


def _owners(state: SessionState) -> tuple[Owner, Owner]:
    """Return the owners whose quotas the session counts for: its tenant, and the subject that created it."""
    return (state.tenant,), (state.tenant, state.created_by)


class _Foreign(SessionNotFound):
    """The session exists but is not for this caller."""


class SessionMetrics(UncheckedCollector):
    """The metrics of one host's sessions; no code or token is a label."""

    def __init__(self, sessions: Sessions, namespace: str) -> None:
        self._sessions = sessions
        self._prefix = f"{namespace}_session"

    def collect(self) -> Iterator[library_types.Metric]:
        """Yield the families of sessions, streams, changes, events and the relay."""
        counters, live, prefix = self._sessions.counters, self._sessions.live, self._prefix
        states = Counter(session.plugin_status for session in live)
        plugins = [(status, states[status]) for status in get_args(PluginStatus)]
        yield gauge_family(f"{prefix}s", "Sessions by the state of their plugin.", ["plugin"], plugins)
        roles = Counter(reader.role for session in live for reader in session.feed.readers)
        streams = [(role, roles[role]) for role in get_args(StreamRole)]
        yield gauge_family(f"{prefix}_streams", "Open event streams.", ["role"], streams)
        yield counter_family(f"{prefix}_created", "Sessions that were created.", [], [((), counters.created)])
        yield counter_family(
            f"{prefix}_ended", "Sessions that are over, by how they ended.", ["reason"], counters.ended.items()
        )
        yield counter_family(
            f"{prefix}_changes", "Registrations and updates, by outcome.", ["kind", "outcome"], counters.changes.items()
        )
        yield counter_family(
            f"{prefix}_events", "Events told to streams, each once.", ["event"], counters.events.items()
        )
        yield counter_family(
            f"{prefix}_resyncs", "Streams that had to begin again.", ["reason"], counters.resyncs.items()
        )
        relayed = counters.relayed
        yield counter_family(
            f"{prefix}_relay_requests", "Requests to plugins, by how they ended.", ["outcome"], relayed.ended.items()
        )
        took = library_types.HistogramMetricFamily(
            f"{prefix}_relay_duration_seconds", "Time from the first sending of a request to its end."
        )
        took.add_metric([], cumulate(relayed.buckets), relayed.seconds)
        yield took
