"""Capabilities are negotiated before anything is kept."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sessions.fixtures import T1, definition, names, registration

from toolplug.errors import ApiError
from toolplug.parts.sessions.service import Sessions
from toolplug.parts.sessions.session import Session
from toolplug.parts.sessions.tools.negotiation import Registration, ToolChanges
from toolplug.parts.sessions.tools.session_tool import DeclaredCapability
from toolplug.stores.store import Store

pytestmark = pytest.mark.anyio

DATA = {"type": "data_analysis", "level": "advanced", "resources": ["tables", {"rows": 5}]}


@pytest.fixture
async def session(sessions: Sessions) -> Session:
    return (await sessions.create(T1)).session


def declaring(*capabilities: Any, tools: list[dict[str, object]] | None = None, **more: Any) -> Registration:
    return Registration(plugin_type="codap", tools=tools or [], capabilities=capabilities, **more)


BAD: list[tuple[object, str]] = [
    ("data_analysis", "capabilities[1]"),
    (None, "capabilities[1]"),
    ([], "capabilities[1]"),
    ({"type": "telepathy", "level": "basic"}, "capabilities[1].type"),
    ({"type": None, "level": "basic"}, "capabilities[1].type"),
    ({"type": ["storage"], "level": "basic"}, "capabilities[1].type"),
    ({"level": "basic"}, "capabilities[1].type"),
    ({"type": "storage"}, "capabilities[1].level"),
    ({"type": "storage", "level": "expert"}, "capabilities[1].level"),
    ({"type": "storage", "level": "Basic"}, "capabilities[1].level"),
    ({"type": "storage", "level": "basic", "resources": "all"}, "capabilities[1].resources"),
    ({"type": "storage", "level": "basic", "resources": None}, "capabilities[1].resources"),
    ({"type": "storage", "level": "basic", "quota": 5}, "capabilities[1].quota"),
]


@pytest.mark.requirement("C-6-capability-invalid", "C-6-capability-shape", "DYN-AC-5", "I3-1-negotiation-first")
@pytest.mark.parametrize(("capability", "param"), BAD)
async def test_a_bad_capability_is_refused_by_its_path_and_nothing_is_kept(
    session: Session, store: Store, capability: object, param: str
) -> None:
    before = await store.read(f"session/{session.code}")
    with pytest.raises(ApiError) as refusal:
        await session.register(declaring(DATA, capability, tools=[definition("a")]))
    assert (refusal.value.code, refusal.value.param) == ("invalid_capability", param)
    assert len(str(refusal.value)) < 500
    assert await store.read(f"session/{session.code}") == before
    assert (session.revision, session.state.registered) == (0, False)


async def test_a_refusal_does_not_repeat_an_endless_key(session: Session) -> None:
    with pytest.raises(ApiError) as refusal:
        await session.register(declaring({"type": "storage", "level": "basic", "x" * 100_000: 1}))
    assert refusal.value.code == "invalid_capability"
    assert len(str(refusal.value)) + len(refusal.value.param or "") < 500


@pytest.mark.requirement("DYN-capability-shape", "DYN-environment-shape", "I3-1-kept")
async def test_capabilities_and_environment_are_kept_as_they_were_declared(session: Session) -> None:
    environment = {"version": "3.0", "features": ["charts"], "limitations": {"rows": 5_000}, "context": None}
    bare = {"type": "storage", "level": "basic"}
    await session.register(declaring(DATA, bare, environment=environment))
    assert session.state.capabilities == (
        DeclaredCapability("data_analysis", "advanced", ("tables", {"rows": 5})),
        DeclaredCapability("storage", "basic", ()),
    )
    assert session.state.environment == environment


def needing(*required: object) -> dict[str, object]:
    return definition("chart", requires=list(required))


MET: list[tuple[list[object], list[object]]] = [
    ([], []),
    (["data_analysis"], [DATA]),
    ([{"type": "data_analysis"}], [DATA]),
    ([{"type": "data_analysis", "level": None}], [DATA]),
    ([{"type": "data_analysis", "level": "basic"}], [DATA]),
    ([{"type": "data_analysis", "level": "advanced"}], [DATA]),
    ([{"type": "data_analysis", "level": "enterprise"}], [DATA, DATA | {"level": "enterprise"}]),
    (["data_analysis", "storage"], [{"type": "storage", "level": "basic"}, DATA]),
]


@pytest.mark.requirement("C-6-capability-level")
@pytest.mark.parametrize(("required", "declared"), MET)
async def test_a_tool_whose_requirements_are_declared_is_taken(
    session: Session, required: list[object], declared: list[object]
) -> None:
    registered = await session.register(declaring(*declared, tools=[needing(*required)]))
    assert registered.names == ("chart",)
    assert registered.failed == ()


UNMET: list[tuple[object, list[object], str]] = [
    ("storage", [DATA], "it requires the capability 'storage', which was not declared"),
    ("storage", [], "it requires the capability 'storage', which was not declared"),
    (
        {"type": "data_analysis", "level": "enterprise"},
        [DATA],
        "it requires 'data_analysis' at level 'enterprise'; 'advanced' was declared",
    ),
]


@pytest.mark.requirement("C-6-capability-level", "DYN-AC-5", "DYN-AC-8")
@pytest.mark.parametrize(("required", "declared", "why"), UNMET)
async def test_a_tool_that_requires_more_than_was_declared_fails_by_name(
    session: Session, required: object, declared: list[object], why: str
) -> None:
    registered = await session.register(declaring(*declared, tools=[needing(required), definition("plain")]))
    assert registered.names == ("plain",)
    assert registered.failed == (("chart", why, True),)


BAD_REQUIREMENTS: list[tuple[object, str]] = [
    ("storage", "requires"),
    ({"type": "storage"}, "requires"),
    ([7], "requires[0]"),
    (["storage", None], "requires[1]"),
    (["telepathy"], "requires[0]"),
    ([{"type": "storage", "level": "expert"}], "requires[0].level"),
    ([{"type": "storage", "quota": 1}], "requires[0]"),
    ([{"level": "basic"}], "requires[0]"),
]


@pytest.mark.requirement("C-6-tool-shape")
@pytest.mark.parametrize(("requires", "at"), BAD_REQUIREMENTS)
async def test_a_bad_requirement_is_a_bad_definition(session: Session, requires: object, at: str) -> None:
    await session.register(registration("a"))
    with pytest.raises(ApiError) as refusal:
        await session.update(ToolChanges(added=[definition("b", requires=requires)]), "test")
    assert (refusal.value.code, refusal.value.param) == ("invalid_tool", f"toolUpdates.added[0].{at}")
    assert names(session) == ["a"]


@pytest.mark.requirement("C-6-capability-level")
async def test_an_update_is_held_to_the_declared_capabilities(session: Session) -> None:
    await session.register(declaring(DATA, tools=[definition("a")]))
    await session.update(ToolChanges(added=[needing("data_analysis")]), "test")
    with pytest.raises(ApiError) as refusal:
        await session.update(ToolChanges(modified=[needing("storage")]), "test")
    assert (refusal.value.code, refusal.value.param) == ("invalid_tool", "toolUpdates.modified[0]")
    assert "'storage', which was not declared" in str(refusal.value)
    assert session.revision == 2


def nested(depth: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(depth):
        value = {"x": value}
    return value


@pytest.mark.requirement("C-6-limits", "I3-1-negotiation-first")
async def test_an_environment_of_64_kib_is_kept_and_a_larger_one_is_not(session: Session) -> None:
    most = 64 * 1024 - len(b'[[],{"x":""}]')
    with pytest.raises(ApiError) as refusal:
        await session.register(declaring(environment={"x": "x" * (most + 1)}))
    assert (refusal.value.code, refusal.value.param) == ("invalid_environment", "environment")
    assert not session.state.registered
    await session.register(declaring(environment={"x": "x" * most}))
    assert session.state.environment == {"x": "x" * most}


@pytest.mark.parametrize(
    "asked",
    [
        declaring(environment=nested(400)),
        declaring({"type": "storage", "level": "basic", "resources": [nested(400)]}),
        declaring(environment={"x": {1, 2}}),
    ],
    ids=["deep environment", "deep resources", "no JSON"],
)
async def test_an_environment_that_cannot_be_kept_is_refused(session: Session, asked: Registration) -> None:
    with pytest.raises(ApiError) as refusal:
        await session.register(asked)
    assert refusal.value.code == "invalid_environment"
