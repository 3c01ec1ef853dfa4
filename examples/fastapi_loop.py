"""A FastAPI application with a loop of its own: it imports the registry, the rest is the model's client.

`OPENAI_BASE_URL`, `OPENAI_API_KEY` and `MODEL` say who answers. Run it with `uvicorn examples.fastapi_loop:app`.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from openai import AsyncOpenAI
from pydantic import BaseModel

from toolplug import FunctionRegistry
from toolplug_hello.provider import Hello

MODEL = os.environ.get("MODEL", "gpt-4.1-mini")
MAX_TURNS = 8
registry = FunctionRegistry({"hello": Hello()})


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The providers start and end with the application."""
    async with registry:
        yield


app = FastAPI(lifespan=lifespan)


class Ask(BaseModel):
    question: str


@app.post("/ask")
async def ask(ask: Ask) -> dict[str, str]:
    """Let the model answer, with the tools of the registry, side by side where it calls several."""
    messages = [{"role": "user", "content": ask.question}]
    async with AsyncOpenAI() as model:
        for _ in range(MAX_TURNS):
            turn = await model.chat.completions.create(model=MODEL, messages=messages, tools=registry.for_openai())
            said = turn.choices[0].message
            if not said.tool_calls:
                return {"answer": said.content or ""}
            messages += [said.model_dump(exclude_none=True), *await registry.answer(said.tool_calls)]
    raise HTTPException(502, f"no answer after {MAX_TURNS} turns")
