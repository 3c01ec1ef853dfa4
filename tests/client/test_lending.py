"""The host gets what differs from what it has, once, and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.client.fixtures import QUICK, application, entered
from tests.client.scripted_host import CODE, TOKEN, Said, ScriptedHost, refused

from toolplug.client import Application, Capability, Environment, HostRefused, SessionOver, Tool

pytestmark = [pytest.mark.anyio, pytest.mark.process]


def tool(name: str, description: str = "") -> Tool:
    async def function(text: str) -> str:
        return text

    return Tool(function, name=name, description=description)


def updates(host: ScriptedHost) -> list[dict[str, Any]]:
    """What the updates so far changed: names, and the reason."""
    return [
        {
            **{key: [_name(item) for item in value] for key, value in heard.body["toolUpdates"].items()},
            "reason": heard.body["reason"],
        }
        for heard in host.asked("update-tools")
    ]


def _name(item: str | Mapping[str, str]) -> str:
    return item if isinstance(item, str) else item["name"]


def metadata(host: ScriptedHost, *tools: Tool, registered: bool = True, **other: object) -> Said:
    """What the host says that it has."""
    said = {
        "apiVersion": "2.0.0",
        "pluginType": "table",
        "capabilities": [],
        "environment": Environment().wire(),
        "tools": [{**tool.definition, "available": True} for tool in tools],
        "registered": registered,
        "revision": host.revision,
    }
    return Said(200, {**said, **other})


@pytest.mark.requirement("DYN-plugin-diff", "DYN-US-update")
async def test_changes_that_are_made_together_are_one_update_with_the_difference_alone(host: ScriptedHost) -> None:
    app = application(host)
    app.replace([tool("stays"), tool("goes"), tool("changes")])
    async with entered(app, host):
        app.add(tool("comes"))
        app.remove("goes", reason="no selection")
        app.add(tool("changes", "is other now"), reason="no selection")
        await app.settled()
        assert updates(host) == [
            {
                "added": ["comes"],
                "removed": ["goes"],
                "modified": ["changes"],
                "reason": "comes was added; no selection",
            }
        ]
        assert host.asked("update-tools")[0].headers["if-match"] == "1"
        app.remove("comes", reason="done")
        await app.settled()
        assert updates(host)[1:] == [{"removed": ["comes"], "reason": "done"}]
        assert host.asked("update-tools")[1].headers["if-match"] == "2"


@pytest.mark.requirement("DYN-plugin-diff")
async def test_nothing_is_sent_where_nothing_has_changed(host: ScriptedHost) -> None:
    app = application(host)
    app.replace([tool("one"), tool("two")])
    async with entered(app, host):
        app.replace([tool("two"), tool("one")], reason="another order")
        await app.settled()
        app.add(tool("three"))
        app.remove("three")
        await app.settled()
        await app.settled()
    assert host.asked("update-tools") == []


async def test_true_in_place_of_one_is_a_change(host: ScriptedHost) -> None:
    async def one(value: int = 1) -> None: ...
    async def true(value: Any = True) -> None: ...

    app = application(host)
    app.add(Tool(one, name="tool"))
    async with entered(app, host):
        app.add(Tool(true, name="tool"))
        await app.settled()
        assert [update["modified"] for update in updates(host)] == [["tool"]]


async def test_where_the_host_has_other_tools_than_believed_it_looks_again(host: ScriptedHost) -> None:
    app = application(host)
    app.replace([tool("one"), tool("two")])
    async with entered(app, host):
        host.says("update-tools", refused(412, "revision_mismatch"))
        host.revision = 7
        host.says("metadata", metadata(host, tool("one"), tool("foreign")))
        app.add(tool("three"), reason="new")
        await app.settled()
        assert updates(host)[1:] == [{"added": ["two", "three"], "removed": ["foreign"], "reason": "new"}]
        assert host.asked("update-tools")[1].headers["if-match"] == "7"


@pytest.mark.requirement("DYN-plugin-diff")
async def test_an_update_whose_answer_was_lost_is_not_made_twice(host: ScriptedHost) -> None:
    app = application(host)
    app.add(tool("one"))
    async with entered(app, host):
        host.says("update-tools", Said(0), refused(412, "revision_mismatch"))
        host.says("metadata", metadata(host, tool("one"), tool("two"), revision=2))
        app.add(tool("two"))
        await app.settled()
        app.add(tool("three"))
        await app.settled()
        assert [heard.headers["if-match"] for heard in host.asked("update-tools")] == ["1", "1", "2"]
        assert updates(host)[2]["added"] == ["three"]


async def test_too_many_updates_wait_as_long_as_the_host_says_and_become_one(host: ScriptedHost) -> None:
    app = application(host)
    async with entered(app, host):
        host.says("update-tools", refused(429, "too_many_updates", **{"Retry-After": "0.05"}))
        app.add(tool("one"))
        while not host.asked("update-tools"):
            await asyncio.sleep(0)
        app.add(tool("two"))
        await app.settled()
        assert [update["added"] for update in updates(host)] == [["one"], ["one", "two"]]


@pytest.mark.requirement("DYN-UX-errors")
async def test_a_tool_that_the_host_does_not_take_leaves_the_others_alone(
    host: ScriptedHost, caplog: pytest.LogCaptureFixture
) -> None:
    app = application(host)
    app.add(tool("good"))
    failed = [{"toolName": "bad", "error": "its schema is too deep", "recoverable": False}]
    async with entered(app, host):
        host.says("update-tools", refused(422, "invalid_tool"))
        host.says(
            "register-tools", Said(201, {"registeredTools": ["good", "new"], "failedTools": failed, "revision": 5})
        )
        app.add(tool("bad"))
        app.add(tool("new"))
        await app.settled()
        assert app.refused == {"bad": "its schema is too deep"}
        app.add(tool("next"))
        await app.settled()
        assert updates(host)[1:] == [{"added": ["next"], "reason": "next was added"}]
        assert host.asked("update-tools")[1].headers["if-match"] == "5"
        app.add(tool("bad", "is better now"))
        await app.settled()
        assert updates(host)[2]["added"] == ["bad"]
        assert app.refused == {}
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == [
        "the host does not take the tool 'bad': its schema is too deep"
    ]


async def test_a_change_that_the_host_refuses_is_told_and_the_next_one_is_tried(host: ScriptedHost) -> None:
    app = application(host)
    async with entered(app, host):
        host.says("update-tools", refused(422, "too_many_tools", "256 tools are allowed"))
        app.add(tool("one"))
        with pytest.raises(HostRefused, match="256 tools are allowed"):
            await app.settled()
        app.add(tool("two"))
        await app.settled()
        assert updates(host)[1]["added"] == ["one", "two"]


async def test_a_session_that_has_no_registration_any_more_gets_one(host: ScriptedHost) -> None:
    app = application(host)
    app.add(tool("one"))
    async with entered(app, host):
        host.says("update-tools", refused(409, "not_registered"))
        host.says("metadata", metadata(host, tool("default"), registered=False))
        app.add(tool("two"))
        await app.settled()
        again = host.asked("register-tools")[1]
        assert [item["name"] for item in again.body["tools"]] == ["one", "two"]


async def test_an_update_that_stays_refused_becomes_a_registration(host: ScriptedHost) -> None:
    app = application(host)
    async with entered(app, host):
        host.says("update-tools", refused(409, "tool_exists"), refused(409, "tool_exists"))
        host.says("metadata", metadata(host))
        app.add(tool("one"))
        await app.settled()
        assert len(host.asked("register-tools")) == 2


async def test_a_host_that_is_away_gets_the_change_when_it_is_back(host: ScriptedHost) -> None:
    app = application(host)
    async with entered(app, host):
        host.says("update-tools", Said(503), Said(0))
        app.add(tool("one"))
        await app.settled()
        assert len(host.asked("update-tools")) == 3


def joining(host: ScriptedHost, **options: Any) -> Application:
    return Application.joining(host.url, code=CODE, token=TOKEN, plugin_type="table", backoff=QUICK, **options)


@pytest.mark.requirement("DYN-plugin-diff")
async def test_joining_sends_only_what_the_session_does_not_have(host: ScriptedHost) -> None:
    host.revision = 3
    host.says("metadata", metadata(host, tool("one"), tool("gone")), metadata(host, tool("one"), tool("two")))
    for _ in range(2):
        app = joining(host)
        app.replace([tool("one"), tool("two")])
        async with entered(app, host) as stream:
            assert stream.heard.headers["authorization"] == f"Bearer {TOKEN}"
    assert [(update["added"], update["removed"]) for update in updates(host)] == [(["two"], ["gone"])]
    assert {heard.method for heard in host.heard} == {"GET", "POST"}


@pytest.mark.parametrize(
    "found",
    [
        {"registered": False, "tools": []},
        {"pluginType": "chart"},
        {"capabilities": [{"type": "storage", "level": "basic", "resources": []}]},
        {"environment": {"version": "1"}},
    ],
)
async def test_joining_registers_anew_where_the_session_knows_another_application(
    host: ScriptedHost, found: dict[str, object]
) -> None:
    host.says("metadata", metadata(host, tool("one"), **found))
    capability = Capability(type="computation", level="advanced", resources=("gpu",))
    app = joining(host, capabilities=[capability] if "capabilities" in found else [])
    app.add(tool("one"))
    async with entered(app, host):
        assert len(host.asked("register-tools")) == 1


@pytest.mark.requirement("DYN-capability-shape", "DYN-environment-shape")
async def test_capabilities_and_environment_are_told_as_the_host_reads_them(host: ScriptedHost) -> None:
    capability = Capability(type="storage", level="advanced", resources=({"rows": 2},))
    app = application(
        host,
        capabilities=[capability],
        environment=Environment(version="3.1", features=("graph",), context_info={"locale": "de"}),
    )
    async with entered(app, host):
        (registered,) = host.asked("register-tools")
    assert registered.body["capabilities"] == [{"type": "storage", "level": "advanced", "resources": [{"rows": 2}]}]
    assert registered.body["environment"] == {
        "version": "3.1",
        "features": ["graph"],
        "limitations": [],
        "contextInfo": {"locale": "de"},
    }


async def test_a_change_after_the_end_is_told_to_whoever_waits_for_it(host: ScriptedHost) -> None:
    app = application(host, backoff=replace(QUICK, gather_s=60.0))
    async with entered(app, host) as stream:
        app.add(tool("one"))
        waiting = asyncio.create_task(app.settled())
        await stream.send("error", {"code": "session_ended", "message": "over"}, 1)
        with pytest.raises(SessionOver):
            await waiting
        with pytest.raises(SessionOver):
            await app.serve()
        app.remove("one")
        with pytest.raises(SessionOver):
            await app.settled()


async def test_a_function_in_a_thread_that_changes_the_tools_is_told_how_to_and_changes_nothing(
    host: ScriptedHost, caplog: pytest.LogCaptureFixture
) -> None:
    app = application(host)

    @app.tool
    def clear() -> None:
        """Remove all rows."""
        app.remove("clear")

    async with entered(app, host) as stream:
        await stream.request("r1", "clear")
        assert await host.result() == {"id": "r1", "error": 'internal error: tool "clear" failed'}
        assert list(app.tools) == ["clear"]
    (failure,) = [record for record in caplog.records if record.exc_info]
    assert "make this one `async def`" in str(failure.exc_info[1] if failure.exc_info else "")


def test_removing_what_is_not_lent_is_a_mistake() -> None:
    app = Application("http://127.0.0.1", plugin_type="table")
    with pytest.raises(KeyError):
        app.remove("nothing")
    assert app.tools == {}
