"""A hostile tool of one tenant, called over HTTP: the call of another tenant is answered in the meantime."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.cpu_cost import UNBOUNDED, longest_callback
from tests.http.conftest import ALICE, BOB
from tests.http.session_plugin import Json, new_plugin, sessions_host, tool

pytestmark = pytest.mark.anyio

KEYS = {f"k{n}": 1 for n in range(15_000)}
NAMES = [f"r{n}" for n in range(1_500)]

TABLE: dict[str, tuple[Json, Json]] = {
    "false": ({"properties": {"a": {"prefixItems": [True], "items": False}}}, {"a": [1] * 260_000}),
    "false in several": ({"properties": {"a": {"items": {"allOf": [False] * 9}}}}, {"a": [1] * 260_000}),
    "required": ({"required": NAMES}, KEYS),
    "dependentRequired": ({"dependentRequired": {"k0": NAMES}}, KEYS),
    "propertyNames": ({"propertyNames": {"maxLength": 1}}, dict.fromkeys(list(KEYS)[:4_000], 1)),
    "propertyNames by pattern": (
        {"propertyNames": {"pattern": "^(a+)+$"}},
        {f"{'a' * 195}{n:05}": 1 for n in range(4_000)},
    ),
    "patternProperties": ({"patternProperties": {f"^z{n}": {"type": "integer"} for n in range(64)}}, KEYS),
    "patterns": (
        {"properties": {"a": {"allOf": [{"pattern": f"a.{{0,{n}}}c"} for n in range(20, 50)]}}},
        {"a": "ab" * 400_000},
    ),
    "enum": ({"properties": {"a": {"items": {"enum": [{"a": n} for n in range(600)]}}}}, {"a": [{"a": 599}] * 65_000}),
}


@pytest.mark.judge
@pytest.mark.requirement("C-3-validation-bounded")
@pytest.mark.parametrize("name", TABLE)
async def test_a_hostile_call_holds_up_nobody(name: str) -> None:
    schema, arguments = TABLE[name]
    body = json.dumps({"tool": "m", "arguments": arguments, "timeoutMs": 400}, separators=(",", ":")).encode()
    assert len(body) <= 1024 * 1024
    async with sessions_host() as served:
        hostile = await new_plugin(served.client, tool("m", inputSchema={"type": "object", **schema}))
        bobs = await new_plugin(served.client, tool("add"), headers=BOB)

        async def calls(place: str, headers: dict[str, str], content: bytes) -> Any:
            sent = {**headers, "Content-Type": "application/json"}
            return await served.client.post(f"{place}/tool-calls", headers=sent, content=content)

        with longest_callback() as longest:
            refused, answered = await asyncio.gather(
                calls(hostile.place, ALICE, body),
                calls(bobs.place, BOB, b'{"tool":"add","arguments":{"rows":"x"}}'),
            )
    assert answered.json()["output"] == 'invalid arguments for tool "add"\n/rows: must be of type "integer"'
    assert refused.json()["status"] == "invalid_arguments"
    assert refused.json()["output"].split("\n")[1:] in (
        ["/: too large to validate"],
        ["/: invalid, too large to explain"],
    )
    assert longest.units <= UNBOUNDED


@pytest.mark.requirement("C-3-validation-bounded")
async def test_a_tool_whose_patterns_take_too_much_memory_is_refused_with_the_place() -> None:
    async with sessions_host() as served:
        plugin = await new_plugin(served.client)
        patterns = [{"pattern": f"[ab].{{{n}}}[cd]"} for n in range(100, 700)]
        answer = await plugin.register(tool("m", inputSchema={"properties": {"a": {"anyOf": patterns}}}))
    assert answer.status_code == 422
    reason = answer.json()["failedTools"][0]["error"]
    assert reason.startswith("inputSchema: /properties/a/anyOf/")
    assert "/pattern: the automata of the schema's patterns have more than 2048 KiB together" in reason
