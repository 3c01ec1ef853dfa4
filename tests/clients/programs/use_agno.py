"""agno: an agent that replays its history, with calls of its own alone."""

from __future__ import annotations

from typing import Any

from agno.agent import Agent
from agno.models.message import Message
from agno.models.openai import OpenAIResponses
from job_loop import Job, run


def city() -> str:
    """Find the city."""
    return "Cork"


async def converse(job: Job) -> list[str]:
    model = OpenAIResponses(
        id=job["model"], base_url=job["url"], api_key=job["key"], max_retries=0, use_previous_response_id=False
    )
    agent: Any = Agent(model=model, tools=[city] if job["own"] else [], telemetry=False)
    messages: list[Message] = []
    texts: list[str] = []
    for prompt in job["prompts"]:
        messages = [*messages, Message(role="user", content=prompt)]
        if job["stream"]:
            *_, result = [event async for event in agent.arun(messages, stream=True, yield_run_output=True)]
        else:
            result = await agent.arun(messages)
        messages = [message for message in result.messages if message.role != "system"]
        texts.append(result.content)
    return texts


run(converse)
