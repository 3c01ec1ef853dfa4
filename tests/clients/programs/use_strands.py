"""Strands: an agent over `OpenAIResponsesModel`."""

from __future__ import annotations

from typing import Any

from job_loop import Job, run
from strands import Agent, tool
from strands.models.openai_responses import OpenAIResponsesModel


@tool
def city() -> str:
    """Find the city."""
    return "Cork"


async def converse(job: Job) -> list[str]:
    model = OpenAIResponsesModel(
        client_args={"base_url": job["url"], "api_key": job["key"], "max_retries": 0}, model_id=job["model"]
    )
    agent: Any = Agent(model=model, tools=[city] if job["own"] else [], callback_handler=None)
    texts: list[str] = []
    for prompt in job["prompts"]:
        result = await agent.invoke_async(prompt)
        texts.append(str(result).strip())
    return texts


run(converse)
