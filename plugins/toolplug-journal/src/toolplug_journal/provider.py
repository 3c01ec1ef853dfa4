"""The provider: what it hears of calls, and how the journal is read."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from time import time
from typing import Annotated, Any, NamedTuple, cast
from uuid import uuid4

from prometheus_client.registry import Collector
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from toolplug import (
    CallContext,
    ConsolePage,
    FunctionProvider,
    HostPart,
    ProviderContext,
    RevokedGrant,
    Ticket,
    ToolCall,
    ToolDefinition,
    ToolError,
    ToolResult,
    route,
    tool,
)
from toolplug_journal.database import FILE, Database, Retention
from toolplug_journal.entry import Entry, StoredEntry, argument_text, short, show_call
from toolplug_journal.measures import Contents, Measures
from toolplug_journal.settings import Settings
from toolplug_journal.writer import Writer

MAX_PAGE = 1_000
DAY_S = 86_400.0
RETRY_S = 1.0
MAX_OPEN = 2_000
"""Calls that have begun and not ended; more are forgotten, the oldest first."""


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: Annotated[int, Field(ge=0, lt=2**63)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    newest: bool = False
    calls: bool = False


def read_query(given: Mapping[str, str]) -> _Query:
    """Return the query of a page. Raises `HTTPException` with status 400."""
    try:
        return _Query.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        raise HTTPException(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


class _Open(NamedTuple):
    call: ToolCall
    entry: Entry


class OpenCalls:
    """Finds the entry of a call again by the call itself: the ids that models give are not unique.

    A call whose caller went away never ends here; the oldest are forgotten beyond 2,000.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[int, _Open] = OrderedDict()

    def begin(self, call: ToolCall, entry: Entry) -> None:
        """Remember the entry of this call. The call is kept, so that no other has its identity until it ends."""
        self._open[id(call)] = _Open(call, entry)
        if len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)

    def end(self, call: ToolCall) -> Entry | None:
        """Return its entry; None for a call that did not begin here."""
        found = self._open.pop(id(call), None)
        return None if found is None else found.entry


class Journal(FunctionProvider):
    """Keeps every call: of every tool, and also the calls that are refused and those of unknown tools.

    A call begins when its beginning is kept and is answered when its end is: what a caller was told survives the
    death of the process. A refused call and one of an unknown tool have an end only.
    """

    Config = Settings
    config: Settings
    _writer: Writer | None = None

    async def start(self, site: ProviderContext) -> None:
        """Open the journal, which an earlier run may have begun."""
        settings = self.config
        retention = Retention(settings.keep_days * DAY_S, settings.max_rows)
        self._open = OpenCalls()
        self._measures = Measures()
        self._database = Database(site.state_dir / FILE, retention)
        self._site = site
        await site.in_thread(self._database.prepare, time())
        connection = await site.in_thread(self._database.connect)
        self._writer = Writer(self._database, connection, self._measures, time, self.log)

    async def aclose(self) -> None:
        """Write what is waiting; nothing where the journal could not be opened."""
        if self._writer is not None:
            await self._site.in_thread(self._writer.close)

    def collectors(self) -> Sequence[Collector]:
        return (Contents(self._database), *self._measures.collectors())

    @staticmethod
    def commands(app: Any) -> None:
        """Add `toolplug journal` to a `typer.Typer`; Typer is an extra that a host may not have."""
        import_module("toolplug_journal.command").add_command(app)

    @staticmethod
    def host_part() -> HostPart[Any]:
        """Offer the section `journal`: the entries of every tenant over HTTP, and `/readyz`."""
        part: HostPart[Any] = import_module("toolplug_journal.part").PART
        return part

    @property
    def failing_s(self) -> float:
        """Seconds since the first of the writes that have failed in a row; 0 if the last one succeeded."""
        return 0.0 if self._writer is None else self._writer.failing_s

    async def collect(self, after: int, limit: int, now: float) -> list[tuple[str, StoredEntry]]:
        """Return the calls of every tenant after this place, the oldest first. Raises `sqlite3.Error`."""
        return await self._site.in_thread(partial(self._database.of_all, decisions=False), after, limit, now)

    async def collect_all(self, after: int, limit: int, now: float) -> list[tuple[str, StoredEntry]]:
        """Return the entries of every tenant as `collect` does, with what people have decided."""
        return await self._site.in_thread(self._database.of_all, after, limit, now)

    def console_pages(self) -> Sequence[ConsolePage]:
        """Show the newest calls in the console."""
        columns = ("ts", "tool", "subject", "status", "duration_s", "call_id", "decided_by", "revoked_by", "granted_by")
        text = "The newest calls and decisions of your tenant, also those from before the last start."
        return [
            ConsolePage(
                id=f"{self.key.replace('_', '-')}"[:40],
                title="Journal",
                text=text,
                path="/v1/journal?newest=true",
                rows="calls",
                columns=columns,
                scope="journal:read",
            )
        ]

    async def before_call(self, call: ToolCall, context: CallContext, tool: ToolDefinition) -> None:
        """Keep that the call begins."""
        entry = self._entry(call, context, tool)
        self._open.begin(call, entry)
        await self._write(entry)

    async def after_call(
        self, call: ToolCall, context: CallContext, result: ToolResult, tool: ToolDefinition | None, duration_s: float
    ) -> None:
        """Keep how it ended, and how long it took if it began."""
        begun = self._open.end(call)
        entry = self._entry(call, context, tool) if begun is None else begun
        took_s = None if begun is None else duration_s
        more = _allowed_by(context.approval, result.metadata)
        await self._write(entry._replace(status=result.status.value, duration_s=took_s, more=more))

    async def approval_decided(self, ticket: Ticket) -> None:
        """Keep what a person has decided. Its arguments are those of the calls before and after it."""
        decided = {
            "approval": ticket.id,
            "decided_by": ticket.decided_by,
            "reason": ticket.reason,
            "grant": ticket.grant,
        }
        await self._record_decision(f"approval_{ticket.state}", ticket, decided)

    async def grant_revoked(self, grant: RevokedGrant) -> None:
        """Keep who has taken back what was allowed."""
        await self._record_decision("grant_revoked", grant, {"grant": grant.id, "revoked_by": grant.revoked_by})

    async def _record_decision(self, status: str, what: Ticket | RevokedGrant, more: Mapping[str, str | None]) -> None:
        entry = Entry(
            uid=uuid4().hex,
            began_at=time(),
            tenant=what.tenant,
            subject=what.subject,
            tool=short(what.tool),
            call_id="",
            status=status,
            more={name: short(value) for name, value in more.items() if value is not None},
        )
        await self._write(entry)

    @tool(read_only=True)
    def journal_recent(
        self,
        context: CallContext,
        limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 20,
        tool: Annotated[str, Field(max_length=64)] | None = None,
    ) -> dict[str, object]:
        """List the tool calls that have ended, the newest first: when, by whom, which tool, how it ended.

        Args:
            limit: how many at most
            tool: only calls of this tool
        """
        try:
            found = self._database.newest(context.principal.tenant, tool, limit, time(), decisions=False)
        except sqlite3.Error as error:
            raise ToolError("the journal cannot be read now", retry_after_s=RETRY_S) from error
        return {"calls": [show_call(item) for item in found]}

    @route("GET", "/v1/journal", scope="journal:read")
    async def read(self, request: Request) -> dict[str, object]:
        """One page of the caller's tenant, the oldest first; `after` is the id of the last call of the page before.

        With `newest=true`, the newest calls that have ended instead, the newest first. What people have decided is
        among them, with the status `approval_approved`, `approval_denied` or `grant_revoked`; `calls=true` leaves it
        out of the newest.
        """
        query = read_query(dict(request.query_params))
        try:
            tenant: str = request.state.tenant
            if query.newest:
                read = partial(self._database.newest, decisions=not query.calls)
                newest = await self._site.in_thread(read, tenant, None, query.limit, time())
                return {"calls": [show_call(item) for item in newest], "has_more": False}
            found = await self._site.in_thread(self._database.after, tenant, query.after, query.limit + 1, time())
        except sqlite3.Error as error:
            raise HTTPException(503, "the journal cannot be read now") from error
        return {"calls": [show_call(item) for item in found[: query.limit]], "has_more": len(found) > query.limit}

    def _entry(self, call: ToolCall, context: CallContext, tool: ToolDefinition | None) -> Entry:
        kept = self.config.arguments and not (tool is not None and tool.hints.sensitive)
        return Entry(
            uid=uuid4().hex,
            began_at=time(),
            tenant=context.principal.tenant,
            subject=context.principal.subject,
            tool=short(call.name if tool is None else tool.name),
            call_id=short(call.id),
            arguments=argument_text(call.arguments) if kept else None,
        )

    async def _write(self, entry: Entry) -> None:
        if self._writer is not None:
            await self._writer.write(entry)


def _allowed_by(approval: str | None, metadata: Mapping[str, object]) -> Mapping[str, str] | None:
    """Return the ticket of a call, that it was made with or waits for, and the grant that has allowed it."""
    asked, grant = metadata.get("approval"), metadata.get("granted_by")
    ticket = cast("Mapping[str, object]", asked).get("id") if isinstance(asked, Mapping) else approval
    found = {"approval": ticket, "granted_by": grant}
    return {name: short(value) for name, value in found.items() if isinstance(value, str)} or None
