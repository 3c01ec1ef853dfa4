"""The provider: what it hears of calls, what it vetoes, and how the journal is read."""

from __future__ import annotations

import json
import sqlite3
from asyncio import to_thread
from collections.abc import Sequence
from time import time
from typing import Annotated
from uuid import uuid4

from prometheus_client.registry import Collector
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from toolplug import CallContext, FunctionProvider, ProviderContext, ToolCall, ToolError, ToolResult, route, tool
from toolplug_journal.database import Database, Retention
from toolplug_journal.entry import Entry, StoredEntry, argument_text, short
from toolplug_journal.guard import Guard
from toolplug_journal.measures import Contents, Measures
from toolplug_journal.open_calls import OpenCalls
from toolplug_journal.settings import Settings
from toolplug_journal.writer import Writer

MAX_PAGE = 1_000
DAY_S = 86_400.0
RETRY_S = 1.0


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: Annotated[int, Field(ge=0, lt=2**63)] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100


class Journal(FunctionProvider):
    """Keeps every call of every provider's tool, and refuses those that a rule forbids.

    A call begins when its beginning is kept and is answered when its end is: what a caller was told survives the
    death of the process. A call that no hook hears of (unknown, without scope, with invalid arguments) is not here.
    """

    Config = Settings
    config: Settings
    _writer: Writer | None = None

    async def start(self, site: ProviderContext) -> None:
        """Open the journal, which an earlier run may have begun."""
        settings = self.config
        retention = Retention(settings.keep_days * DAY_S, settings.max_rows)
        self._guard = Guard(settings.rules, self.log)
        self._open = OpenCalls()
        self._measures = Measures()
        self._database = Database(site.state_dir / "journal.db", retention)
        await to_thread(self._database.prepare, time())
        connection = await to_thread(self._database.connected)
        self._writer = Writer(self._database, connection, self._measures, time, self.log)

    async def aclose(self) -> None:
        """Write what is waiting; nothing where the journal could not be opened."""
        if self._writer is not None:
            await to_thread(self._writer.close)

    def collectors(self) -> Sequence[Collector]:
        return (Contents(self._database), *self._measures.collectors())

    async def before_call(self, call: ToolCall, context: CallContext) -> str | None:
        """Veto the call, or keep that it begins."""
        reason = self._guard.refusal(call.name, call.arguments)
        if reason is not None:
            self._measures.vetoed()
            return reason
        entry = self._entry(call, context)
        self._open.begin(call, entry)
        await self._write(entry)
        return None

    async def after_call(self, call: ToolCall, context: CallContext, result: ToolResult) -> None:
        """Keep how it ended."""
        begun = self._open.end(call)
        entry, duration_s = begun if begun is not None else (self._entry(call, context), None)
        await self._write(entry._replace(status=result.status.value, duration_s=duration_s))

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
            found = self._database.newest(context.principal.tenant, tool, limit, time())
        except sqlite3.Error as error:
            raise ToolError("the journal cannot be read now", retry_after_s=RETRY_S) from error
        return {"calls": [_shown(item) for item in found]}

    @route("GET", "/v1/journal", scope="journal:read")
    async def read(self, request: Request) -> dict[str, object]:
        """One page of the caller's tenant, the oldest first; `after` is the id of the last call of the page before."""
        try:
            query = _Query.model_validate(dict(request.query_params))
        except ValidationError as error:
            first = error.errors()[0]
            raise HTTPException(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        try:
            tenant: str = request.state.tenant
            found = await to_thread(self._database.after, tenant, query.after, query.limit + 1, time())
        except sqlite3.Error as error:
            raise HTTPException(503, "the journal cannot be read now") from error
        return {"calls": [_shown(item) for item in found[: query.limit]], "has_more": len(found) > query.limit}

    def _entry(self, call: ToolCall, context: CallContext) -> Entry:
        return Entry(
            uid=uuid4().hex,
            began_at=time(),
            tenant=context.principal.tenant,
            subject=context.principal.subject,
            tool=call.name,
            call_id=short(call.id),
            arguments=argument_text(call.arguments) if self.config.arguments else None,
        )

    async def _write(self, entry: Entry) -> None:
        if self._writer is not None:
            await self._writer.write(entry)


def _shown(kept: StoredEntry) -> dict[str, object]:
    """An entry as callers see it; `status` is null while the call runs, `arguments` is there where they are kept."""
    shown: dict[str, object] = {
        "id": kept.id,
        "ts": round(kept.ts, 3),
        "subject": kept.subject,
        "tool": kept.tool,
        "call_id": kept.call_id,
        "status": kept.status,
        "duration_s": None if kept.duration_s is None else round(kept.duration_s, 6),
    }
    return shown if kept.arguments is None else {**shown, "arguments": json.loads(kept.arguments)}
