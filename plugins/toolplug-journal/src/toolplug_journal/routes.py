"""`GET /v1/journal/all`: the entries of every tenant, for a collector that the operator runs."""

from __future__ import annotations

import sqlite3
from time import time
from typing import Annotated, NotRequired

from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from typing_extensions import TypedDict

from toolplug.http import HostRequest, Parameter, answers, part_of, route
from toolplug_journal.entry import show_call
from toolplug_journal.part import JournalPart
from toolplug_journal.provider import read_query


class CollectedCall(TypedDict):
    """One call, of the tenant, or one decision of a person: its status says which."""

    tenant: str
    id: Annotated[int, Field(description="its place, which rises")]
    ts: float
    subject: str
    tool: str
    call_id: str
    status: str | None
    duration_s: float | None
    arguments: NotRequired[object]
    approval: NotRequired[str]
    decided_by: NotRequired[str]
    reason: NotRequired[str]
    grant: NotRequired[str]
    granted_by: NotRequired[str]
    revoked_by: NotRequired[str]


class CollectedCalls(TypedDict):
    """One page, the oldest first."""

    calls: list[CollectedCall]
    has_more: bool


_AFTER = Parameter("after", "the id of the last call of the page before")
_LIMIT = Parameter("limit", "how many at most; 100 when absent, at most 1000")


@route("GET", "/v1/journal/all", "operator", "The calls of every tenant", parameters=(_AFTER, _LIMIT))
@answers(CollectedCalls, errors=(400, 404, 503))
async def read_all(request: HostRequest) -> JSONResponse:
    """Answer one page of the entries of every tenant."""
    query = read_query(dict(request.query_params))
    journal = part_of(request, JournalPart).journal
    if journal is None:
        raise HTTPException(503, "no journal runs")
    try:
        found = await journal.collect_all(query.after, query.limit + 1, time())
    except sqlite3.Error as error:
        raise HTTPException(503, "the journal cannot be read now") from error
    calls = [{"tenant": tenant, **show_call(item)} for tenant, item in found[: query.limit]]
    return JSONResponse({"calls": calls, "has_more": len(found) > query.limit}, headers={"cache-control": "no-store"})


ROUTES = (read_all,)
