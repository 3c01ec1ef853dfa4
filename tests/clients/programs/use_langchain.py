"""LangChain: an agent over `ChatOpenAI` with the Responses API, or with chat completions."""

from __future__ import annotations

import sys
from typing import Any

from job_loop import Job, run
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def city() -> str:
    """Find the city."""
    return "Cork"


async def converse(job: Job) -> list[str]:
    model = ChatOpenAI(
        model=job["model"],
        base_url=job["url"],
        api_key=job["key"],
        **({} if "chat" in sys.argv else {"use_responses_api": True, "store": False}),
        max_retries=0,
        streaming=job["stream"],
    )
    agent: Any = create_agent(model, tools=[city] if job["own"] else [])
    messages: list[BaseMessage] = []
    texts: list[str] = []
    for prompt in job["prompts"]:
        messages.append(HumanMessage(prompt))
        state: Any = await agent.ainvoke({"messages": messages})
        messages = state["messages"]
        texts.append(str(messages[-1].text))
    return texts


run(converse)
