"""A Starlette application with a loop of its own that streams, and that takes stubs such as `{"type": "dice"}`.

`OPENAI_BASE_URL` and `OPENAI_API_KEY` say who answers. Run it with `uvicorn examples.starlette_loop:app`.
"""

from contextlib import asynccontextmanager
from secrets import randbelow

from openai import AsyncOpenAI
from openai.lib.streaming.chat import ChatCompletionStreamState
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

from toolplug import FunctionProvider, FunctionRegistry, expand_builtin_tools, tool


class Dice(FunctionProvider):
    @tool(stub="dice")
    async def roll_dice(self, sides: int = 6) -> int:
        """Roll one dice with this many sides."""
        return 1 + randbelow(sides)


registry = FunctionRegistry({"dice": Dice()})


@asynccontextmanager
async def lifespan(app):
    async with registry:
        yield


async def answer(model, messages, stubs=(), max_turns=8):
    async with AsyncOpenAI() as client:
        for _ in range(max_turns):
            tools = expand_builtin_tools(stubs, registry).tools
            asked = {"model": model, "messages": messages, "tools": tools, "stream": True}
            whole = ChatCompletionStreamState(input_tools=tools)
            async for part in await client.chat.completions.create(**asked):
                whole.handle_chunk(part)
                yield (part.choices[0].delta.content or "") if part.choices else ""
            said = whole.get_final_completion().choices[0].message
            if not said.tool_calls:
                break
            messages = [*messages, said.model_dump(exclude_none=True), *await registry.answer(said.tool_calls)]


async def chat(request):
    asked = await request.json()
    text = answer(asked["model"], asked["messages"], asked.get("tools", ()))
    return StreamingResponse(text, media_type="text/plain")


app = Starlette(lifespan=lifespan, routes=[Route("/chat", chat, methods=["POST"])])
