"""The chain of all calls: what was changed, removed or inserted is found, whoever has written it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from typer.testing import CliRunner

from toolplug import Principal
from toolplug.part_protocols.approvals import DecisionTerms, GrantTerms
from toolplug.parts.approvals.running import RunningApprovals
from toolplug_journal import chain
from toolplug_journal.command import add_command
from toolplug_journal.database import FILE, Database, Retention
from toolplug_journal.entry import Entry

pytestmark = pytest.mark.requirement("I35-chain")

NOW = 1_800_000_000.0


def ended(number: int, *, status: str | None = "success") -> Entry:
    return Entry(f"u{number}", NOW, f"t{number % 2}", "ann", "hello", f"c{number}", '{"a":1.5}', status, 0.25)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The journal of a configuration."""
    (tmp_path / "providers.yaml").write_text("providers: {journal: {enabled: true}}\n")
    folder = tmp_path / ".toolplug/providers/journal"
    folder.mkdir(parents=True)
    return folder / FILE


@pytest.fixture
def lines(file: Path) -> Iterator[list[dict[str, Any]]]:
    """Twenty calls, which two processes have written in turns."""
    database = Database(file, Retention(1e6, 5))
    database.prepare(NOW)
    with closing(database.connect()) as one, closing(database.connect()) as two:
        for number in range(0, 20, 2):
            for connection, each in ((one, number), (two, number + 1)):
                database.write(connection, [ended(each, status=None), ended(each)], NOW + number)
        yield [dict(line) for line in chain.read(one, 0)]


def test_every_call_of_every_tenant_is_in_one_chain_whoever_has_written_it(lines: list[dict[str, Any]]) -> None:
    assert [line["call_id"] for line in lines] == [f"c{number}" for number in range(20)]
    assert chain.verify(lines) == (20, lines[-1]["hash"])
    assert chain.verify(lines[5:], known=lines[4]["hash"]) == (15, lines[-1]["hash"])


def change(lines: list[dict[str, Any]]) -> None:
    lines[7]["status"] = "denied"


def change_with_its_hash(lines: list[dict[str, Any]]) -> None:
    lines[7] = {**lines[7], "subject": "eve"}
    fields = {name: value for name, value in lines[7].items() if name != "hash"}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    lines[7]["hash"] = chain.hashlib.sha256(text.encode()).hexdigest()


def remove(lines: list[dict[str, Any]]) -> None:
    del lines[7]


def insert(lines: list[dict[str, Any]]) -> None:
    lines.insert(7, lines[3])


def move(lines: list[dict[str, Any]]) -> None:
    lines[7], lines[8] = lines[8], lines[7]


@pytest.mark.parametrize(
    ("spoil", "place"), [(change, 8), (change_with_its_hash, 9), (remove, 8), (insert, 8), (move, 8)]
)
def test_a_line_that_is_changed_removed_inserted_or_moved_is_found(
    lines: list[dict[str, Any]], spoil: Callable[[list[dict[str, Any]]], None], place: int
) -> None:
    spoil(lines)
    found = chain.verify(lines)
    assert isinstance(found, chain.Broken)
    assert found.place == place


def test_lines_that_are_removed_at_the_end_are_found_by_a_hash_that_is_known(lines: list[dict[str, Any]]) -> None:
    found = chain.verify(lines[:10], known=lines[15]["hash"])
    assert isinstance(found, chain.Broken)
    assert "lines are missing" in found.why


def test_old_lines_are_dropped_from_the_beginning_and_the_chain_goes_on(lines: list[Any], file: Path) -> None:
    database = Database(file, Retention(1.0, 5))
    with closing(database.connect()) as connection:
        database.write(connection, [ended(99)], NOW + 1_000)
        assert chain.verify(chain.read(connection, 0), known=lines[-1]["hash"])[0] == 1
        database.write(connection, [ended(100)], NOW + 1_000)
        assert [line["seq"] for line in chain.read(connection, 0)] == [21, 22]


@pytest.mark.parametrize(("version", "without", "lines"), [(1, "DROP TABLE chain;", 1), (2, "", 2)])
def test_a_journal_of_an_earlier_release_keeps_its_calls_and_has_a_chain(
    file: Path, version: int, without: str, lines: int
) -> None:
    database = Database(file, Retention(1e6, 5))
    database.prepare(NOW)
    with closing(database.connect()) as connection:
        database.write(connection, [ended(0)], NOW)
        before = f"ALTER TABLE calls DROP COLUMN more; {without} PRAGMA user_version = {version};"
        connection.executescript(before)
    database.prepare(NOW)
    with closing(database.connect()) as connection:
        database.write(connection, [ended(2)._replace(more={"granted_by": "g"})], NOW)
        assert chain.verify(chain.read(connection, 0))[0] == lines
    kept = [(each.call_id, each.more) for each in database.newest("t0", None, 5, NOW)]
    assert kept == [("c2", '{"granted_by": "g"}'), ("c0", None)]


def test_the_command_exports_and_verifies(
    lines: list[dict[str, Any]], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    add_command(app)

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, [*arguments])

    exported = run("export").stdout
    assert [json.loads(line) for line in exported.splitlines()] == lines
    assert len(run("export", "--after", "15").stdout.splitlines()) == 5
    (request,) = [json.loads(line) for line in run("export", "--format", "otlp").stdout.splitlines()]
    records = request["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert (len(records), records[0]["severityText"], records[0]["body"]["stringValue"]) == (
        20,
        "INFO",
        "hello of ann: success",
    )
    # As a collector reads it.
    read = json_format.Parse(json.dumps(request), ExportLogsServiceRequest()).resource_logs[0].scope_logs[0]
    assert [each.body.string_value for each in read.log_records] == ["hello of ann: success"] * 20
    assert read.log_records[0].time_unix_nano == int(NOW * 1e9)
    assert {"key": "toolplug.hash", "value": {"stringValue": lines[0]["hash"]}} in records[0]["attributes"]
    assert run("verify").stdout == f"20 lines, unbroken; the newest hash is {lines[-1]['hash']}\n"
    (tmp_path / "calls.jsonl").write_text(exported)
    assert run("verify", "--file", "calls.jsonl").exit_code == 0
    (tmp_path / "calls.jsonl").write_text("".join(exported.splitlines(keepends=True)[1:5:2]))
    broken = run("verify", "--file", "calls.jsonl")
    assert (broken.exit_code, "the chain is broken at line 2" in broken.stderr) == (1, True)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE chain SET line = replace(line, 'ann', 'eve') WHERE seq = 4")
    assert "broken at line 4" in run("verify").stderr


@pytest.mark.anyio
async def test_decisions_and_what_they_allow_are_in_the_chain(in_process_host: Any, tmp_path: Path) -> None:
    rule = {"policy": "ask", "grants": {"most": "8h", "scope": "caller"}}
    providers = {"hello": {"enabled": True, "tools": {"hello": rule}}, "journal": {"enabled": True}}
    async with in_process_host({"providers": providers}) as served:
        asked = (await served.call("hello", name="Ada")).metadata["approval"]["id"]
        terms = DecisionTerms("fine", None, GrantTerms(60.0, "caller"))
        waiting = (await served.host.approvals.everywhere())[0]
        by, decided_for = Principal("eve", tenant=waiting.tenant), waiting.subject
        ticket = await served.host.approvals.decide(asked, "approve", by, terms=terms)
        for _ in range(2):
            assert (await served.call("hello", name="Ada")).output == "Hello, Ada!"
        assert ticket.grant is not None
        approvals = served.host.part(RunningApprovals)
        await approvals.own.grants.revoke(ticket.grant, Principal("max", tenant=by.tenant))
    with closing(sqlite3.connect(tmp_path / ".toolplug/providers/journal" / FILE)) as connection:
        kept = [dict(line) for line in chain.read(connection, 0)]
    assert chain.verify(kept) == (5, kept[-1]["hash"])
    revoked = kept.pop()
    assert {name: revoked.get(name) for name in ("status", "tool", "subject", "grant", "revoked_by")} == {
        "status": "grant_revoked",
        "tool": "hello",
        "subject": decided_for,
        "grant": ticket.grant,
        "revoked_by": "max",
    }
    records = chain.otlp([revoked, kept[0]])["resourceLogs"][0]["scopeLogs"][0]["logRecords"]  # type: ignore[index]
    assert [each["severityText"] for each in records] == ["INFO", "WARN"]
    decided = next(line for line in kept if line["status"] == "approval_approved")
    assert (decided["approval"], decided["decided_by"], decided["grant"]) == (asked, "eve", ticket.grant)
    assert decided["reason"] == "fine"
    calls = [line for line in kept if line is not decided]
    assert [(line["status"], line.get("approval"), line.get("granted_by")) for line in calls] == [
        ("denied", asked, None),
        ("success", None, None),
        ("success", None, ticket.grant),
    ]


def test_a_line_whose_number_does_not_follow_is_found_though_the_hashes_fit(lines: list[dict[str, Any]]) -> None:
    again = {name: value for name, value in lines[1].items() if name != "hash"} | {"seq": 3}
    text = json.dumps(again, sort_keys=True, separators=(",", ":"))
    found = chain.verify([lines[0], {**again, "hash": chain.hashlib.sha256(text.encode()).hexdigest()}])
    assert found == chain.Broken(2, "its number does not follow 1")
