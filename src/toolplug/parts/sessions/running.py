"""The sessions of a running host, with the queued calls of their tools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack

from toolplug.catalog.definition import Offered
from toolplug.catalog.plan import Tool
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.plans import ToolPolicy
from toolplug.part_protocols.host_part import AWAY, HostSession, HostSessions, PartGate, PartServices, RunningPart
from toolplug.parts.sessions.limits import SessionLimits
from toolplug.parts.sessions.queued_calls import QueuedCalls
from toolplug.parts.sessions.service import SessionMetrics, Sessions
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.settings import SessionSettings
from toolplug.parts.sessions.tools.session_tool import KIND, SessionPlanner


async def open_sessions(services: PartServices, settings: SessionSettings) -> RunningSessions:
    """Open the part: load the sessions of the store, if this process serves them. Raises `StoreError`."""
    running = RunningSessions(services, settings)
    await running.load()
    return running


class RunningSessions(RunningPart[SessionSettings]):
    """The sessions of one host, and the calls of their tools whose callers fetch the result later."""

    def __init__(self, services: PartServices, settings: SessionSettings) -> None:
        self._services = services
        self._settings = settings
        self._life = AsyncExitStack()
        self.service: Sessions = Sessions(
            services.store,
            self._planner(),
            self,
            limits=self._limits(),
            begun=services.session_begun,
            over=services.session_over,
            serving=services.serving,
            processes=services.processes,
        )
        self.sessions: HostSessions | None = self.service
        self.queued: QueuedCalls = QueuedCalls(services.store, services.tools.executor_for, services.processes)

    async def load(self) -> None:
        """Load the sessions of the store. Raises `StoreError`."""
        async with AsyncExitStack() as life:
            await life.enter_async_context(self.service)
            metrics = SessionMetrics(self.service, self._services.namespace).as_collector()
            self._services.metrics.register(metrics)
            life.callback(self._services.metrics.unregister, metrics)
            life.push_async_callback(self.queued.aclose)
            self._life = life.pop_all()

    def begin(self) -> None:
        """Finish the calls that a process which has ended did not."""
        if self._services.serving:
            self.queued.resume(self.service.load)

    def configure(self, settings: SessionSettings | None) -> None:
        """Replace the limits and the plans of all sessions."""
        self._settings = settings or SessionSettings()
        self.service.reconfigure(self._limits(), self._planner())

    async def aclose(self) -> None:
        """End every stream and waiting call; sessions and queued calls stay in the store."""
        await self._life.aclose()

    async def finish(self) -> None:
        """Keep the results of queued calls."""
        await self.queued.finish()

    def stop(self) -> None:
        """End every stream and waiting call now."""
        self.service.stop()

    def explain(self, name: str, tool: Tool | None, session: HostSession | None) -> Iterator[PartGate]:
        """Yield whether the application of a lent tool is there, or the policy that hides the tool of this name."""
        if not isinstance(session, Session):
            return
        if tool is None:
            if self._settings.policy == "disable" and name in session.state.tools.tools:
                detail = "the session was lent it, and the policy of sessions is disable"
                yield PartGate("policy", detail, self._services.origin("sessions", "policy"), "")
        elif tool.plan.ref.kind == KIND:
            away = None if session.reachable else AWAY
            known = self.service.serving
            state = f"application {session.plugin_status}" if known else "GET /v1/explain of the running host tells"
            yield PartGate("session", away, "POST /api/sessions/{code}/register-tools", state)

    # The methods of `ReservedNames`, for the sessions.

    def owner_of(self, tenant: str, name: str) -> str | None:
        """Return the owner of this name in the catalogs of the tenant; None if the name is free."""
        return self._services.tools.owner_of(tenant, name)

    def default_tools(self, tenant: str) -> ToolExecutor | None:
        """Return the tools of a session without registered tools; None if no toolset is configured for it."""
        toolset = self._settings.default_toolset
        return None if toolset is None else self._services.tools.toolset(tenant, toolset)

    def _planner(self) -> SessionPlanner:
        policy = ToolPolicy(self._settings.policy, self._services.origin("sessions", "policy"))
        offered = Offered(self._settings.offer, self._services.origin("sessions", "offer"))
        return SessionPlanner(self._services.calls, policy, offered)

    def _limits(self) -> SessionLimits:
        settings = self._settings
        return SessionLimits(
            ttl_s=settings.ttl,
            grace_s=settings.grace,
            max_tools=settings.max_tools,
            max_updates_per_minute=settings.max_updates_per_minute,
            max_waiting_calls=settings.max_waiting_calls,
            max_sessions=settings.max_sessions,
            quotas=self._services.quotas(),
        )
