"""Microsoft's agent-framework: an agent over `OpenAIChatClient`, which has the Responses API, with a session."""

from __future__ import annotations

from typing import Any

from agent_framework import Agent, Message
from agent_framework.openai import OpenAIChatClient
from job_loop import Job, run


def city() -> str:
    """Find the city."""
    return "Cork"


async def converse(job: Job) -> list[str]:
    client = OpenAIChatClient(job["model"], base_url=job["url"], api_key=job["key"])
    agent: Any = Agent(client, tools=[city] if job["own"] else [], default_options={"store": False})
    messages: list[Message] = []
    texts: list[str] = []
    for prompt in job["prompts"]:
        messages.append(Message("user", [prompt]))
        if job["stream"]:
            stream = agent.run(messages, stream=True)
            async for _ in stream:
                pass
            response = await stream.get_final_response()
        else:
            response = await agent.run(messages)
        messages += response.messages
        texts.append(response.text)
    return texts


run(converse)
