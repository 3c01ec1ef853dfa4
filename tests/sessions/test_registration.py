"""Registering: the whole set, in part or not at all, and never half."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import orjson
import pytest
from tests.sessions.fixtures import (
    BOTH_STORES,
    LIMITS,
    T1,
    T2,
    added,
    definition,
    listed,
    listening,
    modified,
    names,
    opened,
    registration,
    removed,
    turns,
)

from toolplug.errors import ApiError, SessionGone
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.tools.negotiation import RefusedTool, Registration, RegistrationResult, ToolChanges
from toolplug.stores.store import Store

pytestmark = pytest.mark.anyio

BAD = {"name": "bad", "inputSchema": "none"}
WHY = "inputSchema must be a JSON Schema, an object"


@pytest.fixture
async def session(sessions: Sessions) -> Session:
    return (await sessions.create(T1)).session


async def refusal_of(session: Session, asked: Registration) -> ApiError:
    with pytest.raises(ApiError) as refusal:
        await session.register(asked)
    return refusal.value


@pytest.mark.requirement("C-6-register", "DYN-AC-1", "DYN-AC-2", "DYN-register-endpoint", "C-6-atomic-revision")
async def test_a_registration_is_the_set_of_the_session(session: Session) -> None:
    assert await session.register(registration("b", "a")) == RegistrationResult(("b", "a"), (), 1)
    assert names(session) == ["b", "a"]
    assert listed(session) == {"b": (True, None), "a": (True, None)}
    assert (session.state.plugin_type, session.state.registered, session.plugin_status) == ("codap", True, "waiting")
    assert session.state.updated_at == session.now()
    assert list(session.executor.catalog) == ["b", "a"]


@pytest.mark.requirement("C-6-audit-in-process")
async def test_every_change_in_process_leaves_an_audit_line_and_a_count(
    sessions: Sessions, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="toolplug.audit"):
        await session.register(registration("a"), request_id="r1")
        await session.update(added("b"), "more", request_id="r2")
        with pytest.raises(ApiError):
            await session.update(added("b"), "again", request_id="r3")
    lines = [orjson.loads(record.message) for record in caplog.records]
    assert [(line["event"], line["outcome"], line["request_id"]) for line in lines] == [
        ("session.register", "done", "r1"),
        ("session.update", "done", "r2"),
        ("session.update", "tool_exists", "r3"),
    ]
    assert {(line["principal"], line["tenant"]) for line in lines} == {("plugin", session.tenant)}
    assert sessions.counters.changes == {("register", "done"): 1, ("update", "done"): 1, ("update", "tool_exists"): 1}


HIDDEN = "a\u202eb\u200b\U000e0041c\x85d\r\ne"
SEEN = "abc\nd\ne"


@pytest.mark.requirement("C-8-hidden-text")
async def test_what_an_application_says_of_itself_is_cleaned(sessions: Sessions) -> None:
    session = (await sessions.create(T1, plugin_type=HIDDEN)).session
    assert session.state.plugin_type == SEEN
    capability = {"type": "storage", "level": "basic", "resources": [{HIDDEN: [HIDDEN]}]}
    asked = replace(registration("a"), plugin_type=None, environment={HIDDEN: {"a": HIDDEN}}, capabilities=[capability])
    await session.register(asked)
    assert session.state.environment == {SEEN: {"a": SEEN}}
    assert session.state.capabilities[0].resources == ({SEEN: [SEEN]},)
    async with listening(session) as client:
        await session.update(added("b"), HIDDEN)
        assert (await client.hear_until("tool-availability-update"))["reason"] == SEEN


@BOTH_STORES
@pytest.mark.requirement("C-6-register-replaces", "C-6-atomic-revision")
async def test_registering_again_replaces_the_set_with_one_event_of_the_difference(session: Session) -> None:
    await session.register(registration("a", "b", "c"))
    async with listening(session) as client:
        tools = [definition("b"), definition("c", "New."), definition("d")]
        registered = await session.register(replace(registration(), tools=tools))
        assert registered == RegistrationResult(("b", "c", "d"), (), 2)
        assert await client.hear_until("tool-availability-update") == {
            "sessionCode": session.code,
            "updates": {"added": [definition("d")], "removed": ["a"], "modified": [definition("c", "New.")]},
            "revision": 2,
            "timestamp": "1970-01-12T13:46:40.000Z",
            "reason": "registered",
        }
    assert names(session) == ["b", "c", "d"]


@BOTH_STORES
@pytest.mark.requirement("C-6-register-replaces", "DYN-plugin-diff")
async def test_the_same_registration_again_changes_nothing(session: Session, store: Store) -> None:
    asked = registration("a", "b", environment={"version": "1"})
    assert await session.register(asked) == await session.register(asked) == RegistrationResult(("a", "b"), (), 1)
    record = await store.read(f"session/{session.code}")
    assert record is not None
    log = await store.events(f"session/{session.code}", None)
    assert [b"tool-availability-update" in event.data for event in log.entries].count(True) == 1


@pytest.mark.parametrize(
    "other",
    [
        registration("b", "a"),
        registration("a", "b", environment={"version": "2"}),
        registration("a", "b", capabilities=[{"type": "storage", "level": "basic"}]),
        replace(registration("a", "b"), plugin_type="slack"),
    ],
    ids=["order", "environment", "capabilities", "plugin type"],
)
async def test_a_registration_that_differs_in_anything_is_a_revision(session: Session, other: Registration) -> None:
    await session.register(registration("a", "b"))
    assert (await session.register(other)).revision == 2


@pytest.mark.requirement("C-6-register-partial", "DYN-AC-8")
async def test_what_is_good_is_taken_and_what_is_bad_is_named(session: Session) -> None:
    asked = replace(registration(), tools=[definition("a"), BAD, 7, definition("a"), definition("b")])
    registered = await session.register(asked)
    assert registered.names == ("a", "b")
    assert registered.failed == (
        RefusedTool("bad", WHY, False),
        RefusedTool("", "a tool must be an object with name, description and inputSchema", False),
        RefusedTool("a", "duplicate name", True),
    )
    assert names(session) == ["a", "b"]


@BOTH_STORES
@pytest.mark.requirement("C-6-register-atomic", "C-6-atomic-revision", "I3-1-negotiation-first")
async def test_an_atomic_registration_takes_all_or_nothing(session: Session, store: Store) -> None:
    await session.register(registration("old"))
    before = await store.read(f"session/{session.code}")
    refusal = await refusal_of(session, replace(registration(), tools=[definition("a"), BAD], atomic=True))
    assert (refusal.code, refusal.param) == ("registration_failed", "tools")
    assert refusal.details == {"failedTools": [{"toolName": "bad", "error": WHY, "recoverable": False}]}
    assert str(refusal) == f"the registration is atomic, and 'bad' failed: {WHY}"
    assert await store.read(f"session/{session.code}") == before
    assert names(session) == ["old"]
    assert (await session.register(replace(registration("a"), atomic=True))).revision == 2


@pytest.mark.requirement("C-6-register-none-good")
async def test_a_registration_without_a_good_tool_keeps_what_was(session: Session) -> None:
    await session.register(registration("old"))
    refusal = await refusal_of(session, replace(registration(), tools=[BAD, {}]))
    assert (refusal.code, refusal.param) == ("registration_failed", "tools")
    no_name = "name must be text"
    failed = (RefusedTool("bad", WHY, False), RefusedTool("", no_name, False))
    assert refusal.details == {"failedTools": [tool.fields() for tool in failed]}
    assert names(session) == ["old"]


@pytest.mark.requirement("C-6-register-empty")
async def test_an_empty_set_is_a_good_registration(session: Session) -> None:
    assert await session.register(registration()) == RegistrationResult((), (), 1)
    assert session.state.registered
    assert (await session.update(added("a"), "later")).revision == 2


@pytest.mark.requirement("DYN-AC-4", "DYN-AC-10", "DYN-US-per-app", "I3-7-side-by-side", "DYN-US-isolated")
async def test_plugins_of_different_types_use_the_same_names_side_by_side(sessions: Sessions, session: Session) -> None:
    other = (await sessions.create(T2, plugin_type="slack")).session
    await session.register(replace(registration(), tools=[definition("send", "To the table.")]))
    slack = Registration(plugin_type="slack", tools=[definition("send", "To the channel."), definition("react")])
    await other.register(slack)
    assert [json["description"] for json in orjson.loads(session.tools_wire())] == ["To the table."]
    assert names(other) == ["send", "react"]
    assert (session.revision, other.revision) == (1, 1)
    await session.update(removed("send"), "gone")
    assert names(session) == []
    assert names(other) == ["send", "react"]


async def test_the_callers_list_may_change_afterwards(session: Session) -> None:
    tools, environment = [definition("a")], {"version": "1"}
    await session.register(replace(registration(), tools=tools, environment=environment))
    tools[0]["name"] = "changed"
    environment["version"] = "2"
    assert names(session) == ["a"]
    assert session.state.environment == {"version": "1"}


@pytest.mark.requirement("C-6-update-atomic", "DYN-AC-6", "DYN-update-endpoint", "DYN-event-update")
async def test_an_update_adds_removes_and_modifies_at_once(session: Session) -> None:
    await session.register(registration("a", "b", "c"))
    async with listening(session) as client:
        changes = ToolChanges(added=[definition("d")], removed=["b"], modified=[definition("a", "New.")])
        updated = await session.update(changes, "a column was added")
        assert updated.revision == 2
        assert [tool.name for tool in updated.difference.added] == ["d"]
        assert updated.difference.removed == ("b",)
        assert [tool.name for tool in updated.difference.modified] == ["a"]
        assert await client.hear_until("tool-availability-update") == {
            "sessionCode": session.code,
            "updates": {"added": [definition("d")], "removed": ["b"], "modified": [definition("a", "New.")]},
            "revision": 2,
            "timestamp": "1970-01-12T13:46:40.000Z",
            "reason": "a column was added",
        }
    assert names(session) == ["a", "c", "d"]
    assert list(session.executor.catalog) == ["a", "c", "d"]


@pytest.mark.requirement("C-6-update-nothing")
@pytest.mark.parametrize("changes", [ToolChanges(), modified("a", "")], ids=["nothing", "as it was"])
async def test_an_update_of_nothing_is_no_revision_and_no_event(session: Session, changes: ToolChanges) -> None:
    await session.register(registration("a"))
    async with listening(session) as client:
        updated = await session.update(changes, "nothing")
        assert (updated.revision, bool(updated.difference)) == (1, False)
        await turns()
        assert client.reader.idle


@pytest.mark.requirement("DYN-update-unregistered", "C-6-update-conflicts")
async def test_an_update_before_any_registration_is_refused(session: Session) -> None:
    with pytest.raises(ApiError) as refusal:
        await session.update(added("a"), "test")
    assert refusal.value.code == "not_registered"


CONFLICTS: list[tuple[ToolChanges, str, str]] = [
    (added("x", "a"), "tool_exists", "toolUpdates.added[1].name"),
    (removed("a", "none"), "tool_not_found", "toolUpdates.removed[1]"),
    (modified("none", ""), "tool_not_found", "toolUpdates.modified[0]"),
    (ToolChanges(added=[definition("x"), definition("x")]), "invalid_tool", "toolUpdates"),
    (ToolChanges(removed=["a", "a"]), "invalid_tool", "toolUpdates"),
    (ToolChanges(added=[definition("a")], removed=["a"]), "invalid_tool", "toolUpdates"),
    (ToolChanges(modified=[definition("a")], removed=["a"]), "invalid_tool", "toolUpdates"),
    (ToolChanges(added=[definition("x"), BAD]), "invalid_tool", "toolUpdates.added[1].inputSchema"),
    (ToolChanges(modified=[definition("a") | {"name": "a b"}]), "invalid_tool", "toolUpdates.modified[0].name"),
    (ToolChanges(modified=[7]), "invalid_tool", "toolUpdates.modified[0]"),
]


@BOTH_STORES
@pytest.mark.requirement("C-6-update-conflicts", "C-6-update-invalid", "C-6-update-atomic")
@pytest.mark.parametrize(("changes", "code", "param"), CONFLICTS)
async def test_an_update_that_cannot_be_is_refused_whole_by_its_path(
    session: Session, store: Store, changes: ToolChanges, code: str, param: str
) -> None:
    await session.register(registration("a", "b"))
    before = await store.read(f"session/{session.code}")
    with pytest.raises(ApiError) as refusal:
        await session.update(changes, "test")
    assert (refusal.value.code, refusal.value.param) == (code, param)
    assert await store.read(f"session/{session.code}") == before
    assert names(session) == ["a", "b"]


@pytest.mark.requirement("C-6-update-if-match")
async def test_an_update_for_another_revision_is_refused(session: Session) -> None:
    await session.register(registration("a"))
    for expected in (0, 2):
        with pytest.raises(ApiError) as refusal:
            await session.update(added("b"), "test", expected)
        assert (refusal.value.code, refusal.value.param) == ("revision_mismatch", "If-Match")
    assert (await session.update(added("b"), "test", 1)).revision == 2


@BOTH_STORES
@pytest.mark.requirement("C-6-atomic-revision", "I3-1-cas")
async def test_fifty_updates_at_once_are_fifty_revisions(session: Session) -> None:
    await session.register(registration())
    async with listening(session) as client:
        updates = await asyncio.gather(*(session.update(added(f"t{n}"), "test") for n in range(50)))
        await client.hear_until("tool-availability-update", 50)
    assert sorted(updated.revision for updated in updates) == list(range(2, 52))
    assert sorted(names(session)) == sorted(f"t{n}" for n in range(50))
    told = client.of("tool-availability-update")
    assert [event["revision"] for event in told] == list(range(2, 52))
    told_names = [event["updates"]["added"][0]["name"] for event in told]  # type: ignore[index]
    assert told_names == names(session)


@BOTH_STORES
@pytest.mark.requirement("C-6-update-if-match", "I3-1-cas")
async def test_one_of_those_that_expect_one_revision_wins(session: Session) -> None:
    await session.register(registration())
    racing = [session.update(added(f"t{n}"), "test", 1) for n in range(10)]
    outcomes = await asyncio.gather(*racing, return_exceptions=True)
    refused = [outcome.code for outcome in outcomes if isinstance(outcome, ApiError)]
    assert refused == ["revision_mismatch"] * 9
    assert session.revision == 2
    assert len(names(session)) == 1


@BOTH_STORES
@pytest.mark.requirement("C-6-register-replaces")
async def test_each_of_those_that_register_at_once_hears_of_its_own_revision(session: Session) -> None:
    asked = [registration(f"t{n}") for n in range(5)]
    registered = await asyncio.gather(*(session.register(each) for each in asked))
    assert sorted(each.revision for each in registered) == [1, 2, 3, 4, 5]
    last = max(registered, key=lambda each: each.revision)
    assert names(session) == list(last.names)


@BOTH_STORES
async def test_a_caller_that_goes_away_leaves_its_update_whole(session: Session) -> None:
    await session.register(registration("a"))
    for count in range(6):
        update = asyncio.create_task(session.update(added(f"t{count}"), "test"))
        await turns(count)
        update.cancel()
        await asyncio.gather(update, return_exceptions=True)
        # Whatever was begun is over when a later change is.
        await session.update(modified("a", str(count)), "later")
    async with listening(session) as client:
        (connected,) = client.of("connected")
        assert connected["revision"] == session.revision
        shown = [tool["name"] for tool in connected["tools"]]  # type: ignore[attr-defined]
    assert shown == names(session) == list(session.executor.catalog)


@BOTH_STORES
async def test_a_session_that_is_over_takes_nothing(sessions: Sessions, session: Session) -> None:
    await session.register(registration("a"))
    waiting = asyncio.gather(
        sessions.end(session, T1), session.update(added("b"), "test"), session.register(registration("c"))
    )
    with pytest.raises(SessionGone):
        await waiting
    for late in (session.register(registration("a")), session.update(added("b"), "test"), session.heartbeat()):
        with pytest.raises(SessionGone):
            await late
    with pytest.raises(SessionGone):
        await session.open_stream("client", None)


@pytest.mark.requirement("C-6-limits")
async def test_ten_updates_a_minute_are_taken_and_the_first_registration_is_free(store: Store) -> None:
    async with opened(store, limits=replace(LIMITS, max_updates_per_minute=10)) as sessions:
        session = (await sessions.create(T1)).session
        await session.register(registration())
        for number in range(8):
            await session.update(added(f"t{number}"), "test")
        # The two that are left: one registration and one that is refused.
        await session.register(registration("a"))
        with pytest.raises(ApiError, match="no tool 'none'"):
            await session.update(removed("none"), "test")
        for asked in (session.update(added("late"), "test"), session.register(registration("late"))):
            with pytest.raises(ApiError) as refusal:
                await asked
            assert refusal.value.code == "too_many_updates"
            assert 0 < (refusal.value.retry_after_s or 0) <= 60
        assert names(session) == ["a"]


@pytest.mark.requirement("C-6-limits")
async def test_refused_first_registrations_count(store: Store) -> None:
    async with opened(store, limits=replace(LIMITS, max_updates_per_minute=2)) as sessions:
        session = (await sessions.create(T1)).session
        bad = replace(registration(), tools=[BAD])
        assert [(await refusal_of(session, bad)).code for _ in range(3)] == [
            "registration_failed",
            "registration_failed",
            "too_many_updates",
        ]


@pytest.mark.requirement("C-6-limits")
async def test_only_one_of_many_first_registrations_is_free(store: Store) -> None:
    async with opened(store, limits=replace(LIMITS, max_updates_per_minute=2)) as sessions:
        session = (await sessions.create(T1)).session
        asked = [session.register(registration(f"t{n}")) for n in range(10)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(outcome, RegistrationResult) for outcome in outcomes) == 3
        assert session.revision == 3


@pytest.mark.requirement("C-6-too-many-tools", "C-6-limits", "DYN-OQ-2", "H-limit-session-tools")
async def test_256_tools_are_taken_and_one_more_is_not(session: Session) -> None:
    full = registration(*(f"t{n}" for n in range(256)))
    more = registration(*(f"t{n}" for n in range(257)))
    assert (await refusal_of(session, more)).code == "too_many_tools"
    assert not session.state.registered
    assert len((await session.register(full)).names) == 256
    with pytest.raises(ApiError) as refusal:
        await session.update(added("more"), "test")
    assert refusal.value.code == "too_many_tools"
    assert (await refusal_of(session, more)).code == "too_many_tools"
    changes = ToolChanges(added=[definition("other")], removed=["t0"])
    assert (await session.update(changes, "test")).revision == 2
    assert len(names(session)) == 256


@BOTH_STORES
@pytest.mark.requirement("C-6-limits")
async def test_a_set_of_8_mib_is_taken_and_a_larger_one_is_not(store: Store) -> None:
    async with opened(store, limits=replace(LIMITS, max_tools=1000)) as sessions:
        session = (await sessions.create(T1)).session
        size = 8 * 1024 * 1024 // 128
        tools = [sized(f"t{n:03}", size) for n in range(128)]
        await session.register(replace(registration(), tools=tools))
        assert session.state.tools.size == 8 * 1024 * 1024
        with pytest.raises(ApiError) as refusal:
            await session.update(added("x"), "test")
        assert refusal.value.code == "too_many_tools"
        too_large = replace(registration(), tools=[*tools, definition("x")])
        assert (await refusal_of(session, too_large)).code == "too_many_tools"


def sized(name: str, size: int) -> dict[str, object]:
    """A definition of so many bytes."""
    empty = len(orjson.dumps(definition(name, annotations={"x": ""})))
    return definition(name, annotations={"x": "x" * (size - empty)})


@BOTH_STORES
@pytest.mark.requirement("C-6-limits")
async def test_so_many_sessions_are_open_and_no_more(store: Store) -> None:
    async with opened(store, limits=replace(LIMITS, max_sessions=3)) as sessions:
        created = await asyncio.gather(*(sessions.create(T1) for _ in range(5)), return_exceptions=True)
        refusals = [each for each in created if isinstance(each, ApiError)]
        assert [(refusal.code, refusal.retry_after_s) for refusal in refusals] == [("too_many_sessions", 60.0)] * 2
        assert len(sessions.live) == 3
        await sessions.end(sessions.live[0], T1)
        await sessions.create(T2)


async def test_others_have_their_turn_while_definitions_that_take_long_are_read(session: Session) -> None:
    heavy = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(900)}}
    tools = [{**definition(f"t{number}"), "inputSchema": {**heavy, "title": f"t{number}"}} for number in range(40)]
    turn = 0

    async def neighbour() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(neighbour())
    before = turn
    await session.register(Registration(tools=tools))
    beside.cancel()
    assert turn - before >= 10
