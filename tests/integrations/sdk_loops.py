"""Loops with the SDKs of OpenAI, Anthropic and Google, as applications write them: only type-checked.

tests/docs/typed_blocks.py checks them with the blocks of the pages; they run in test_model_loop.py in other words.
"""

from __future__ import annotations

from typing import Any

from anthropic import AsyncAnthropic
from google.genai import Client
from google.genai.types import GenerateContentConfig
from openai import AsyncOpenAI

from toolplug import ModelTools


async def ask_by_chat(ai: AsyncOpenAI, tools: ModelTools, messages: list[Any]) -> str | None:
    """Ask Chat Completions."""
    while True:
        answer = await ai.chat.completions.create(model="m", messages=messages, tools=tools.for_openai(strict=True))
        message = answer.choices[0].message
        if not message.tool_calls:
            return message.content
        messages += [message, *await tools.answer(message.tool_calls)]


async def ask_by_responses(ai: AsyncOpenAI, tools: ModelTools, items: list[Any]) -> str:
    """Ask the Responses API."""
    while True:
        response = await ai.responses.create(model="m", input=items, tools=tools.for_openai("responses"))
        answers = await tools.answer(response.output)
        if not answers:
            return response.output_text
        items += [*response.output, *answers]


async def ask_anthropic(ai: AsyncAnthropic, tools: ModelTools, messages: list[Any]) -> str:
    """Ask the Messages API."""
    while True:
        offered = tools.for_anthropic()
        message = await ai.messages.create(model="m", max_tokens=1000, messages=messages, tools=offered)
        answers = await tools.answer(message.content)
        if not answers:
            return "".join(block.text for block in message.content if block.type == "text")
        messages += [{"role": "assistant", "content": message.content}, *answers]


async def ask_gemini(ai: Client, tools: ModelTools, contents: list[Any]) -> str | None:
    """Ask Gemini."""
    while True:
        config = GenerateContentConfig(tools=tools.for_gemini())
        response = await ai.aio.models.generate_content(model="m", contents=contents, config=config)
        answers = await tools.answer(response.function_calls)
        if not answers or not response.candidates:
            return response.text
        contents += [response.candidates[0].content, *answers]
