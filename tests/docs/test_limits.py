"""The maxima of tables, caches and queues in `docs/reference/limits.md` are the constants of the code."""

from __future__ import annotations

import re
from pkgutil import resolve_name

import pytest
from docs.generator.__main__ import FOLDER

TABLES = {
    "unfinished request bodies": ["toolplug.http.bodies.body_memory:DEFAULT_BODY_MEMORY"],
    "peers that sent a wrong credential": ["toolplug.http.auth.refusals:_MAX_PEERS"],
    "owners whose calls of a minute are counted": ["toolplug.host.quotas.quota_use:_MAX_OWNERS"],
    "sessions of MCP clients of 2025-11-25": [
        "toolplug.parts.mcp.serving.mcp_sessions:MOST",
        "toolplug.parts.mcp.serving.mcp_sessions:MOST_OF_ONE",
    ],
    "conversations with open toolsets": [
        "toolplug.parts.responses.running:MOST",
        "toolplug.parts.responses.running:MOST_OF_CALLER",
    ],
    "calls of one tenant that wait for a decision": ["toolplug.parts.approvals.running:MAX_WAITING"],
    "functions that wait for a thread of a provider": [
        "toolplug.runtime.threads:POOL_WAITING",
        "toolplug.runtime.threads:POOL_THREADS",
    ],
    "progress reports of one call, for a slow client": ["toolplug.execution.results:MAX_WAITING"],
    "events of one session, for a slow reader": [
        "toolplug.parts.sessions.limits:MAX_WAITING_EVENTS",
        "toolplug.parts.sessions.limits:MAX_WAITING_BYTES",
    ],
    "events kept for a session in the store": ["toolplug.stores.store:KEPT_EVENTS"],
    "changes that wait for one subscriber of the store": ["toolplug.stores.waiting:_MOST_BEHIND"],
    "changes that wait for another process of a shared SQLite file": ["toolplug.sqlite.shared:MOST_PENDING_BYTES"],
    "compiled schemas": ["toolplug.catalog.validation.compiled:MAX_COMPILED_BYTES"],
    "sizes of patterns": ["toolplug.catalog.validation.patterns:automaton_kib"],
    "views of a catalog that nobody uses now": ["toolplug.host.views:_NEWEST"],
    "catalogs to which a function was applied": ["toolplug.catalog.catalog:_NEWEST"],
    "indexes of the tool search": ["toolplug.search.tools:_INDEXES"],
    "pages of `GET /v1/tools`": ["toolplug.host.tool_infos:_PAGES", "toolplug.host.tool_infos:_SECTIONS"],
    "executors of sessions": ["toolplug.parts.sessions.limits:MAX_EXECUTORS"],
    "tools with metric series of their own": ["toolplug.execution.accounting:MAX_SERIES"],
    "servers that a tenant has added": ["toolplug.host.servers.mcp_servers:MOST_ADDED"],
    "resources of one MCP server that are followed": ["toolplug.parts.mcp.offering.followed_resources:MOST"],
    "streams of the console, of each kind": [
        "toolplug_console.feed:MAX_VIEWERS",
        "toolplug_console.feed:MAX_VIEWERS_OF_TENANT",
        "toolplug_console.feed:MAX_VIEWERS_OF_SUBJECT",
    ],
    "calls that the console notes between two batches": ["toolplug_console.feed:MAX_NOTED"],
    "calls that the console remembers": ["toolplug_console.feed:RECENT"],
    "batches that wait for a slow visitor of the console": ["toolplug_console.feed:MAX_BACKLOG"],
    "entries that wait for the journal": ["toolplug_journal.writer:MAX_PENDING"],
    "calls that the journal has seen begin": ["toolplug_journal.provider:MAX_OPEN"],
    "stems that `file_search` keeps": ["toolplug_file_search.documents.analysis:MAX_CACHED"],
    "vectors that `file_search` keeps": ["toolplug_file_search.vectors.sqlite:MAX_CACHED"],
    "ended containers of which the code interpreter knows why": [
        "toolplug_code_interpreter.containers:MAX_ENDED",
        "toolplug_code_interpreter.containers:MAX_TENANTS",
    ],
}
"""The first cell of each row, and where the numbers of its second cell are."""

_UNITS = {"": 1, " KiB": 1024, " MiB": 1024**2, " GiB": 1024**3}


def rows() -> dict[str, list[int]]:
    """Return the numbers of each row of the page's section."""
    page = (FOLDER / "limits.md").read_text("utf-8")
    section = page.partition("\n## Tables, caches and queues\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| ([^|]+) \| ([^|]*\d[^|]*) \|", section, re.MULTILINE)
    return {name: numbers(maximum) for name, maximum in cells}


def numbers(text: str) -> list[int]:
    """Return the numbers of a text, sizes in bytes."""
    found = re.findall(r"(\d[\d,]*)( [KMG]iB)?", text)
    return [int(digits.replace(",", "")) * _UNITS[unit] for digits, unit in found]


def constant(place: str) -> int:
    """Return the value of a constant, or the number of results that a cached function keeps."""
    value = resolve_name(place)
    return value if isinstance(value, int) else value.cache_parameters()["maxsize"]


def test_every_row_is_checked() -> None:
    assert list(rows()) == list(TABLES)


@pytest.mark.parametrize("row", TABLES)
def test_the_numbers_of_a_row_are_those_of_the_code(row: str) -> None:
    assert rows()[row] == [constant(place) for place in TABLES[row]]
