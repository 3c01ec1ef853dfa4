"""Scripts that stop at a call that a person must approve, and go on in whichever process the call is repeated."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from httpx2 import ASGITransport, AsyncClient

from toolplug import CallContext, FunctionProvider, NeedsApproval, Principal, ToolCall, ToolStatus, tool
from toolplug.http import create_app
from toolplug.part_protocols.approvals import DecisionTerms
from toolplug_code_mode.runs import equal_digest

from .conftest import ADA, BEA, Serve, Shop, ticket_of

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I37-pauses")]

ASK = {"order": "ask"}
CODE = 'print("a")\ncost = await price(item="tea")\nmade = await order(item="tea")\nprint("b")\n[cost["cents"], made]'
DONE = {"result": [350, "ordered tea"], "printed": "a\nb\n"}


async def test_a_script_waits_for_a_person_and_goes_on_in_another_process(serve: Serve, tmp_path: Path) -> None:
    shop, store = Shop(), f"sqlite:///{tmp_path / 'store.db'}"
    async with serve(tools=ASK, shop=shop, store=store) as opened:
        first = await opened.run(CODE)
        asked: Any = first.metadata["approval"]
        assert (asked["tool"], asked["arguments"], asked["line"]) == ("order", {"item": "tea"}, 3)
        assert 'approve order(item="tea") (line 3 of the script) first' in first.output
        ticket = asked["id"]
    async with serve(tools=ASK, shop=shop, store=store) as opened:
        # Without the ticket an equal call joins: the same question while it waits.
        assert ticket_of(await opened.run(CODE)) == ticket_of(await opened.go_on(CODE, ticket)) == ticket
        assert (await opened.host.approvals.waiting("default"))[0].tool == "order"
        await opened.decide(first)
    async with serve(tools=ASK, shop=shop, store=store) as opened:
        assert (await opened.go_on(CODE, ticket)).structured == DONE
        # The ticket belongs to its run, whose end it still tells; without it, an equal script is a run of its own.
        assert (await opened.go_on(CODE, ticket)).structured == DONE
        assert ticket_of(await opened.run(CODE)) != ticket
    assert shop.orders == ["tea"]


async def test_of_two_people_behind_one_key_each_has_runs_of_its_own(serve: Serve) -> None:
    async with serve(tools=ASK) as opened:
        mine, others = (CallContext(ADA, credentials={"shop": each}) for each in ("mine", "other"))
        first, equal, other = [await opened.run(CODE, who) for who in (mine, mine, others)]
        assert ticket_of(first) == ticket_of(equal) != ticket_of(other)
        ticket = await opened.decide(first)
        with_ticket = await opened.run(CODE, others._replace(approval=ticket))
        assert (with_ticket.status, opened.shop.orders) == (ToolStatus.DENIED, [])
        assert (await opened.run(CODE, mine._replace(approval=ticket))).structured == DONE


async def test_the_result_has_the_calls_whose_arguments_a_person_has_changed(serve: Serve, tmp_path: Path) -> None:
    store, shop = f"sqlite:///{tmp_path / 'store.db'}", Shop()
    code = '[await order(item="tea"),\n await order(item="milk")]'
    async with serve(tools=ASK, shop=shop, store=store) as opened:
        first = await opened.run(code)
        terms = DecisionTerms(arguments={"item": "rum"})
        await opened.host.approvals.decide(ticket_of(first), "approve", BEA, terms=terms)
        second = await opened.go_on(code, ticket_of(first))
        assert ticket_of(second) != ticket_of(first)
    async with serve(tools=ASK, shop=shop, store=store) as opened:
        await opened.decide(second)
        result = await opened.go_on(code, ticket_of(second))
    assert shop.orders == ["rum", "milk"]
    assert result.metadata["ran"] == {"calls": [{"name": "order", "line": 1, "arguments": {"item": "rum"}}]}
    assert [part["text"] for part in result.parts] == [
        '[a person has changed the arguments of order (line 1 of the script): it ran with {"item": "rum"}]'
    ]


async def test_a_script_pauses_as_often_as_it_must(serve: Serve) -> None:
    async with serve(tools=ASK) as opened:
        code = 'for n in range(5):\n    await order(item=str(n))\n"done"'
        result = await opened.run(code)
        for n in range(5):
            assert opened.shop.orders == [str(each) for each in range(n)]
            # Each way: with the ticket, and by an equal call.
            ticket = await opened.decide(result)
            result = await opened.go_on(code, ticket if n % 2 else None)
        assert (result.structured, len(opened.shop.orders)) == ({"result": "done"}, 5)


async def test_only_the_same_call_goes_on(serve: Serve) -> None:
    async with serve(tools=ASK) as opened:
        ticket = await opened.decide(await opened.run(CODE))
        ben = Principal("ben", scopes=frozenset({"tools:call"}))
        tools = opened.host.executor_for(ADA)
        for code, context in [
            (f"{CODE} ", CallContext(ADA, approval=ticket)),
            (CODE, CallContext(ben, approval=ticket)),
            (CODE, CallContext(ADA, agent="clerk", approval=ticket)),
            (CODE, CallContext(ADA, session="AAAAAAAA", approval=ticket)),
            (CODE, CallContext(Principal("ada", "other", ADA.scopes), approval=ticket)),
        ]:
            result = await tools.call("run_code", {"code": code}, context)
            assert (result.status, "no run of this script waits for this approval" in result.output) == (
                ToolStatus.DENIED,
                True,
            )
        assert opened.shop.orders == []
        assert (await opened.go_on(CODE, ticket)).structured == DONE


async def test_a_denied_call_is_an_exception_in_the_script(serve: Serve) -> None:
    async with serve(tools=ASK) as opened:
        code = 'try:\n    said = await order(item="tea")\nexcept RuntimeError as error:\n    said = str(error)\nsaid'
        await opened.decide(await opened.run(code), "deny")
        said = (await opened.run(code)).structured["result"]  # pyright: ignore[reportIndexIssue, reportUnknownVariableType]
        assert "denied: " in str(said)
        assert "it was denied by bea" in str(said)
        assert opened.shop.orders == []


async def test_several_questions_at_once(serve: Serve) -> None:
    async with serve(tools=ASK) as opened:
        code = (
            "import asyncio\n"
            'await asyncio.gather(order(item="tea"), price(item="tea"), order(item="milk"), order(item="bread"))'
        )
        first = await opened.run(code)
        asked: Any = first.metadata["approvals"]
        assert [each["arguments"]["item"] for each in asked] == ["tea", "milk", "bread"]
        await opened.host.approvals.decide(asked[1]["id"], "approve", Principal("bea", scopes=frozenset({"admin"})))
        second = await opened.run(code)
        assert (len(second.metadata["approvals"]), opened.shop.orders) == (2, ["milk"])  # pyright: ignore[reportArgumentType]
        for each in (asked[0], asked[2]):
            await opened.host.approvals.decide(each["id"], "approve", Principal("bea", scopes=frozenset({"admin"})))
        done: Any = (await opened.go_on(code, asked[2]["id"])).structured
        assert done["result"] == ["ordered tea", {"item": "tea", "cents": 350}, "ordered milk", "ordered bread"]
        assert sorted(opened.shop.orders) == ["bread", "milk", "tea"]


async def test_of_two_that_go_on_at_once_one_does_and_the_other_gets_its_answer(serve: Serve) -> None:
    async with serve(tools=ASK) as opened:
        code = 'await order(item="tea")\nawait wait(s=0.2)'
        ticket = await opened.decide(await opened.run(code))
        results = await asyncio.gather(*(opened.go_on(code, each) for each in (ticket, ticket, None, None)))
        assert [each.structured for each in results] == [{"result": "waited"}] * 4
        assert opened.shop.orders == ["tea"]


async def test_equal_scripts_are_runs_of_their_own(serve: Serve) -> None:
    async with serve({"callers": "all"}) as opened:
        code = 'await order(item="tea")\nawait wait(s=0.1)'
        assert [each.is_error for each in await asyncio.gather(*(opened.run(code) for _ in range(3)))] == [False] * 3
        assert not (await opened.run(code)).is_error
        assert len(opened.shop.orders) == 4


async def test_a_run_that_was_lost_says_what_it_had_made_and_is_not_run_again(serve: Serve) -> None:
    async with serve({"callers": "all"}, {"text": "ask"}) as opened:
        code = 'await order(item="tea")\nawait text(length=1)\nawait order(item="milk")\nawait wait(s=30)'
        ticket = await opened.decide(await opened.run(code))
        running = asyncio.create_task(opened.go_on(code, ticket))
        await opened.begun()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for each in (ticket, None):
            result = await opened.go_on(code, each)
            assert (result.status, result.metadata) == (ToolStatus.TOOL_ERROR, {"code": "outcome_unknown"})
            assert 'order(item="tea"): success; order(item="milk"): outcome unknown' in result.output
        assert opened.shop.orders == ["tea", "milk"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("record", "changed since it was sealed, or sealed for something else"),
        ("tool", "the tool order has changed since"),
        ("gone", "the tool order is gone, or scripts may not call it any more"),
        ("version", "the interpreter that it was saved by is"),
    ],
)
async def test_what_no_longer_fits_is_refused_in_words_with_what_ran(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, words: str
) -> None:
    class Other(FunctionProvider):
        def __init__(self) -> None:
            self.orders: list[str] = []

        @tool
        async def order(self, item: str) -> str:
            """Order an item at once."""
            return item

        @tool
        async def remember(self, text: str) -> str:
            """Remember a text."""
            return text

    settings = {"callers": ["order", "remember"]}
    code = "await remember(text='tea')\nawait order(item='tea')"
    file = tmp_path / "store.db"
    async with serve(settings, ASK, store=f"sqlite:///{file}") as opened:
        ticket = await opened.decide(await opened.run(code))
    if change == "record":
        with closing(sqlite3.connect(file)) as connection, connection:
            ((key, value),) = connection.execute("SELECT key, value FROM records WHERE key LIKE '%/run/%'").fetchall()
            connection.execute("UPDATE records SET value = ? WHERE key = ?", (value[:-1] + bytes([value[-1] ^ 1]), key))
    if change == "version":
        monkeypatch.setattr("toolplug_code_mode.scripts.VERSION", "0.0")
    shop: Any = Other() if change == "tool" else None
    callers = ["remember"] if change == "gone" else ["order", "remember"]
    async with serve({"callers": callers}, ASK, shop=shop, store=f"sqlite:///{file}") as opened:
        result = await opened.go_on(code, ticket)
        assert (result.status, words in result.output) == (ToolStatus.DENIED, True), result.output
        assert '[calls that it had made: remember(text="tea"): success]' in result.output
        assert opened.shop.orders == []


async def test_a_paused_run_goes_on_for_its_own_caller_alone(serve: Serve, tmp_path: Path) -> None:
    """Who can write to the store and has no key cannot give somebody the run of somebody else."""
    file = tmp_path / "store.db"
    async with serve(tools=ASK, store=f"sqlite:///{file}") as opened:
        ticket = await opened.decide(await opened.run(CODE))
    ben = CallContext(Principal("ben", scopes=frozenset({"tools:call"})), approval=ticket)
    with closing(sqlite3.connect(file)) as connection, connection:
        ((key,),) = connection.execute("SELECT key FROM records WHERE key LIKE '%/run/%'").fetchall()
        mine, theirs = (equal_digest(CODE, context, "") for context in (CallContext(ADA), ben))
        assert mine in key
        connection.execute("UPDATE records SET key = ? WHERE key = ?", (key.replace(mine, theirs), key))
    async with serve(tools=ASK, store=f"sqlite:///{file}") as opened:
        result = await opened.host.executor_for(ben.principal).call("run_code", {"code": CODE}, ben)
        assert "changed since it was sealed, or sealed for something else" in result.output
        assert opened.shop.orders == []


async def test_a_paused_run_expires_with_its_question_and_is_small(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    script = "\n".join([f"x{n} = (await price(item='tea', count={n}))['cents']" for n in range(40)])
    async with serve(tools=ASK, store=f"sqlite:///{file}", approvals={"life": "1s"}) as opened:
        code = f"{script}\nawait order(item='tea')"
        assert 1_900 < len(code) < 2_300
        ticket = ticket_of(await opened.run(code))
        with closing(sqlite3.connect(file)) as connection:
            ((size,),) = connection.execute("SELECT length(value) FROM records WHERE key LIKE '%/run/%'").fetchall()
        assert size <= 16 * 1024
        await asyncio.sleep(1.1)
        assert "no run of this script waits for this approval" in (await opened.go_on(code, ticket)).output
        assert ticket_of(await opened.run(code)) != ticket


@pytest.mark.parametrize("named", [True, False])
async def test_an_approval_of_run_code_is_for_its_run(serve: Serve, named: bool) -> None:
    async with serve({"tools": {"run_code": "ask"}}, ASK) as opened:
        code = "[await order(item='tea'), await order(item='milk')]"
        asked: Any = await opened.run(code)
        assert asked.metadata["approval"]["tool"] == "run_code"
        result: Any = await opened.go_on(code, await opened.decide(asked))
        for item in ("tea", "milk"):
            assert (result.metadata["approval"]["tool"], result.metadata["approval"]["arguments"]) == (
                "order",
                {"item": item},
            )
            # The approval of the run lives as long as the question at which it waits.
            ends = {each.tool: each.expires_at for each in await opened.host.approvals.waiting("default")}
            assert ends["run_code"] >= result.metadata["approval"]["expires_at"]
            ticket = await opened.decide(result)
            result = await opened.go_on(code, ticket if named else None)
        assert (result.structured, opened.shop.orders) == (
            {"result": ["ordered tea", "ordered milk"]},
            ["tea", "milk"],
        )
        # It was for this run.
        assert (await opened.run(code)).metadata["approval"]["tool"] == "run_code"  # pyright: ignore[reportIndexIssue]


@pytest.mark.parametrize("named", ["order", "run_code", None])
async def test_two_go_on_at_once_with_an_approval_of_run_code(serve: Serve, named: str | None) -> None:
    async with serve({"tools": {"run_code": "ask"}}, ASK) as opened:
        code = "for item in ('tea', 'milk'):\n    await order(item=item)\n    await wait(s=0.3)\n'done'"
        of_script = await opened.decide(await opened.run(code))
        result: Any = await opened.go_on(code, of_script)
        for n in range(2):
            ticket = await opened.decide(result)
            first = asyncio.create_task(opened.go_on(code, ticket))
            await opened.begun()
            # The other one gets the state of the run, and nobody is asked about the script again.
            second = await opened.go_on(code, {"order": ticket, "run_code": of_script, None: None}[named])
            result = await first
            assert (second.output, second.metadata) == (result.output, result.metadata)
            assert len(opened.shop.orders) == n + 1
        assert result.structured == {"result": "done"}
        # It was for this run, and has ended with it.
        assert (await opened.run(code)).metadata["approval"]["tool"] == "run_code"  # pyright: ignore[reportIndexIssue]
        assert "it was used already" in (await opened.go_on(code, of_script)).output


async def test_a_script_that_a_plugin_wants_approved_begins_once_it_is(serve: Serve) -> None:
    class Careful(Shop):
        def before_call(self, call: ToolCall, context: CallContext) -> NeedsApproval | None:
            return NeedsApproval("scripts are dangerous") if call.name == "run_code" else None

    async with serve(tools=ASK, shop=Careful()) as opened:
        code = "await order(item='tea')"
        inner = await opened.go_on(code, await opened.decide(await opened.run(code)))
        assert inner.metadata["approval"]["tool"] == "order"  # pyright: ignore[reportIndexIssue]
        assert (await opened.go_on(code, await opened.decide(inner))).structured == {"result": "ordered tea"}


async def test_paused_runs_count_in_the_quota_of_stored_bytes(serve: Serve) -> None:
    async with serve(tools=ASK, quotas={"tenant": {"stored_bytes": "8KiB"}}) as opened:
        code = "import random\nx = [random.random() for _ in range(3_000)]\nawait order(item='{}')"
        # Quotas count what requests write.
        app = ASGITransport(app=create_app(opened.host))
        async with AsyncClient(transport=app, base_url="http://127.0.0.1") as client:
            bodies = [{"name": "run_code", "arguments": {"code": code.format(n)}} for n in range(3)]
            answers = [(await client.post("/v1/tool-calls", json=body)).json() for body in bodies]
        assert answers[0]["metadata"]["approval"]["tool"] == "order"
        assert answers[-1]["is_error"]
        assert "the tenant may have 8192 bytes in the store" in answers[-1]["output"]
        assert opened.shop.orders == []


async def test_a_script_waits_over_http(serve: Serve) -> None:
    async with serve(tools=ASK) as opened:
        app = ASGITransport(app=create_app(opened.host))
        body = {"name": "run_code", "arguments": {"code": CODE}}
        async with AsyncClient(transport=app, base_url="http://127.0.0.1") as client:
            first = (await client.post("/v1/tool-calls", json=body)).json()
            asked = first["metadata"]["approval"]
            assert (first["status"], asked["tool"], asked["arguments"]) == ("denied", "order", {"item": "tea"})
            (shown,) = (await client.get("/v1/approvals")).json()["approvals"]
            assert (shown["id"], shown["tool"], shown["arguments"]) == (asked["id"], "order", {"item": "tea"})
            await opened.host.approvals.decide(asked["id"], "approve", BEA)
            done = (await client.post("/v1/tool-calls", json={**body, "approval": asked["id"]})).json()
        assert (done["status"], done["structured"], opened.shop.orders) == ("success", DONE, ["tea"])


async def test_a_script_in_a_session_calls_and_waits_in_that_session(serve: Serve) -> None:
    async with serve(tools=ASK) as opened:
        app = ASGITransport(app=create_app(opened.host))
        body = {"name": "run_code", "arguments": {"code": "[(await who())[2], await order(item='tea')]"}}
        async with AsyncClient(transport=app, base_url="http://127.0.0.1") as client:

            async def ask(session: str | None) -> str:
                answer = await client.post("/v1/tool-calls", json={**body, "session": session})
                return answer.json()["metadata"]["approval"]["id"]

            codes = [(await client.post("/api/sessions", json={})).json()["code"] for _ in range(2)]
            tickets = [await ask(session) for session in (*codes, None)]
            assert len({*tickets}) == 3
            assert [await ask(session) for session in (*codes, None)] == tickets
            await opened.host.approvals.decide(tickets[0], "approve", BEA)
            done = (await client.post("/v1/tool-calls", json={**body, "session": codes[0]})).json()
        assert done["structured"] == {"result": [codes[0], "ordered tea"]}
