"""What a provider's process sends costs that process, and no other call, provider or tenant."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from benchmarks.providers import Disturber
from starlette.requests import Request
from tests.apart import forged_description, hostile
from tests.apart.plain import Plain
from tests.apart.starting import is_gone, provider_of, started, until

from toolplug import (
    CallContext,
    ConfigError,
    FunctionProvider,
    Principal,
    ToolCall,
    expand_builtin_tools,
    open_host,
)
from toolplug.apart import provider as apart_provider
from toolplug.apart.entries import apart_class
from toolplug.apart.limits import FIRST_PAUSE_S, MAX_ASKED, STREAMS_UNREAD
from toolplug.apart.provider import ApartProvider
from toolplug.apart.running import NOT_APART, refuse_hooks
from toolplug.config.run_settings import RunSettings
from toolplug.errors import ProviderError
from toolplug.host.file.configuration import read_configuration
from toolplug.packages.entry_points import find_installed
from toolplug.providers.entry import DesiredProvider, ProviderEntry
from toolplug.providers.registry import FunctionRegistry
from toolplug.testing.in_process import in_process_host

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("I36-apart")]

SCOPES = frozenset({"tools:call", "tools:read", "operator"})
ADA, BO = Principal("ada", "a", SCOPES), Principal("bo", "b", SCOPES)


def wanted(key: str, kind: type) -> DesiredProvider:
    made = apart_class(kind, {}, key)
    return DesiredProvider(ProviderEntry(key=key, type=key, run=RunSettings(process=True)), lambda: made)


async def test_each_forged_message_ends_its_process_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart_provider, "LONGEST_PAUSE_S", FIRST_PAUSE_S)  # it ends ten times in a row
    async with FunctionRegistry() as registry:
        await registry.apply([wanted("made", hostile.Forger), wanted("plain", Plain)])
        forger, plain = (registry.running()[key].provider for key in ("made", "plain"))
        assert isinstance(forger, ApartProvider)
        assert isinstance(plain, ApartProvider)
        for ended, what in enumerate([*hostile.FORGED, "progress that is no list"], 1):
            result = await registry.call("forge", what=what)
            await _ended(forger, ended)
            said = (result.status, result.metadata.get("code"))
            assert (what, said in (("tool_error", "outcome_unknown"), ("success", None))) == (what, True)
            assert (what, (await registry.call("one", text="tea")).output) == (what, "tea")
            await until(lambda: not forger.restarting)
            assert (what, (await registry.call("forge", what="nothing")).output) == (what, "written")
            assert (what, _restarts(forger)) == (what, ended)
        assert _restarts(plain) == 0


async def _ended(forger: ApartProvider, times: int) -> None:
    await until(lambda: _restarts(forger) == times)


async def test_a_message_that_nobody_waits_for_is_nothing() -> None:
    async with started(hostile.Forger) as registry:
        for what in hostile.IGNORED:
            answers = [(await registry.call("forge", what=sent)).output for sent in (what, "nothing")]
            assert (what, answers) == (what, ["written", "written"])
            assert (what, _restarts(provider_of(registry))) == (what, 0)


def _restarts(provider: ApartProvider) -> float:
    families = {each.name: each for each in provider.collectors()[0].collect()}
    found = families.get("toolplug_apart_restarts")
    return 0 if found is None else found.samples[0].value


async def test_a_result_is_taken_once_and_for_calls_of_its_own_process_only() -> None:
    async with FunctionRegistry() as registry:
        await registry.apply([wanted("made", hostile.Forger), wanted("plain", Plain)])
        forged, plain = await asyncio.gather(
            registry.call("answer_for_others", seconds=0.2), registry.call("one", text="tea")
        )
        assert (forged.output, plain.output) == ("forged", "tea")
        async with asyncio.timeout(20):
            while (await registry.call("forge", what="nothing")).output != "written":  # its own calls are its own
                await asyncio.sleep(0)
        assert not _restarts(provider_of(registry))


async def test_what_a_call_asks_of_the_store_is_its_own_caller_s_whatever_it_says() -> None:
    async with started(hostile.Forger) as registry:
        for who in (ADA, BO):
            await registry.execute(ToolCall("c", "write_note", {"text": f"of {who.tenant}"}), CallContext(who))
        stolen = await registry.execute(ToolCall("c", "read_of", {"tenant": "b"}), CallContext(ADA))
        assert stolen.output == "1 of a"


async def test_a_process_asks_the_host_so_much_at_once() -> None:
    async with started(hostile.Forger) as registry:
        assert (await registry.call("ask_much", count=MAX_ASKED + 20)).structured == 20
        assert (await registry.call("ask_much", count=5)).structured == 0


async def test_a_process_that_reads_no_answer_costs_the_host_a_few_answers() -> None:
    async with started(hostile.Forger) as registry:
        asking = asyncio.create_task(registry.execute(ToolCall("c", "ask_unread", {"asks": 500}), CallContext(ADA)))
        provider = provider_of(registry)
        most = 0
        while not asking.done():
            await asyncio.sleep(0.02)
            most = max(most, provider.connection.unread)
        # What is full when its turn comes waits for room.
        assert 0 < most < STREAMS_UNREAD + 2_000_000


async def test_a_process_that_makes_the_host_send_and_does_not_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with started(hostile.Forger) as registry:
        provider = provider_of(registry)
        monkeypatch.setattr(provider.connection, "most_unread", STREAMS_UNREAD + 100_000)
        result = await registry.execute(ToolCall("c", "refuse_unread", {}), CallContext(ADA))
        assert "does not read what it is sent" in result.output
        await until(lambda: not provider.restarting)
        assert (await registry.call("forge", what="nothing")).output == "written"


async def test_a_result_with_a_number_that_is_no_float_ends_its_call() -> None:
    async with started(hostile.Forger) as registry:
        assert (await registry.call("forge", what="a pause that is no float")).status == "panic"
        assert not _restarts(provider_of(registry))


@pytest.mark.parametrize("how", ["status", "injected", "huge", "headers", "lengths", "length", "error", "ended"])
async def test_a_response_that_is_none_ends_the_process(how: str) -> None:
    made = {"type": f"{hostile.__file__}:Forger", "enabled": True, "run": {"process": True}}
    async with in_process_host({"store": "memory://", "providers": {"made": made}}, principals=[ADA]) as served:
        provider = served.host.registry.running()["made"].provider
        assert isinstance(provider, ApartProvider)
        ada = served.callers["ada"]
        answer = await ada.client.get(f"/v1/strange?how={how}")
        assert answer.status_code == 503
        assert "set-cookie" not in answer.headers
        await until(lambda: _restarts(provider))
        await until(lambda: not provider.restarting)
        assert (await ada.call("forge", what="nothing")).output == "written"


async def test_a_response_that_cannot_be_sent_is_an_error_of_its_request_alone() -> None:
    made = {"type": f"{hostile.__file__}:Forger", "enabled": True, "run": {"process": True}}
    async with in_process_host({"store": "memory://", "providers": {"made": made}}, principals=[ADA]) as served:
        provider = served.host.registry.running()["made"].provider
        assert isinstance(provider, ApartProvider)
        client = served.callers["ada"].client
        for said in ("a\nset-cookie: b", "error\nset-cookie: b"):
            answer = await client.get("/v1/wrong", params={"said": said})
            assert (answer.status_code, "set-cookie" in answer.headers) == (500, False)
        answer = await client.get("/v1/wrong", params={"said": "error"})
        assert (answer.status_code, answer.headers["x-said"]) == (400, "error")
        answer = await client.get("/v1/wrong", params={"said": "hello"})
        # How the bytes of a connection are read is not for a provider to say.
        assert (answer.headers["x-said"], answer.headers["content-length"]) == ("hello", "5")
        assert not {"transfer-encoding", "connection"} & answer.headers.keys()
        assert not _restarts(provider)


async def test_more_of_a_body_than_its_reader_has_asked_for_ends_the_process() -> None:
    async with started(hostile.Forger) as registry:
        provider = provider_of(registry)
        path, state = "/v1/more", {"principal": ADA, "request_id": "r"}
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], "state": state}
        never = asyncio.Event()

        async def wait(*given: object) -> Any:
            await never.wait()

        (route,) = (each for each in provider.routes() if each.path == path)
        response = await route.endpoint(Request(scope))
        reading = asyncio.create_task(response(scope, wait, wait))
        await until(lambda: _restarts(provider))
        reading.cancel()
        await asyncio.wait({reading})
        await until(lambda: not provider.restarting)
        assert (await registry.call("forge", what="nothing")).output == "written"


@pytest.mark.parametrize("what", ["loop", "eat", "flood"])
async def test_other_providers_are_called_while_a_process_loops_eats_memory_or_floods(what: str) -> None:
    async with FunctionRegistry() as registry:
        await registry.apply([wanted("disturber", Disturber), wanted("plain", Plain)])
        disturbing = asyncio.create_task(registry.call(what))
        for _ in range(200):
            assert (await registry.call("one", text="tea")).output == "tea"
        assert not disturbing.done()
        disturber = registry.running()["disturber"].provider
        assert isinstance(disturber, ApartProvider)
        assert not disturber.restarting
        disturbing.cancel()
        await asyncio.wait({disturbing})
        os.kill(disturber._process.pid, signal.SIGKILL)  # type: ignore[union-attr]  # not to be waited for


async def test_a_process_that_it_forked_ends_with_it_though_it_holds_the_socket() -> None:
    async with started(hostile.Forger) as registry:
        provider = provider_of(registry)
        child = (await registry.call("fork")).structured
        assert isinstance(child, int)
        os.kill(provider._process.pid, signal.SIGKILL)  # type: ignore[union-attr]
        await until(lambda: provider.restarting or _restarts(provider))
        await until(lambda: not provider.restarting)
        assert (await registry.call("forge", what="nothing")).output == "written"
        await until(lambda: is_gone(child))


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memory is sealed on Linux")
@pytest.mark.parametrize("size", [0, 2**20])
async def test_memory_that_it_has_with_the_host_cannot_be_made_shorter_or_longer(size: int) -> None:
    async with started(hostile.Forger) as registry:
        provider = provider_of(registry)
        result = await registry.call("spoil_shared_memory", size=size)
        assert result.structured == ["[Errno 1] Operation not permitted"]
        late = asyncio.create_task(registry.call("answer_late"))
        await asyncio.sleep(0.1)
        os.kill(provider._process.pid, signal.SIGKILL)  # type: ignore[union-attr]
        # The host reads it now: with a shorter one mapped, it would have ended here.
        assert (await late).metadata["code"] == "outcome_unknown"
        await until(lambda: not provider.restarting)


HOOKS = [
    (hostile.HasStores, "stores"),
    (hostile.HasCommands, "commands"),
    (hostile.HasSources, "toolset_sources"),
    (hostile.HasPages, "console_pages"),
    (hostile.HasExtensions, "mcp_extensions"),
    (hostile.HasPart, "host_part"),
    (hostile.HasRanking, "rank_tools"),
    (hostile.HasWaiting, "approval_waiting"),
    (hostile.HasDecided, "approval_decided"),
    (hostile.HasRevoked, "grant_revoked"),
    (hostile.HasDescriptions, "describe_tools"),
]
"""What is found before a provider is started: its process looks as this one does."""
REFUSED = [HOOKS[0], (hostile.UsesPlugins, "site.plugins"), (hostile.UsesSealer, "site.sealer")]


@pytest.mark.parametrize(("kind", "what"), REFUSED, ids=[what for _, what in REFUSED])
async def test_each_thing_that_cannot_cross_is_incompatible_by_its_name(kind: type, what: str) -> None:
    with pytest.raises(ConfigError) as raised:
        async with started(kind):
            pass
    (problem,) = raised.value.problems
    assert problem.code == "incompatible"
    assert f"{what} cannot be used from a process of its own" in problem.message
    assert "remove run from its entry" in problem.hint


@pytest.mark.parametrize(("kind", "what"), HOOKS, ids=[what for _, what in HOOKS])
def test_each_hook_that_cannot_cross_is_refused_by_its_name(kind: type[FunctionProvider], what: str) -> None:
    with pytest.raises(ProviderError, match=rf": {what} cannot be used from a process of its own") as raised:
        refuse_hooks(ProviderEntry(key="made", type="made"), kind())
    assert (raised.value.state, "remove run from its entry" in raised.value.fix) == ("incompatible", True)


def test_the_page_has_each_hook_that_cannot_cross() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "run-providers-apart.md").read_text("utf-8")
    assert sorted(name for name in NOT_APART if f"`{name}`" not in page) == []


async def test_a_stub_its_options_and_the_trace_cross() -> None:
    async with started(hostile.Stubs) as registry:
        expanded = expand_builtin_tools([{"type": "notes"}], registry)
        assert [tool["function"]["name"] for tool in expanded.tools] == ["find_notes"]  # type: ignore[index]
        context = CallContext(options={"most": 3}, trace_context={"traceparent": "00-1-2-01"})
        result = await registry.execute(ToolCall("c", "find_notes", {"query": "milk"}), context)
        assert result.output == "milk {'most': 3} {'traceparent': '00-1-2-01'}"


async def test_a_call_that_runs_is_waited_for_before_its_process_is_closed() -> None:
    async with FunctionRegistry() as registry:
        await registry.apply([wanted("made", hostile.Stubs)])
        provider = registry.running()["made"].provider
        assert isinstance(provider, ApartProvider)
        pid, place = provider._process.pid, provider._site.state_dir / "closed"  # type: ignore[union-attr]
        running = asyncio.create_task(registry.call("hold", seconds=0.5))
        await asyncio.sleep(0.1)
        await registry.apply([])
        assert (await running).output == "done"
        # What it has waited for, and that it was told of the end before it was closed.
        await until(place.exists)
        assert place.read_text() == "True True"
        await until(lambda: is_gone(pid))


async def test_a_reload_that_does_not_start_keeps_the_process_that_runs(tmp_path: Path) -> None:
    file = tmp_path / "providers.yaml"
    made = f"made: {{enabled: true, run: {{process: true}}, type: '{hostile.__file__}:NAME'}}"
    text = f"store: memory://\nproviders:\n  {made}\n"
    file.write_text(text.replace("NAME", "Stubs"))
    async with open_host(file) as host:
        before = host.registry.running()["made"].provider
        file.write_text(text.replace("NAME", "UsesPlugins"))
        with pytest.raises(ConfigError, match=r"site\.plugins cannot be used"):
            await host.reload(by=ADA)
        assert host.registry.running()["made"].provider is before
        assert (await host.executor_for(ADA).call("hold", seconds=0)).output == "done"


DESCRIBED: dict[str, object] = {
    "problems": [],
    "secrets": [],
    "tools": ["one"],
    "routes": [],
    "scopes": None,
    "unchecked": [],
}
WRONG = {"code": "x", "message": "wrong\x1b[2J", "hint": "", "path": None, "at_key": False}


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ({}, "its process sent no description of its provider: problems: "),
        ({"problems": [], "tools": ["one"]}, "its process sent no description of its provider: secrets: "),
        *(
            ({**DESCRIBED, name: value}, f"its process sent no description of its provider: {name}")
            for name, value in {
                "problems": [5],
                "secrets": 5,
                "tools": 5,
                "routes": [["GET"]],
                "scopes": 5,
                "data": 5,
            }.items()
        ),
        ({**DESCRIBED, "problems": [{**WRONG, "path": "no JSON"}]}, "problems.0.path"),
        ({**DESCRIBED, "problems": [{**WRONG, "path": "[[1]]"}]}, "problems.0.path"),
        ({**DESCRIBED, "problems": [WRONG]}, "providers.made: wrong"),
        ({"error": 5}, "its process has not described it: "),
        ({"error": {"type": "ProviderError"}}, "its process has not described it: an error that is not valid"),
        ({"error": {"type": "StoreConflict"}}, "its process has not described it: an error that is not valid"),
        ({"error": {"type": "ProviderError", "state": "active", "fix": "", "text": "x"}}, "is not valid"),
        (
            {"error": {"type": "ProviderError", "state": "start-failed", "fix": "f\x1b[2J", "text": "t\x1b[2J"}},
            "providers.made: t[2J (f[2J)",
        ),
    ],
)
def test_a_forged_description_is_a_problem_of_its_own_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: dict[str, object], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "forged.json").write_text(json.dumps(head))
    (tmp_path / "providers.yaml").write_text(
        f"store: memory://\nproviders:\n  made: {{enabled: true, type: '{forged_description.__file__}', "
        "run: {process: true}}\n"
    )
    with pytest.raises(ConfigError) as raised:
        read_configuration(tmp_path / "providers.yaml", {}, find_installed())
    (problem,) = raised.value.problems
    assert said in str(problem)
    assert (problem.line, "\x1b" in str(problem)) == (3, False)


async def test_what_a_process_prints_and_logs_is_no_line_of_another_and_no_command_of_a_terminal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "toolplug.providers.made")
    async with started(hostile.Forger) as registry:
        await registry.call("forge", what="lines of the host's log")
        await registry.call("print_odd")
        await until(lambda: "printed" in caplog.text and "logged" in caplog.text)
    found = [record for record in caplog.records if "forged" in record.getMessage()]
    assert {record.name for record in found} == {"toolplug.providers.made"}
    for record in found:
        first, *others = record.getMessage().split("\n")
        assert (first.isprintable(), all(line.startswith("    ") for line in others)) == (True, True)


async def test_a_process_that_starts_again_and_lists_what_is_not_valid_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with started(hostile.Forger, {"folder": str(tmp_path)}) as registry:
        provider = provider_of(registry)
        (tmp_path / "forge").write_text("")
        await registry.call("leave")
        await until(lambda: "lists what is not valid" in provider.restarting, within_s=60)
        (tmp_path / "forge").unlink()
        await until(lambda: not provider.restarting, within_s=60)
        assert (await registry.call("forge", what="nothing")).output == "written"
