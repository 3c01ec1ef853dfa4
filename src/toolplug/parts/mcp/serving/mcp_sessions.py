"""MCP sessions of clients of 2025-11-25 and earlier, and the host's state for MCP clients."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from secrets import token_urlsafe
from typing import NamedTuple

from toolplug.catalog.catalog import Catalog
from toolplug.host.host import Host
from toolplug.parts.mcp.input_rounds import OpenRounds
from toolplug.parts.mcp.running import McpClients
from toolplug.parts.mcp.serving.notifications import ListChangedNotifier, ResourceSubscriptions, Seen
from toolplug.parts.mcp.serving.server_endpoint import Client, ClientAnswer, McpServerEndpoint, Questions, RequestId
from toolplug.runtime.threads import in_own_thread
from toolplug.search.tools import FoundTools
from toolplug.stores.store import Store

IDLE_S = 1800.0
"""A session without a request and without an open stream for so long is over."""
MOST = 10_000
MOST_OF_ONE = 1_000
"""Of all principals, and of one. Beyond it a session is ended, and its client starts a new one: one that nothing runs
for, else the least recently used one; of the same principal, or of the one that has the most in the tenant that has."""

CallOff = Callable[[], None]


class SessionOwner(NamedTuple):
    """Whose an MCP session is: a principal, what its tools are chosen by, and the scope of what it brings."""

    tenant: str
    subject: str
    agent: str | None = None
    code: str | None = None
    scope: str = ""


class Handshake:
    """One initialized client.

    `owner` may use it; `seen` is what it has listed, `found` the tools that its searches have found.
    """

    __slots__ = ("client", "found", "id", "owner", "questions", "running", "seen", "stream", "subscriptions", "used_at")

    def __init__(self, session_id: str, owner: SessionOwner, client: Client) -> None:
        self.id: str = session_id
        self.owner: SessionOwner = owner
        self.client: Client = client
        self.questions: Questions = Questions()
        self.found: FoundTools = FoundTools()
        self.running: dict[RequestId, CallOff] = {}
        self.stream: CallOff | None = None
        self.seen: Seen = Seen()
        self.subscriptions: ResourceSubscriptions = ResourceSubscriptions()
        self.used_at: float = 0.0

    def remember_list(self, catalog: Catalog) -> None:
        self.seen = self.seen._replace(tools=catalog.etag)

    def cancel(self, request: object) -> None:
        """Cancel the running request of this id, if there is one."""
        if isinstance(request, str | int) and (call_off := self.running.get(request)) is not None:
            call_off()

    def end(self) -> None:
        """Cancel all running requests, and follow no resource any longer."""
        self.subscriptions.close()
        for call_off in [*self.running.values(), *([self.stream] if self.stream is not None else [])]:
            call_off()

    @property
    def busy(self) -> bool:
        """True if a request is running."""
        return bool(self.running) or self.stream is not None


class McpSessions:
    """All initialized clients, the least recently used first. `over` is called once with each that is forgotten."""

    def __init__(
        self, *, most: int = MOST, most_of_one: int = MOST_OF_ONE, over: Callable[[Handshake], object] = lambda _: None
    ) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._over = over
        self._loop = asyncio.get_running_loop()
        self._known: OrderedDict[str, Handshake] = OrderedDict()
        self._by_tenant: dict[str, dict[str, OrderedDict[str, Handshake]]] = {}
        self._looking: asyncio.TimerHandle | None = None

    def open(self, owner: SessionOwner, client: Client, session_id: str | None = None) -> Handshake:
        """Return a new session; `session_id` is that of one which another process has opened."""
        self._drop_idle()
        if len(self._of_principal(owner)) >= self._most_of_one:
            self.end(_least_used(self._of_principal(owner)))
        if len(self._known) >= self._most:
            self.end(_least_used(self._largest()))
        handshake = Handshake(session_id or token_urlsafe(24), owner, client)
        self._known[handshake.id] = handshake
        self._by_tenant.setdefault(owner.tenant, {}).setdefault(owner.subject, OrderedDict())[handshake.id] = handshake
        handshake.used_at = self._loop.time()
        self._look_later()
        return handshake

    def _of_principal(self, owner: SessionOwner) -> OrderedDict[str, Handshake]:
        """Return the sessions of a principal, the least recently used first."""
        return self._by_tenant.get(owner.tenant, {}).get(owner.subject, OrderedDict())

    def _largest(self) -> OrderedDict[str, Handshake]:
        """Return the sessions of the principal with the most of them, in the tenant with the most."""
        tenant = max(self._by_tenant.values(), key=lambda principals: sum(map(len, principals.values())))
        return max(tenant.values(), key=len)

    def get(self, session_id: str) -> Handshake | None:
        """Return the session of this id, of any owner, without using it."""
        return self._known.get(session_id)

    def find(self, id: str, owner: SessionOwner) -> Handshake | None:  # noqa: A002  the protocol's own name
        """Return the session of this id; None if there is none or it belongs to another principal."""
        self._drop_idle()
        handshake = self._known.get(id)
        if handshake is None or handshake.owner != owner:
            return None
        self._use(handshake)
        return handshake

    def end(self, handshake: Handshake) -> None:
        """Forget a session and cancel its requests."""
        if self._known.pop(handshake.id, None) is not None:
            self._forget(handshake)
            handshake.end()
            self._over(handshake)

    def _forget(self, handshake: Handshake) -> None:
        owner = handshake.owner
        principals = self._by_tenant[owner.tenant]
        sessions = principals[owner.subject]
        del sessions[handshake.id]
        if not sessions:
            del principals[owner.subject]
        if not principals:
            del self._by_tenant[owner.tenant]

    # What requests do with sessions, which other processes may serve as well.

    async def begin(self, owner: SessionOwner, client: Client) -> Handshake:
        """Return a new session. Raises `StoreError`."""
        return self.open(owner, client)

    async def find_shared(self, session_id: str, owner: SessionOwner) -> Handshake | None:
        """Return the session of this id and owner, None if there is none. Raises `StoreError`."""
        return self.find(session_id, owner)

    async def finish(self, handshake: Handshake) -> None:
        """Forget a session and cancel its requests, in all processes. Raises `StoreError`."""
        self.end(handshake)

    async def cancel(self, handshake: Handshake, request: object) -> None:
        """Cancel the running request of this id, in whichever process it runs. Raises `StoreError`."""
        handshake.cancel(request)

    async def take_answer(self, handshake: Handshake, answer: ClientAnswer) -> None:
        """Pass on a client's answer to the request that waits for it, in any process. Raises `StoreError`."""
        handshake.questions.take(answer)

    async def streams_here(self, handshake: Handshake) -> None:
        """Take note that this process has the client's newest stream, which ends others. Raises `StoreError`."""

    async def share_found(self, handshake: Handshake) -> None:
        """Let other processes know which deferred tools the client has found. Raises `StoreError`."""

    def stop(self) -> None:
        """Stop looking for expired sessions."""
        if self._looking is not None:
            self._looking.cancel()

    def _use(self, handshake: Handshake) -> None:
        handshake.used_at = self._loop.time()
        self._known.move_to_end(handshake.id)
        self._of_principal(handshake.owner).move_to_end(handshake.id)

    def _drop_idle(self) -> None:
        before = self._loop.time() - IDLE_S
        while self._known:
            oldest = next(iter(self._known.values()))
            if oldest.used_at > before:
                return
            if oldest.busy:
                self._use(oldest)
            else:
                self.end(oldest)

    def _look_later(self) -> None:
        """Set a timer for the next expiry, so that sessions expire also when no client comes."""
        if self._looking is None and self._known:
            oldest = next(iter(self._known.values()))
            self._looking = self._loop.call_at(oldest.used_at + IDLE_S, self._look)

    def _look(self) -> None:
        self._looking = None
        self._drop_idle()
        self._look_later()


def _least_used(sessions: OrderedDict[str, Handshake]) -> Handshake:
    """Return the least recently used session that nothing runs for, if there is one, else of all."""
    idle = (handshake for handshake in sessions.values() if not handshake.busy)
    return next(idle, next(iter(sessions.values())))


async def clients_of(host: Host) -> Serving:
    """Return the state of the clients of an entered host. Raises `StoreError`."""
    part = host.part(McpClients)
    assert part is not None, "this part is always open"
    return await part.serving()


class Serving:
    """Loads the protocol with `load` when the first client comes; it costs nothing before.

    `sessions` are those of initialized clients, `rounds` the questions to the users of later ones.
    """

    def __init__(self, load: Callable[[], McpServerEndpoint], sessions: McpSessions, store: Store) -> None:
        self._load = load
        self._endpoint: asyncio.Future[McpServerEndpoint] | None = None
        self.announcer: ListChangedNotifier = ListChangedNotifier()
        self.handshakes: McpSessions = sessions
        self.rounds: OpenRounds = OpenRounds(store)

    async def endpoint(self) -> McpServerEndpoint:
        """Return the protocol endpoint, which is loaded once, in a thread, within about a second.

        Raises `ModuleNotFoundError` without the extra `mcp`.
        """
        if self._endpoint is None:
            self._endpoint = asyncio.ensure_future(in_own_thread(self._load))
        loading = self._endpoint
        try:
            return await asyncio.shield(loading)
        except ImportError:
            self._endpoint = None
            raise

    def stop(self) -> None:
        """End the streams of clients that wait for changes."""
        self.announcer.stop()
        self.handshakes.stop()
