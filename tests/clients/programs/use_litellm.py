"""LiteLLM's Responses client, by hand."""

from __future__ import annotations

from typing import Any

import litellm
from job_loop import CITY, Job, run, step_by_step


async def converse(job: Job) -> list[str]:
    async def respond(items: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
        response: Any = await litellm.aresponses(
            model="openai/scripted",
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


run(converse)
