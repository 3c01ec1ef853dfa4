"""pydantic-ai: an agent with a function of its own.

It sends calls of a server back only where they are stored, by their ids and without their outputs.
"""

from __future__ import annotations

from job_loop import Job, run
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
from pydantic_ai.providers.openai import OpenAIProvider


def city() -> str:
    """Find the city."""
    return "Cork"


async def converse(job: Job) -> list[str]:
    async with AsyncOpenAI(base_url=job["url"], api_key=job["key"], max_retries=0) as client:
        model = OpenAIResponsesModel(job["model"], provider=OpenAIProvider(openai_client=client))
        stored = len(job["prompts"]) == 1
        settings = OpenAIResponsesModelSettings(openai_store=stored, openai_send_reasoning_ids=stored)
        agent = Agent(model, tools=[city] if job["own"] else [], model_settings=settings)
        history: list[ModelMessage] = []
        texts: list[str] = []
        for prompt in job["prompts"]:
            if job["stream"]:
                async with agent.run_stream(prompt, message_history=history) as stream:
                    texts.append(await stream.get_output())
                    history = stream.all_messages()
            else:
                result = await agent.run(prompt, message_history=history)
                texts.append(result.output)
                history = result.all_messages()
        return texts


run(converse)
