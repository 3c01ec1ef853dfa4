"""The `openai` client, by hand."""

from __future__ import annotations

import sys
from typing import Any

from job_loop import CHAT_CITY, CITY, Job, chat_step_by_step, run, step_by_step
from openai import AsyncOpenAI


async def converse(job: Job) -> list[str]:
    async with AsyncOpenAI(base_url=job["url"], api_key=job["key"], max_retries=0) as client:

        async def respond(items: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
            asked: Any = {"model": job["model"], "input": items, "tools": [CITY] if job["own"] else [], "store": False}
            if job["stream"]:
                async with client.responses.stream(**asked) as stream:
                    response = await stream.get_final_response()
            else:
                response = await client.responses.create(**asked)
            return [item.model_dump(exclude_none=True) for item in response.output], response.output_text

        return await step_by_step(job, respond)


async def chat(job: Job) -> list[str]:
    async with AsyncOpenAI(base_url=job["url"], api_key=job["key"], max_retries=0) as client:

        async def respond(messages: list[dict[str, Any]]) -> dict[str, Any]:
            asked: Any = {"model": job["model"], "messages": messages, **({"tools": [CHAT_CITY]} if job["own"] else {})}
            if job["stream"]:
                async with client.chat.completions.stream(**asked) as stream:
                    completion = await stream.get_final_completion()
            else:
                completion = await client.chat.completions.create(**asked)
            return completion.choices[0].message.model_dump(exclude_none=True)

        return await chat_step_by_step(job, respond)


run(chat if "chat" in sys.argv else converse)
