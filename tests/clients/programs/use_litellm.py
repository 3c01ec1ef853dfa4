"""LiteLLM's clients of both APIs, by hand."""

from __future__ import annotations

import sys
from typing import Any

import litellm
from job_loop import CHAT_CITY, CITY, Job, chat_step_by_step, run, step_by_step


async def converse(job: Job) -> list[str]:
    async def respond(items: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
        response: Any = await litellm.aresponses(
            model=f"openai/{job['model']}",
            api_base=job["url"],
            api_key=job["key"],
            input=items,
            tools=[CITY] if job["own"] else None,
            store=False,
            stream=job["stream"],
            max_retries=0,
        )
        if job["stream"]:
            events = [event async for event in response]
            response = events[-1].response
        output = [item if isinstance(item, dict) else item.model_dump(exclude_none=True) for item in response.output]
        parts = [part for item in output if item["type"] == "message" for part in item["content"]]
        return output, "".join(part["text"] for part in parts)

    return await step_by_step(job, respond)


async def chat(job: Job) -> list[str]:
    async def respond(messages: list[dict[str, Any]]) -> dict[str, Any]:
        completion: Any = await litellm.acompletion(
            model=f"openai/{job['model']}",
            api_base=job["url"],
            api_key=job["key"],
            messages=messages,
            tools=[CHAT_CITY] if job["own"] else None,
            stream=job["stream"],
            max_retries=0,
        )
        if job["stream"]:
            completion = litellm.stream_chunk_builder([chunk async for chunk in completion], messages=messages)
        return completion.choices[0].message.model_dump(exclude_none=True)

    return await chat_step_by_step(job, respond)


run(chat if "chat" in sys.argv else converse)
