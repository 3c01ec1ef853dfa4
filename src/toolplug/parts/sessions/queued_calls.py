"""Queued calls, whose callers fetch the result later. Each is a record, which outlives the process.

The next process makes a call again where that is no second run: one to the application, which gets it under the same
id and answers once, and one of a tool that is read-only or idempotent. The outcome of any other is unknown then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, NamedTuple, NotRequired, TypedDict, cast

from toolplug.catalog.call import (
    ANONYMOUS,
    NO_CREDENTIALS,
    NO_TRACE_CONTEXT,
    CallContext,
    Principal,
    ToolCall,
    ToolResult,
    ToolStatus,
)
from toolplug.catalog.exact_json import dump_json, load_json
from toolplug.catalog.text import pluralize
from toolplug.cluster.processes import Processes
from toolplug.errors import AccessError, ApiError, InvalidJson, StoreConflict, StoreUnavailable
from toolplug.execution.executor import ToolExecutor
from toolplug.execution.idempotency import KeptResult, kept_result, outcome_unknown, result_again
from toolplug.execution.results import unavailable
from toolplug.parts.sessions.relay import is_request_id
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.shared import SessionTasks
from toolplug.parts.sessions.tools.executors import SessionRoute
from toolplug.parts.sessions.tools.session_tool import KIND
from toolplug.signatures.values import canonical, encode_value
from toolplug.stores.store import Store, every_key

_LOG = logging.getLogger("toolplug.sessions")

_PREFIX = "queued/"
_RETRY_S = 1.0

QueuedStatus = Literal["queued", "sent", "done"]
ExecutorFor = Callable[[Principal, str | None, str], ToolExecutor]
"""Returns the tools of a principal, by agent if any, with those of the session (code). Raises `AccessError`."""
LoadSession = Callable[[str], Awaitable[Session | None]]
"""Returns the live session of this code, None if there is none. Raises `StoreError`."""


class QueuedCall(NamedTuple):
    """The state of a queued call; `result` is None until it is done."""

    id: str
    call_id: str
    status: QueuedStatus
    result: ToolResult | None


class _StoredQueuedCall(TypedDict):
    call_id: str
    name: str
    arguments: str
    subject: str
    tenant: str
    scopes: list[str]
    agents: list[str] | None
    credential: NotRequired[str]  # absent in records of 0.1
    scope: NotRequired[str]  # of the credentials that the caller has brought; absent in records of 0.1
    agent: str | None
    approval: str | None
    trace: str
    trace_context: NotRequired[dict[str, str]]  # absent in records of 0.1
    runner: NotRequired[str]  # the name of the process that runs the call; absent in records of 0.1
    repeats: NotRequired[bool]  # the call may be made again; absent in records of 0.1
    deadline: float
    kept_s: float
    result: KeptResult | None


class QueuedCalls:
    """The queued calls of all sessions. Close it before the executors that it calls.

    `processes`: those that share the store; a call is run again when its own has ended.
    """

    def __init__(self, store: Store, executor_for: ExecutorFor, processes: Processes) -> None:
        self._store = store
        self._executor_for = executor_for
        self._processes = processes
        self._background = SessionTasks()
        self._running: Counter[str] = Counter()

    async def start(self, session: Session, call: ToolCall, context: CallContext, *, most: int, scope: str = "") -> str:
        """Store the call, run it in the background, and return the id of its result, which is the plugin's request id.

        `scope` is that of the credentials that the caller brings: its result is for who brings the same. Without
        `context.deadline` the deadline is now. Raises `ApiError` if `most` calls are queued already, and `StoreError`.
        """
        if self._running[session.code] >= most:
            message = f"{pluralize(most, 'call')} of this session waiting already; ask for their results first"
            raise ApiError("too_many_waiting_calls", message, retry_after_s=1.0)
        deadline = context.deadline if context.deadline is not None else asyncio.get_running_loop().time()
        principal = context.principal
        kept: _StoredQueuedCall = {
            "call_id": call.id,
            "name": call.name,
            "arguments": _text(call.arguments),
            "subject": principal.subject,
            "tenant": principal.tenant,
            # The caller's rights at the time of the call: its credential may be gone when another process makes the
            # call.
            "scopes": sorted(principal.scopes),
            "agents": None if principal.agents is None else sorted(principal.agents),
            "credential": principal.credential,
            "scope": scope,
            "agent": context.agent,
            "approval": context.approval,
            "trace": context.request_id,
            "trace_context": dict(context.trace_context),
            "runner": self._processes.name,
            "repeats": self._repeats(session, call.name, context),
            # Loop times mean nothing to another process; the store's clock is the common one.
            "deadline": self._store.now() + deadline - asyncio.get_running_loop().time(),
            "kept_s": session.state.ttl_s,
            "result": None,
        }
        call_id = session.relay.reserve(call.id)
        # Before the commit, which suspends: several calls at once must not all pass the check above.
        self._running[session.code] += 1
        try:
            await self._keep(session.code, call_id, kept)
        except BaseException:
            self._on_end(session, call_id)
            raise
        # Credentials are not stored: what another process goes on with has none.
        self._background.start(self._run(session, call_id, kept, context.credentials), "queued-call")
        return call_id

    async def look(
        self, session: Session, call_id: str, principal: Principal = ANONYMOUS, scope: str = ""
    ) -> QueuedCall:
        """Return the state of a call. Raises `ApiError` for an id that is not of this session, and `StoreError`.

        A principal whose credential names agents sees the calls of its own subject only, and each caller those of its
        own `scope`.
        """
        record = await self._store.read(_key(session.code, call_id)) if is_request_id(call_id) else None
        # A record that cannot be read counts as none, as it expires by itself and nobody could repair it.
        kept = None if record is None else _read(record.value, call_id)
        foreign = kept is not None and (
            (principal.agents is not None and kept["subject"] != principal.subject) or kept.get("scope", "") != scope
        )
        if kept is None or foreign:
            raise ApiError("request_not_found", "no queued call of this session has that id", param="id")
        if kept["result"] is not None:
            return QueuedCall(
                call_id, kept["call_id"], "done", result_again(kept["call_id"], kept["name"], kept["result"])
            )
        sent = await session.relay.is_sent(call_id)
        return QueuedCall(call_id, kept["call_id"], "sent" if sent else "queued", None)

    def resume(self, load: LoadSession) -> None:
        """Finish in the background the calls that a process which has ended did not, now and when one ends."""
        others = self._processes.others

        async def look() -> None:
            nonlocal others
            before, others = others, self._processes.others
            # One has ended; one that has begun leaves nothing to take over.
            if before - others:
                self._background.start(self._resume(load), "queued-calls")

        self._processes.listen(look)
        self._background.start(self._resume(load), "queued-calls")

    async def finish(self) -> None:
        """Keep the results of calls that have ended."""
        await self._background.wait()

    async def aclose(self) -> None:
        """Cancel running calls; the next process finishes them."""
        await self._background.aclose()

    async def _resume(self, load: LoadSession) -> None:
        while True:
            try:
                async for key in every_key(self._store, _PREFIX):
                    code, _, call_id = key.removeprefix(_PREFIX).partition("/")
                    await self._resume_one(load, code, call_id)
                return
            except StoreUnavailable as error:  # from the first again: what runs here by then is left alone
                _LOG.warning("queued calls cannot be looked for: %s; trying until they can", error)
                await asyncio.sleep(_RETRY_S)

    async def _resume_one(self, load: LoadSession, code: str, call_id: str) -> None:
        record = await self._store.read(_key(code, call_id))
        kept = None if record is None else _read(record.value, call_id)
        # In this order: what is done needs no runner, and the last question may ask the store.
        if record is None or kept is None or kept["result"] is not None or self._processes.runs(kept.get("runner", "")):
            return
        session = await load(code)
        if session is None:
            return
        kept["runner"] = self._processes.name
        repeats = kept.get("repeats", True)
        if not repeats:
            kept["result"] = kept_result(outcome_unknown(ToolCall(call_id, kept["name"], "")))
        try:
            # The revision decides which process takes the call: two may find it in the same second.
            await self._keep(code, call_id, kept, expected=record.revision)
        except StoreConflict:
            return  # another process has taken it
        if not repeats:
            return
        session.relay.reserve(kept["call_id"], call_id)
        self._running[code] += 1
        self._background.start(self._run(session, call_id, kept), "queued-call")

    def _repeats(self, session: Session, name: str, context: CallContext) -> bool:
        """Return whether the call may be made again when its process has ended."""
        try:
            catalog = self._executor_for(context.principal, context.agent, session.code).catalog
        except AccessError:
            # A refused call has no effect, however often it is made.
            return True  # it is refused each time
        tool = catalog.find(name) or (None if catalog.unavailable is None else catalog.unavailable.find(name))
        if tool is None or tool.definition.ref.kind == KIND:
            return True
        return bool(tool.definition.hints.read_only or tool.definition.hints.idempotent)

    async def _run(
        self, session: Session, call_id: str, kept: _StoredQueuedCall, brought: Mapping[str, str] = NO_CREDENTIALS
    ) -> None:
        call = ToolCall(call_id, kept["name"], kept["arguments"])
        try:
            result = await self._execute(session, call, kept, brought)
            if result.status is ToolStatus.UNAVAILABLE and session.relay.stopping:
                return  # it has no result yet: the next process runs it
            kept["result"] = kept_result(result)
            await self._keep_at_last(session.code, call_id, kept)
        finally:
            self._on_end(session, call_id)

    async def _keep_at_last(self, code: str, call_id: str, kept: _StoredQueuedCall) -> None:
        """Store the result, and try again until the store is available: the call cannot be made a second time."""
        while True:
            try:
                await self._keep(code, call_id, kept)
                return
            except StoreUnavailable as error:
                _LOG.warning("the result of a queued call cannot be kept: %s; trying until it can", error)
            await asyncio.sleep(_RETRY_S)

    async def _execute(
        self, session: Session, call: ToolCall, kept: _StoredQueuedCall, brought: Mapping[str, str]
    ) -> ToolResult:
        agents = kept["agents"]
        principal = Principal(
            subject=kept["subject"],
            tenant=kept["tenant"],
            scopes=frozenset(kept["scopes"]),
            agents=None if agents is None else frozenset(agents),
            credential=kept.get("credential", ""),
        )
        deadline = asyncio.get_running_loop().time() + kept["deadline"] - self._store.now()
        agent = kept["agent"]
        context = CallContext(
            principal,
            session.code,
            agent,
            deadline=deadline,
            approval=kept["approval"],
            request_id=kept["trace"],
            credentials=brought,
            trace_context=kept.get("trace_context", NO_TRACE_CONTEXT),
        )
        try:
            executor = SessionRoute(self._executor_for(principal, agent, session.code))
        except AccessError as error:
            return unavailable(call, str(error))
        return await executor.execute(call, context)

    async def _keep(self, code: str, call_id: str, kept: _StoredQueuedCall, *, expected: int | None = None) -> None:
        # The result is kept for one TTL of the session after it is there, and the record for as long as it may take.
        left_s = max(kept["deadline"] - self._store.now(), 0.0) if kept["result"] is None else 0.0
        ttl_s = kept["kept_s"] + left_s
        await self._store.commit(_key(code, call_id), dump_json(kept), expected=expected, ttl_s=ttl_s)

    def _on_end(self, session: Session, call_id: str) -> None:
        session.relay.release(call_id)
        self._running[session.code] -= 1
        if not self._running[session.code]:
            del self._running[session.code]


def _key(code: str, call_id: str) -> str:
    return f"{_PREFIX}{code}/{call_id}"


def _read(value: bytes, call_id: str) -> _StoredQueuedCall | None:
    """Return what a record says of a call; None, with an error in the log, if it is damaged."""
    try:
        kept = cast("_StoredQueuedCall", load_json(value))
        return kept if kept["deadline"] > 0 else None
    except (InvalidJson, KeyError, TypeError):
        _LOG.error("the record of queued call %s cannot be read: it counts as none, and expires by itself", call_id)
        return None


def _text(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    return (
        arguments.decode() if isinstance(arguments, bytes) else encode_value(arguments) or canonical(arguments).decode()
    )
