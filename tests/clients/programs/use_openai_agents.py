"""openai-agents: an agent with a function of its own."""

from __future__ import annotations

from typing import Any

from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from job_loop import Job, run, without_ids
from openai import AsyncOpenAI

set_tracing_disabled(True)


@function_tool
def city() -> str:
    """Find the city."""
    return "Cork"


async def converse(job: Job) -> list[str]:
    async with AsyncOpenAI(base_url=job["url"], api_key=job["key"], max_retries=0) as client:
        agent = Agent(
            name="a",
            model=OpenAIResponsesModel(job["model"], client),
            model_settings=ModelSettings(store=False),
            tools=[city] if job["own"] else [],
        )
        items: Any = []
        texts: list[str] = []
        for prompt in job["prompts"]:
            items.append({"role": "user", "content": prompt})
            if job["stream"]:
                result: Any = Runner.run_streamed(agent, items)
                async for _ in result.stream_events():
                    pass
            else:
                result = await Runner.run(agent, items)
            items = without_ids(result.to_input_list())
            texts.append(result.final_output)
        return texts


run(converse)
