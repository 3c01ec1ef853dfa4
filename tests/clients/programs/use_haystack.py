"""Haystack: its agent over `OpenAIResponsesChatGenerator`."""

from __future__ import annotations

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage, StreamingChunk
from haystack.tools import Tool
from haystack.utils import Secret
from job_loop import CITY, Job, run


def city() -> str:
    """Find the city."""
    return "Cork"


async def listen(chunk: StreamingChunk) -> None:
    """Take a piece of the answer."""


async def converse(job: Job) -> list[str]:
    generator = OpenAIResponsesChatGenerator(
        api_key=Secret.from_token(job["key"]),
        model=job["model"],
        api_base_url=job["url"],
        streaming_callback=listen if job["stream"] else None,
        max_retries=0,
    )
    tool = Tool(name="city", description=CITY["description"], parameters=CITY["parameters"], function=city)
    agent = Agent(chat_generator=generator, tools=[tool] if job["own"] else [])
    messages: list[ChatMessage] = []
    texts: list[str] = []
    for prompt in job["prompts"]:
        result = await agent.run_async(messages=[*messages, ChatMessage.from_user(prompt)])
        messages = result["messages"]
        texts.append(messages[-1].text or "")
    return texts


run(converse)
