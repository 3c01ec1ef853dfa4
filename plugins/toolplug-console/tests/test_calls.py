"""The feed of calls: what visitors see, what is kept, and that it is off while nobody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest

from toolplug import CallContext, Principal, ToolResult, ToolStatus
from toolplug_console.feed import MAX_NOTED, MAX_SENT, MAX_VIEWERS, CallFeed, ViewerPlaces
from toolplug_console.notes import MAX_SHOWN, NotesOfTenant

from .conftest import open_stream

pytestmark = pytest.mark.anyio

Serve = Callable[..., AbstractAsyncContextManager[Any]]

CALLS = frozenset({"tools:read", "tools:call"})
ALICE, ANN, CAROL = (Principal(name, "t1", CALLS) for name in ("alice", "ann", "carol"))
BOB, ROOT = Principal("bob", "t2", CALLS), Principal("root", "ops", frozenset({"admin", "operator"}))
EVE = Principal("eve", "t2", frozenset({"admin"}))
PATH = "/console/calls"
SAMPLE = Path(__file__).with_name("conftest.py")


def key_of(caller: Any) -> str:
    return caller.client.headers["authorization"].removeprefix("Bearer ")


async def listed(host: Any, caller: Any) -> list[dict[str, Any]]:
    """The recent calls that a visitor is sent first."""
    async with open_stream(host.app, PATH, key_of(caller)) as stream:
        return (await stream.next("calls"))["calls"]


@pytest.mark.requirement("I16-1-feed")
async def test_a_visitor_sees_the_calls_of_its_tenant_and_an_operator_those_of_all(serve: Serve) -> None:
    async with serve(ALICE, BOB, EVE, ROOT) as host:
        alice, bob, eve, root = (host.callers[name] for name in ("alice", "bob", "eve", "root"))
        async with (
            open_stream(host.app, PATH, key_of(alice)) as hers,
            open_stream(host.app, PATH, key_of(eve)) as of_admin,
            open_stream(host.app, PATH, key_of(root)) as all_of_them,
        ):
            assert await hers.next("calls") == await all_of_them.next("calls") == {"calls": [], "skipped": 0}
            await bob.call("echo", text="x")
            await alice.call("fail")
            await alice.call("nothing")
            seen = (await hers.next("calls"))["calls"]
            everything = (await all_of_them.next("calls"))["calls"]
            await of_admin.next("calls")
            managed = (await of_admin.next("calls"))["calls"]
    assert [(call["tool"], call["subject"], call["status"]) for call in seen] == [
        ("fail", "alice", "tool_error"),
        ("nothing", "alice", "unknown_tool"),
    ]
    assert [call["tenant"] for call in everything] == ["t2", "t1", "t1"]
    assert [call["tenant"] for call in managed] == ["t2"], "admin administers its own tenant"
    assert (seen[0]["kind"], seen[0]["source"], "reason" in seen[0]) == ("native", "sample", False)
    assert seen[0]["duration_s"] > 0
    assert seen[1]["reason"] == 'no builtin provider handles tool "nothing"'
    assert {"kind", "source", "duration_s"}.isdisjoint(seen[1])


OFFICE = {
    "toolsets": {"office": {"prefix": "office", "from": "provider:sample"}},
    "agents": {"clerk": {"toolsets": ["office"]}},
}


@pytest.mark.requirement("I16-1-feed")
async def test_a_call_through_a_toolset_has_the_name_that_its_caller_knows(serve: Serve) -> None:
    async with serve(ALICE, host=OFFICE) as host:
        alice = host.callers["alice"]
        async with open_stream(host.app, PATH, key_of(alice)) as stream:
            await stream.next("calls")
            await alice.client.post(
                "/v1/tool-calls",
                json={"name": "office.echo", "arguments": {"text": "x"}, "agent": "clerk"},
            )
            [seen] = (await stream.next("calls"))["calls"]
    assert (seen["tool"], seen["source"], seen["status"]) == ("office.echo", "sample", "success")


@pytest.mark.requirement("I16-1-feed")
async def test_nothing_is_asked_of_a_console_that_remembers_nothing_while_nobody_looks(serve: Serve) -> None:
    async with serve(remember=False) as host:
        asked = [host.host.plugins.implementers("after_call")]
        async with open_stream(host.app, PATH) as stream:
            await stream.next("calls")
            asked.append(host.host.plugins.implementers("after_call"))
            await host.call("echo", text="x")
            assert [call["tool"] for call in (await stream.next("calls"))["calls"]] == ["echo"]
        asked.append(host.host.plugins.implementers("after_call"))
    assert asked == [(), ("console",), ()]


@pytest.mark.requirement("I16-1-keep")
async def test_arguments_and_results_are_kept_for_the_caller_and_admin_alone(serve: Serve) -> None:
    async with serve(ALICE, ANN, BOB, EVE, ROOT, keep_calls=2, sensitive=["fail"]) as host:
        alice, ann, bob, eve, root = (host.callers[name] for name in ("alice", "ann", "bob", "eve", "root"))
        for name, arguments in (("crash", {}), ("echo", {"text": "é" * 4000}), ("sign_in", {"password": "x"})):
            await alice.call(name, **arguments)
        await asyncio.sleep(0.3)
        calls = await listed(host, alice)
        assert [call["tool"] for call in calls] == ["crash", "echo", "sign_in"]
        assert (await listed(host, bob), await listed(host, root)) == ([], calls)
        of_echo, of_sign_in = (f"{PATH}/{call['id']}" for call in calls[1:])
        own = (await alice.client.get(of_echo)).json()
        other = (await ann.client.get(of_echo)).json()
        foreign = [await caller.client.get(of_echo) for caller in (bob, eve)]
        of_admin = (await root.client.get(of_echo)).json()
        secret = (await root.client.get(of_sign_in)).json()
    assert own["arguments"].startswith('{"text": "éé')
    assert len(own["arguments"].encode()) <= 4096
    assert len(own["output"].encode()) <= 4096
    assert (own["own"], of_admin["arguments"]) == (True, own["arguments"])
    assert (other["own"], "arguments" in other, "output" in other) == (False, False, False)
    assert [answer.status_code for answer in foreign] == [404, 404]
    assert (secret["sensitive"], "arguments" in secret, "output" in secret) == (True, False, False)


@pytest.mark.requirement("I35-watch")
async def test_a_call_that_a_watched_rule_would_have_denied_says_so(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "toolplug.audit")
    providers = {
        "console": {"enabled": True, "public_routes": True},
        "careful": {"enabled": True, "type": f"{SAMPLE}:Careful"},
        "sample": {
            "enabled": True,
            "type": f"{SAMPLE}:Sample",
            "tools": {"echo": {"policy": "deny", "watch": True}},
        },
    }
    async with serve(ALICE, host={"providers": providers}) as host:
        alice = host.callers["alice"]
        for name, arguments in (("echo", {"text": "x"}), ("sign_in", {"password": "x"}), ("fail", {})):
            await alice.call(name, **arguments)
        calls = await listed(host, alice)
        detail = (await alice.client.get(f"{PATH}/{calls[0]['id']}")).json()
    said = [(call["tool"], call["status"], call.get("would", "")) for call in calls]
    assert said == [
        ("echo", "success", "policy: deny"),
        ("sign_in", "success", "plugin: careful"),
        ("fail", "tool_error", ""),
    ]
    assert detail["would"] == "policy: deny"


@pytest.mark.requirement("I16-1-feed")
async def test_a_call_is_asked_about_until_a_person_has_denied_it(serve: Serve) -> None:
    providers = {
        "console": {"enabled": True, "public_routes": True},
        "sample": {"enabled": True, "type": f"{SAMPLE}:Sample", "tools": {"echo": {"policy": "ask"}}},
    }
    decider = Principal("dan", "t1", frozenset({"approvals:write"}))
    async with serve(ALICE, decider, host={"providers": providers}) as host:
        client, dan = (host.callers[name].client for name in ("alice", "dan"))

        async def make(ticket: str | None = None) -> Any:
            body = {"name": "echo", "arguments": {"text": "x"}, "approval": ticket}
            return (await client.post("/v1/tool-calls", json=body)).json()

        ticket = (await make())["metadata"]["approval"]["id"]
        await make(ticket)
        assert (await dan.post(f"/v1/approvals/{ticket}", json={"decision": "deny"})).is_success
        await make(ticket)
        calls = await listed(host, host.callers["alice"])
    said = [(call["status"], call.get("asked", False), call["approval"] == ticket) for call in calls]
    assert said == [("denied", True, True), ("denied", True, True), ("denied", False, True)]


@pytest.mark.requirement("I16-1-feed")
async def test_admin_sees_where_a_tool_crashed_without_the_text_of_the_exception(serve: Serve) -> None:
    async with serve(ALICE, ROOT, keep_calls=5) as host:
        alice, root = host.callers["alice"], host.callers["root"]
        await alice.call("crash")
        await asyncio.sleep(0.3)
        [call] = await listed(host, alice)
        seen = [(await caller.client.get(f"{PATH}/{call['id']}")).json() for caller in (alice, root)]
    assert call["status"] == "panic"
    assert seen[0]["place"] == ""
    assert "ValueError at" in seen[1]["place"]
    assert "a secret text" not in str(seen)


async def test_streams_end_when_the_host_stops_or_the_plugin_is_disabled(serve: Serve) -> None:
    async with serve() as host:
        async with open_stream(host.app, PATH) as stream:
            await stream.next("calls")
            await host.nobody.post("/v1/providers/console/disable")
            await asyncio.wait_for(stream.ended.wait(), 10)
        await host.nobody.post("/v1/providers/console/enable")
        async with open_stream(host.app, PATH) as stream:
            await stream.next("calls")
            host.host.stop()
            await asyncio.wait_for(stream.ended.wait(), 10)


def answered(feed: CallFeed, name: str, status: ToolStatus, tenant: str = "t1") -> None:
    feed.note(CallContext(principal=Principal(tenant=tenant)), ToolResult("c", name, status=status), None, 0.01)


async def test_a_batch_shows_failures_first_and_counts_what_it_leaves_out() -> None:
    feed = CallFeed(lambda on: None, 0, frozenset())
    with feed.viewer(ALICE) as viewer:
        await viewer.batches(1)
        answered(feed, "early failure", ToolStatus.PANIC)
        answered(feed, "foreign", ToolStatus.SUCCESS, "t2")
        for number in range(MAX_SHOWN + 5):
            answered(feed, f"n{number}", ToolStatus.SUCCESS)
        [batch] = await viewer.batches(5)
    feed.close()
    assert batch.count(b'"tool":"') == MAX_SHOWN
    assert b"early failure" in batch
    assert b"foreign" not in batch
    assert batch.endswith(b'"skipped":6}\n\n')


async def test_many_visitors_are_sent_fewer_calls_each_and_learn_how_many_there_were() -> None:
    feed = CallFeed(lambda on: None, 0, frozenset())
    with ExitStack() as life:
        viewers = [life.enter_context(feed.viewer(Principal(f"s{number}", "t1"))) for number in range(50)]
        for viewer in viewers:
            await viewer.batches(1)
        answered(feed, "early failure", ToolStatus.PANIC)
        for number in range(MAX_SHOWN):
            answered(feed, f"n{number}", ToolStatus.SUCCESS)
        feed.take_shared()  # what was noted is passed on before
        batches = [await viewer.batches(1) for viewer in viewers]
    feed.close()
    assert len({batch for [batch] in batches}) == 1
    [[batch], *_] = batches
    assert batch.count(b'"tool":"') == MAX_SENT // 50
    assert b"early failure" in batch
    assert batch.endswith(b'"skipped":%d}\n\n' % (MAX_SHOWN + 1 - MAX_SENT // 50))


async def test_a_slow_visitor_learns_how_many_calls_it_missed() -> None:
    feed = CallFeed(lambda on: None, 0, frozenset())
    with feed.viewer(ALICE) as viewer:
        await viewer.batches(1)
        for _ in range(41):
            viewer.take(b"batch", 2)
        found = await viewer.batches(1)
    feed.close()
    assert found == [b'event: calls\ndata: {"calls":[],"skipped":80}\n\n', b"batch"]


@pytest.mark.requirement("I16-1-feed")
@pytest.mark.parametrize("path", [PATH, "/console/providers"])
async def test_no_tenant_and_no_subject_takes_the_places_of_all_visitors(serve: Serve, path: str) -> None:
    async with serve(ALICE, ANN, CAROL, BOB) as host, AsyncExitStack() as opened:
        statuses: dict[str, list[int]] = {}
        for name, tries in (("alice", 51), ("ann", 51), ("carol", 1), ("bob", 1)):
            for _ in range(tries):
                stream = await opened.enter_async_context(open_stream(host.app, path, key_of(host.callers[name])))
                await stream.begun.wait()
                statuses.setdefault(name, []).append(stream.status)
    assert statuses == {"alice": [200] * 50 + [429], "ann": [200] * 50 + [429], "carol": [429], "bob": [200]}


async def test_a_place_that_a_visitor_leaves_is_free_again() -> None:
    places = ViewerPlaces()
    for _ in range(MAX_VIEWERS + 1):
        with places.place(ALICE):
            pass


@pytest.mark.requirement("I16-1-feed")
@pytest.mark.parametrize("keep", [0, 300])
@pytest.mark.parametrize("status", [ToolStatus.SUCCESS, ToolStatus.PANIC])
async def test_a_flood_of_one_tenant_hides_no_call_of_another(keep: int, status: ToolStatus) -> None:
    feed = CallFeed(lambda on: None, keep, frozenset())
    with feed.viewer(BOB) as his, feed.viewer(ROOT) as all_of_them:
        await his.batches(1)
        await all_of_them.batches(1)
        answered(feed, "quiet failure", ToolStatus.PANIC, "t2")
        answered(feed, "quiet success", ToolStatus.SUCCESS, "t2")
        for _ in range(12_000):
            answered(feed, "flood", status)
        [batch], [whole] = await his.batches(5), await all_of_them.batches(5)
    with feed.viewer(BOB) as later:
        [recent] = await later.batches(1)
    feed.close()
    for seen in (batch, whole, *([recent] if keep else [])):
        assert (b"quiet failure" in seen, b"quiet success" in seen) == (True, True)
    assert (batch.count(b'"tool":"'), batch.endswith(b'"skipped":0}\n\n')) == (2, True)
    assert whole.count(b'"tool":"') == MAX_SHOWN
    assert whole.endswith(b'"skipped":11902}\n\n')


async def test_notes_of_many_tenants_are_bounded_together() -> None:
    feed = CallFeed(lambda on: None, 0, frozenset())
    with feed.viewer(ROOT):
        for number in range(40_000):
            answered(feed, "x", ToolStatus.SUCCESS, f"t{number % 400}")
        assert MAX_NOTED * 9 // 10 <= sum(map(len, feed._noted.values())) <= MAX_NOTED
    feed.close()


async def test_a_note_of_a_full_feed_asks_few_tenants_how_much_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def count_length(notes: NotesOfTenant) -> int:
        nonlocal asked
        asked += 1
        return len(notes.failed) + len(notes.others)

    feed = CallFeed(lambda on: None, 0, frozenset())
    with feed.viewer(ROOT):
        for number in range(MAX_NOTED):
            answered(feed, "x", ToolStatus.SUCCESS, f"t{number}")
        monkeypatch.setattr(NotesOfTenant, "__len__", count_length)
        for number in range(1_000):
            answered(feed, "x", ToolStatus.SUCCESS, f"t{number}")
    feed.close()
    assert asked < 3 * MAX_NOTED


@pytest.mark.requirement("C-12-provider-changed")
async def test_an_overview_hears_of_each_provider_and_of_its_changes(serve: Serve) -> None:
    async with serve() as host, open_stream(host.app, "/console/providers") as stream:
        first = {(await stream.next("provider"))["key"] for _ in range(2)}
        await host.nobody.post("/v1/providers/sample/disable")
        changed = await stream.next("provider")
    assert first == {"console", "sample"}
    assert changed == {"key": "sample", "state": "disabled"}


@pytest.mark.requirement("C-12-console-pages")
async def test_a_visitor_is_offered_the_pages_of_plugins_that_its_scopes_allow(serve: Serve, tmp_path: Path) -> None:
    journal = {"console": {"enabled": True}, "journal": {"enabled": True}}
    async with serve(ALICE, ROOT, host={"providers": journal, "store": f"sqlite:///{tmp_path}/state.db"}) as host:
        alice, root = (host.callers[name].client for name in ("alice", "root"))
        pages = [(await client.get("/console/visitor")).json()["pages"] for client in (alice, root)]
        [page] = pages[1]
        await host.callers["root"].call("nothing")
        rows = (await root.get(page["path"])).json()[page["rows"]]
    assert pages[0] == []
    assert (page["id"], page["title"], page["scope"]) == ("journal", "Journal", "journal:read")
    by_a_person = {"decided_by", "granted_by", "revoked_by"}  # only a call that was asked for has one of them
    assert set(page["columns"]) - by_a_person <= set(rows[0])
    assert rows[0]["tool"] == "nothing"
