"""Stored conversations whose list of tools stays, with the real `openai` client, a real application and a server."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.host.plain_server import PlainServer
from tests.responses.backend.script import Call, calls, says
from tests.responses.conftest import Staging
from tests.responses.harness import MODEL, Harness
from tests.search.changing_server import ChangingServer, sections_of
from tests.search.changing_tools import SentBytes

from toolplug.client import Application
from toolplug.parts.responses.commands.chat import Chat
from toolplug.parts.responses.commands.chat_over_http import connect_to_host

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I34-lists-that-stay")]

ROOT = {"Authorization": "Bearer root-key"}
GONE = 'no builtin provider handles tool "{}"'


def lend(name: str, argument: str) -> Callable[..., str]:
    """A function of this name with one argument of this name."""

    def x_only(x: str) -> str:
        return f"{name} x={x}"

    def y_only(y: str) -> str:
        return f"{name} y={y}"

    function: Callable[..., str] = x_only if argument == "x" else y_only
    function.__name__ = name
    function.__doc__ = f"Does the thing that {name} is for, in the usual way."
    return function


def sent_to(harness: Harness) -> SentBytes:
    """What the backend was sent."""
    sent = SentBytes()
    for asked in harness.backend.asked:
        sent.add(asked.body["tools"], asked.messages)
    return sent


class Zoo:
    """An application whose tools change, and a provider that comes and goes."""

    def __init__(self, harness: Harness, app: Application, seed: int = 34) -> None:
        self._harness, self._app, self._random = harness, app, random.Random(seed)
        self._argument: dict[str, str] = {}
        self._searches = True

    async def change(self, turn: int) -> tuple[Call, str]:
        """Make one change; return a call of a model that knows of it, and its answer."""
        if turn % 5 == 4:
            self._searches = not self._searches
            verb = "enable" if self._searches else "disable"
            assert (await self._harness.http.post(f"/v1/providers/search/{verb}", headers=ROOT)).status_code == 200
            answer = "high at Cork" if self._searches else GONE.format("tide")
            return Call("tide", '{"place": "Cork"}', f"call_{turn}"), answer
        name = f"live_{self._random.randrange(6)}"
        before = self._argument.get(name)
        if turn % 5 == 2 and before is not None:
            self._argument[name] = "y" if before == "x" else "x"
        elif before is None:
            self._argument[name] = "x"
        else:
            del self._argument[name]
            self._app.remove(name)
            await self._app.settled()
            return Call(name, '{"x": "1"}', f"call_{turn}"), GONE.format(name)
        argument = self._argument[name]
        self._app.add(lend(name, argument))
        await self._app.settled()
        given = {"name": name, "arguments": {argument: "1"}}
        return Call("call_tool", json.dumps(given), f"call_{turn}"), f"{name} {argument}=1"


async def create(harness: Harness, app: Application, text: str, previous: str | None = None, **more: Any) -> Any:
    """One response of the session's caller."""
    metadata = {"toolplug_session": app.code}
    body = {"model": MODEL, "input": text, "previous_response_id": previous, "metadata": metadata, **more}
    answer = await harness.http.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    "turns", [pytest.param(10, marks=pytest.mark.process), pytest.param(100, marks=pytest.mark.judge)]
)
async def test_changes_in_many_turns_leave_the_prefix_as_it_is(staging: Staging, turns: int) -> None:
    # A session has ten updates a minute by default, and the conversation of a hundred turns has more.
    harness = await staging(sessions={"max_updates_per_minute": 600})
    app = Application(harness.url, plugin_type="zoo", api_key="alice-key")
    previous: str | None = None
    async with app:
        zoo = Zoo(harness, app)
        for turn in range(turns):
            if turn:
                call, answer = await zoo.change(turn)
                harness.backend.plays(calls(call), says(f"Done {turn}."))
            else:
                harness.backend.plays(says("Hello."))
            response = await create(harness, app, f"turn {turn}", previous)
            previous = response["id"]
            if turn:
                assert str(response["output"][0]["output"]).startswith(answer), (turn, call)
    sent = sent_to(harness)
    assert (sent.requests, sent.changed_prefixes) == (2 * turns - 1, 0)
    assert "call_tool" in harness.backend.asked[0].tool_names


@pytest.mark.process
async def test_a_change_during_a_response_is_told_with_the_answer_of_the_tool(staging: Staging) -> None:
    harness = await staging()
    app = Application(harness.url, plugin_type="zoo", api_key="alice-key")

    @app.tool
    async def open_cage() -> str:
        """Open the cage."""
        app.add(lend("feed", "x"))
        app.remove("open_cage")
        await app.settled()
        return "open"

    async with app:
        harness.backend.plays(
            calls(Call("open_cage")),
            calls(Call("call_tool", '{"name": "feed", "arguments": {"x": "1"}}', "call_2")),
            calls(Call("open_cage", "{}", "call_3")),
            says("Fed."),
            says("Again."),
        )
        response = await create(harness, app, "Go")
        outputs = [item.get("output") for item in response["output"]]
        await create(harness, app, "Go on", response["id"])
    assert outputs == ["open", "feed x=1", GONE.format("open_cage"), None]
    told = harness.backend.asked[1].messages[-1]
    assert told["role"] == "tool"
    lines = told["content"].splitlines()
    assert lines[:4] == ["open", "", "<tool_changes>", "Removed, a call of them fails: open_cage"]
    assert json.loads(lines[4].partition("call_tool: ")[2])["name"] == "feed"
    assert sent_to(harness).changed_prefixes == 0
    shown = (await harness.http.get(f"/v1/responses/{response['id']}")).json()
    assert "tool_changes" not in json.dumps(shown)


@pytest.mark.process
async def test_what_is_shown_of_the_input_is_what_was_sent(staging: Staging) -> None:
    harness = await staging()
    app = Application(harness.url, plugin_type="zoo", api_key="alice-key")
    async with app:
        harness.backend.plays(says("One."), says("Two."))
        first = await create(harness, app, "One")
        app.add(lend("feed", "x"))
        await app.settled()
        second = await create(harness, app, "Two", first["id"])
        items = (await harness.http.get(f"/v1/responses/{second['id']}/input_items")).json()["data"]
    assert "feed" in harness.backend.asked[1].messages[-1]["content"]
    assert "feed" not in json.dumps(items)


@pytest.mark.process
@pytest.mark.parametrize(
    ("rule", "members", "stays"),
    [
        ("append", {}, True),
        ("append", {"store": False}, False),
        ("replace", {}, False),
        (None, {}, False),
    ],
)
async def test_the_rule_says_whether_the_list_stays(
    staging: Staging, rule: str | None, members: dict[str, Any], stays: bool
) -> None:
    harness = await staging(tool_changes=rule)
    harness.backend.plays(says("Hello."))
    await harness.create("Hello", **members)
    assert ("call_tool" in harness.backend.asked[0].tool_names) is stays


@pytest.mark.process
async def test_another_list_of_the_client_begins_a_new_list_and_is_counted(staging: Staging) -> None:
    harness = await staging()
    app = Application(harness.url, plugin_type="zoo", api_key="alice-key")
    own = {"type": "function", "name": "mine", "parameters": {"type": "object", "properties": {}}}
    async with app:
        harness.backend.plays(says("One."), says("Two."), says("Three."))
        first = await create(harness, app, "One")
        app.add(lend("feed", "x"))
        await app.settled()
        second = await create(harness, app, "Two", first["id"], tools=[own])
        await create(harness, app, "Three", second["id"], tools=[own], tool_choice="none")
        metrics = (await harness.http.get("/metrics", headers=ROOT)).text
    names = [asked.tool_names for asked in harness.backend.asked]
    assert ("mine" in names[0], "mine" in names[1], "feed" in names[1]) == (False, True, True)
    assert names[1] == names[2]
    assert "tool_changes" not in json.dumps(harness.backend.asked[2].messages)
    assert 'antwort_prompt_prefix_changes_total{reason="request"} 1.0' in metrics


async def changes_of_a_server(harness: Harness, changing: ChangingServer, turns: int) -> None:
    """A conversation in which the tools of a server change before each turn, and each is called as the model knows."""
    await changing.listed()
    keeper = {"metadata": {"toolplug_agent": "keeper"}}
    harness.backend.plays(says("Hello."))
    previous = (await harness.create("Hello", **keeper)).id
    for turn in range(1, turns + 1):
        wanted = await changing.change(turn)
        stays = "call_tool" in harness.backend.asked[0].tool_names
        name, given = wanted.sent if stays else wanted[:2]
        harness.backend.plays(calls(Call(name, json.dumps(given), f"call_{turn}")), says("Done."))
        response = await harness.create(f"turn {turn}", previous_response_id=previous, **keeper)
        previous = response.id
        (output,) = [item.output for item in response.output if item.type == "mcp_call"]
        # What is gone never runs: the server's own answers have its process.
        ran = str(output).startswith('{"name": "')
        assert ran if wanted.answer else not ran, (turn, wanted, output)
        assert str(output).startswith(wanted.answer), (turn, wanted, output)


@pytest.mark.parametrize("turns", [pytest.param(4, marks=pytest.mark.mcp), pytest.param(100, marks=pytest.mark.judge)])
async def test_the_list_stays_by_itself_where_a_server_announces_changes(
    staging: Staging, tmp_path: Path, turns: int
) -> None:
    """A server in a process of its own, whose tools come, go and take other arguments, and that goes and comes."""
    server = PlainServer(tmp_path / "zoo")
    harness = await staging(**sections_of(server))
    await changes_of_a_server(harness, ChangingServer(server, harness.host), turns)
    assert "call_tool" in harness.backend.asked[0].tool_names
    sent = sent_to(harness)
    assert (sent.requests, sent.changed_prefixes) == (2 * turns + 1, 0)


@pytest.mark.mcp
async def test_the_list_is_made_anew_where_a_server_announces_no_changes(staging: Staging, tmp_path: Path) -> None:
    server = PlainServer(tmp_path / "zoo")
    script = server.folder / "server.py"
    script.write_text(script.read_text().replace('{"listChanged": True}', "{}"))
    harness = await staging(**sections_of(server))
    await changes_of_a_server(harness, ChangingServer(server, harness.host), 1)
    assert "call_tool" not in harness.backend.asked[0].tool_names
    assert sent_to(harness).changed_prefixes > 0


@pytest.mark.process
async def test_a_chat_at_a_terminal_is_told_of_changes_between_two_messages(
    staging: Staging, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    harness = await staging(tool_changes="append")
    loop, typed = asyncio.get_running_loop(), iter(["Hello", "And now?"])
    harness.backend.plays(says("Hello."), calls(Call("tide", '{"place": "Cork"}')), says("It is gone."))

    def type_next(prompt: str) -> str:
        message = next(typed, None)
        if message is None:
            raise EOFError
        if message == "And now?":
            disabling = harness.http.post("/v1/providers/search/disable", headers=ROOT)
            asyncio.run_coroutine_threadsafe(disabling, loop).result()
        return message

    monkeypatch.setattr("builtins.input", type_next)
    with connect_to_host(harness.url, "alice-key", None, None) as host:
        code = await asyncio.to_thread(Chat(host, None, "providers.yaml", as_json=False).converse)
    assert code == 0
    assert "Removed, a call of them fails: " in harness.backend.asked[1].messages[-1]["content"]
    assert (sent_to(harness).changed_prefixes, "It is gone." in capsys.readouterr().out) == (0, True)
