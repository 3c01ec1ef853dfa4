"""The sessions of one host: created, found, loaded again after a restart, ended, and their metrics."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import NamedTuple, Self

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from toolplug.catalog.call import Principal
from toolplug.catalog.text import cleaned, counted
from toolplug.config.quotas import Owner, quota_exceeded
from toolplug.errors import ApiError, SessionGone, SessionNotFound, StoreConflict, StoreRefused
from toolplug.execution.accounting import audit, cumulated
from toolplug.sessions.expiry import REMEMBERED, kept_sign, latest_expiry
from toolplug.sessions.plans import Planner
from toolplug.sessions.record import (
    SessionState,
    check_code,
    is_token_of,
    new_code,
    new_token,
    read_state,
    record_key,
    shown,
    state_bytes,
    token_digest,
)
from toolplug.sessions.session import Session
from toolplug.sessions.shared import ReservedNames, SessionCounters, SessionLimits, SessionServices
from toolplug.sessions.stored import stored_codes
from toolplug.stores.store import Store

_LOG = logging.getLogger("toolplug.sessions")


class Created(NamedTuple):
    """A new session and the token of its plugin, which is kept nowhere and shown once."""

    session: Session
    token: str


def _unheard(_: object) -> None:
    """Tell nobody that a session begins or is over."""


class Sessions:
    """Every live session of this process; used inside `async with`, on one event loop.

    `over` hears the code of each that is over.

    Entering loads the sessions that the store has (10,000 take about a second), unless another process serves them:
    then each is loaded when it is asked for.
    """

    def __init__(
        self,
        store: Store,
        planner: Planner,
        neighbours: ReservedNames,
        *,
        limits: SessionLimits,
        begun: Callable[[Principal], object] = _unheard,
        over: Callable[[str], object] = _unheard,
        serving: bool = True,
    ) -> None:
        self._serving = serving
        self._begun = begun
        self._over = over
        self._live: dict[str, Session] = {}
        self._creating = 0
        self._owned: Counter[Owner] = Counter()
        self._shared = SessionServices(
            store=store,
            limits=limits,
            planner=planner,
            neighbours=neighbours,
            forget=self._forget,
        )

    @property
    def limits(self) -> SessionLimits:
        """What the operator allows."""
        return self._shared.limits

    @property
    def counters(self) -> SessionCounters:
        """What was counted."""
        return self._shared.counters

    @property
    def live(self) -> tuple[Session, ...]:
        """The sessions that are not over."""
        return tuple(self._live.values())

    async def __aenter__(self) -> Self:
        if not self._serving:
            return self
        try:
            async for codes in stored_codes(self._shared.store):
                await asyncio.gather(*(self._load_at_start(code) for code in codes))
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def stop(self) -> None:
        """End every stream and every waiting call now: a server that waits for its connections would wait for them."""
        for session in self.live:
            session.stop()

    async def aclose(self) -> None:
        """End every stream and every waiting call; the sessions go on where they are loaded next."""
        self.stop()
        await self._shared.background.aclose()
        self._live.clear()
        self._owned.clear()

    async def create(
        self, principal: Principal, *, plugin_type: str = "", ttl_s: float | None = None, request_id: str = ""
    ) -> Created:
        """A new session of this principal's tenant.

        Raises `ApiError` (`too_many_sessions`), `QuotaExceeded` and `StoreError`.
        """
        if len(self._live) + self._creating >= self.limits.max_sessions:
            message = f"{counted(self.limits.max_sessions, 'session')} open already; end one, or wait until one expires"
            audit("session.create", "too_many_sessions", principal, "session", request_id)
            raise ApiError("too_many_sessions", message, retry_after_s=60.0)
        owners = ((principal.tenant,), (principal.tenant, principal.subject))
        for owner, limit in self.limits.quotas.levels("sessions", principal.tenant, principal.subject):
            if self._owned[owner] >= limit:
                audit("session.create", "quota_exceeded", principal, "session", request_id)
                raise quota_exceeded("sessions", owner, limit)
        self._creating += 1
        self._count(owners, 1)
        try:
            ttl_s = self.limits.ttl_s if ttl_s is None else ttl_s
            created = await self._created(principal, cleaned(plugin_type), ttl_s)
        finally:
            self._creating -= 1
            self._count(owners, -1)
        self.counters.created += 1
        self._begun(principal)
        audit("session.create", "done", principal, shown(created.session.code), request_id)
        return created

    async def find(self, code: str, tenant: str) -> Session:
        """The live session of this tenant.

        Raises `InvalidSessionCode`, `SessionNotFound` (another tenant's too), `SessionGone` and `StoreError`.
        """
        return await self._find(code, lambda state: state.tenant == tenant)

    async def with_token(self, code: str, token: str) -> Session | None:
        """The live session that this token opens; None where it is not its token. Raises like `find`."""
        try:
            return await self._find(code, lambda state: is_token_of(state.token_digest, token))
        except _Foreign:
            return None

    def known(self, code: str, tenant: str) -> Session:
        """The same as `find` for sessions of this process, without asking the store."""
        check_code(code)
        session = self._live.get(code)
        if session is None or session.tenant != tenant:
            raise SessionNotFound(code)
        session.check()
        return session

    def reconfigure(self, limits: SessionLimits, planner: Planner) -> None:
        """Hold every session to these from now on."""
        self._shared.limits, self._shared.planner = limits, planner
        for session in self.live:
            session.replanned()

    async def end(self, session: Session, principal: Principal, *, request_id: str = "") -> None:
        """End the session at once. Raises `StoreError`."""
        await session.end()
        audit("session.end", "done", principal, shown(session.code), request_id)

    async def _created(self, principal: Principal, plugin_type: str, ttl_s: float) -> Created:
        while True:
            code = new_code()
            token = new_token(code)
            now = self._shared.store.now()
            state = SessionState(
                tenant=principal.tenant,
                created_by=principal.subject,
                token_digest=token_digest(token),
                ttl_s=ttl_s,
                plugin_type=plugin_type,
                updated_at=now,
            )
            try:
                record = await self._shared.store.commit(
                    record_key(code), state_bytes(state), expected=0, ttl_s=ttl_s * REMEMBERED
                )
            except StoreConflict:
                continue  # the code is taken
            return Created(
                self._adopt(code, state, record, sign_at=self._shared.store.now(), expires_at=now + ttl_s), token
            )

    async def _find(self, code: str, opens: Callable[[SessionState], bool]) -> Session:
        check_code(code)
        session = self._live.get(code) or await self._load(code, opens)
        if session is None:
            raise SessionNotFound(code)
        if not opens(session.state):
            raise _Foreign(code)
        await session.expire()
        session.check()
        return session

    async def _load_at_start(self, code: str) -> None:
        """Load it, unless this toolplug cannot read it: one record keeps no host from starting."""
        try:
            await self._load(code)
        except StoreRefused as error:
            _LOG.error("%s cannot be loaded: %s", shown(code), error)

    async def _load(self, code: str, opens: Callable[[SessionState], bool] | None = None) -> Session | None:
        """The session as the store has it. One that is over raises `SessionGone` for those whom it opens to."""
        record = await self._shared.store.read(record_key(code))
        if record is None:
            return None
        state = read_state(record.value, self._shared.pool)
        expires_at = latest_expiry(record, state.ttl_s)
        if state.gone is None and expires_at > self._shared.store.now():
            return self._live.get(code) or self._adopt(
                code, state, record.revision, sign_at=kept_sign(record, state.ttl_s), expires_at=expires_at
            )
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
            if not self._owned[owner]:
                del self._owned[owner]


def _owners(state: SessionState) -> tuple[Owner, Owner]:
    """Whose quotas the session counts for."""
    return (state.tenant,), (state.tenant, state.created_by)


class _Foreign(SessionNotFound):
    """The session is there, and not for this caller."""


class SessionMetrics(Collector):
    """The metrics of one host's sessions; no code or token is a label."""

    def __init__(self, sessions: Sessions, namespace: str) -> None:
        self._sessions = sessions
        self._prefix = f"{namespace}_session"

    def collect(self) -> Iterator[Metric]:
        """Yield the families of sessions, streams, changes, events and the relay."""
        counters = self._sessions.counters
        yield self._live()
        yield self._streams()
        created = CounterMetricFamily(f"{self._prefix}_created", "Sessions that were created.")
        created.add_metric([], counters.created)
        yield created
        yield self._counted("ended", "Sessions that are over, by how they ended.", "reason", counters.ended)
        changes = CounterMetricFamily(
            f"{self._prefix}_changes", "Registrations and updates, by outcome.", labels=["kind", "outcome"]
        )
        for (kind, outcome), count in tuple(counters.changes.items()):
            changes.add_metric([kind, outcome], count)
        yield changes
        yield self._counted("events", "Events told to streams, each once.", "event", counters.events)
        yield self._counted("resyncs", "Streams that had to begin again.", "reason", counters.resyncs)
        yield from self._relay()

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names do not clash with a provider's, so nothing needs to be collected to find out."""
        return iter(())

    def _live(self) -> Metric:
        live = GaugeMetricFamily(f"{self._prefix}s", "Sessions by the state of their plugin.", labels=["plugin"])
        states = Counter(session.plugin_status for session in self._sessions.live)
        for status in ("attached", "waiting", "detached"):
            live.add_metric([status], states[status])
        return live

    def _streams(self) -> Metric:
        streams = GaugeMetricFamily(f"{self._prefix}_streams", "Open event streams.", labels=["role"])
        roles = Counter(reader.role for session in self._sessions.live for reader in session.feed.readers)
        for role in ("client", "plugin"):
            streams.add_metric([role], roles[role])
        return streams

    def _counted(self, name: str, text: str, label: str, counts: Counter[str]) -> Metric:
        family = CounterMetricFamily(f"{self._prefix}_{name}", text, labels=[label])
        for value, count in tuple(counts.items()):
            family.add_metric([value], count)
        return family

    def _relay(self) -> Iterator[Metric]:
        relayed = self._sessions.counters.relayed
        requests = CounterMetricFamily(
            f"{self._prefix}_relay_requests", "Requests to plugins, by how they ended.", labels=["outcome"]
        )
        for outcome, count in tuple(relayed.ended.items()):
            requests.add_metric([outcome], count)
        yield requests
        took = HistogramMetricFamily(
            f"{self._prefix}_relay_duration_seconds", "Time from the first sending of a request to its end."
        )
        took.add_metric([], cumulated(relayed.buckets), relayed.seconds)
        yield took
