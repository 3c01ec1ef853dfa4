"""What every Python program here does: one conversation for each line of standard input, one line of what came of it.

A job is `{url, key, prompts, stream, own}`: the prompts are said one after another, each with the history of those
before it sent back without ids; with `own` the client has a function `city`, which answers `Cork`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

Job = dict[str, Any]

CITY: dict[str, Any] = {
    "type": "function",
    "name": "city",
    "description": "Find the city.",
    "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
    "strict": False,
}
CHAT_CITY: dict[str, Any] = {
    "type": "function",
    "function": {name: value for name, value in CITY.items() if name not in {"type", "strict"}},
}


def without_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items as a client sends them back that keeps none on the server."""
    return [{name: value for name, value in item.items() if name != "id"} for item in items]


async def step_by_step(
    job: Job, respond: Callable[[list[dict[str, Any]]], Awaitable[tuple[list[dict[str, Any]], str]]]
) -> list[str]:
    """A conversation by hand: `respond` gives the output items and the text for a list of items."""
    items: list[dict[str, Any]] = []
    texts: list[str] = []
    for prompt in job["prompts"]:
        items.append({"role": "user", "content": prompt})
        calls: list[dict[str, Any]] | None = None
        while calls is None or calls:
            output, text = await respond(items)
            items += without_ids(output)
            calls = [item for item in output if item["type"] == "function_call"]
            items += [{"type": "function_call_output", "call_id": call["call_id"], "output": "Cork"} for call in calls]
        texts.append(text)
    return texts


async def chat_step_by_step(
    job: Job, respond: Callable[[list[dict[str, Any]]], Awaitable[dict[str, Any]]]
) -> list[str]:
    """The same with chat completions: `respond` gives the message for a list of messages."""
    messages: list[dict[str, Any]] = []
    texts: list[str] = []
    for prompt in job["prompts"]:
        messages.append({"role": "user", "content": prompt})
        calls: list[dict[str, Any]] | None = None
        while calls is None or calls:
            messages.append(await respond(messages))
            calls = messages[-1].get("tool_calls") or []
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "Cork"} for call in calls]
        texts.append(messages[-1]["content"])
    return texts


def run(converse: Callable[[Job], Awaitable[list[str]]]) -> None:
    """Do the jobs of standard input, and print the texts of each."""

    answers, sys.stdout = sys.stdout, sys.stderr  # some clients print

    async def one(line: str) -> dict[str, Any]:
        try:
            return {"texts": await converse(json.loads(line))}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}

    async def every() -> None:
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await one(line)), file=answers, flush=True)

    asyncio.run(every())
