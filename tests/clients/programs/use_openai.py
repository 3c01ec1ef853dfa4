"""The `openai` client, by hand."""

from __future__ import annotations

from typing import Any

from job_loop import CITY, Job, run, step_by_step
from openai import AsyncOpenAI


async def converse(job: Job) -> list[str]:
    async with AsyncOpenAI(base_url=job["url"], api_key=job["key"], max_retries=0) as client:

        async def respond(items: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
            asked: Any = {"model": "scripted", "input": items, "tools": [CITY] if job["own"] else [], "store": False}
            if job["stream"]:
                async with client.responses.stream(**asked) as stream:
                    response = await stream.get_final_response()
            else:
                response = await client.responses.create(**asked)
            return [item.model_dump(exclude_none=True) for item in response.output], response.output_text

        return await step_by_step(job, respond)


run(converse)
