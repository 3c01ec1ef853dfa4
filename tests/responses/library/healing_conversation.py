"""Two hosts over one store, a model that does what the conversation does not show as done, and a client of both."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.virtual_time import virtual_clock

from toolplug import FunctionProvider, FunctionRegistry, Principal, tool
from toolplug.parts.responses.limits import HEAL_S, TTL_S
from toolplug.parts.responses.service import Responses
from toolplug.responses import CallPart, Delta, Question, ResponseRequest, ToolCaller
from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import Store

ALICE = Principal("alice", "t1")
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
Items = list[dict[str, Any]]
Answer = Sequence[Delta]


class Mail(FunctionProvider):
    """Sends mails, and counts them."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    @tool
    async def send_mail(self, to: str) -> str:
        """Send a mail."""
        self.sent.append(to)
        return f"sent to {to}"


def mail_to(to: str, place: int = 0, call_id: str = "call_0") -> CallPart:
    """A hosted call."""
    return CallPart(place, call_id, "send_mail", json.dumps({"to": to}))


def weather_in(city: str, place: int = 0, call_id: str = "call_1") -> CallPart:
    """A call of the client's function."""
    return CallPart(place, call_id, "weather", json.dumps({"city": city, "days": 1.0}))


def shown(messages: Any) -> list[tuple[str, Any]]:
    """The calls that a model is shown: the name and the arguments of each."""
    made = [call["function"] for message in messages for call in message.get("tool_calls", ())]
    return [(call["name"], json.loads(call["arguments"])) for call in made]


class Model:
    """Gives what `answer` says to the messages of a question, and keeps the last ones."""

    default_model: str | None = "one"

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.answer: Callable[[list[Any]], Answer] = lambda messages: [Delta(text="Done.", finish="stop")]

    async def ask(self, question: Question, *, stream: bool) -> AsyncGenerator[Delta]:
        """The answer to these messages."""
        given: Any = question["messages"]
        self.messages = list(given)
        for delta in self.answer(self.messages):
            yield delta

    async def models(self) -> list[Mapping[str, object]]:
        """It lists none."""
        return []

    async def aclose(self) -> None:
        """There is nothing to close."""

    def plays(self, turns: Sequence[Answer]) -> None:
        """Answer the next questions with these."""
        left = list(turns)
        self.answer = lambda messages: left.pop(0)

    def wants(self, steps: Sequence[Sequence[CallPart]]) -> None:
        """Make those calls of the first of these steps that the messages do not show."""

        def answer(messages: list[Any]) -> Answer:
            done = shown(messages)
            for step in steps:
                left = [part for part in step if (part.name, json.loads(part.arguments)) not in done]
                if left:
                    return [Delta(calls=tuple(left), finish="tool_calls")]
            return [Delta(text="Done.", finish="stop")]

        self.answer = answer


@dataclass(slots=True)
class Hosts:
    """What serves one conversation: each request reaches the next process."""

    store: Store
    registry: FunctionRegistry
    mail: Mail
    model: Model = field(default_factory=Model)
    heal_s: float = HEAL_S
    processes: list[Responses] = field(default_factory=list[Responses])

    async def create(self, items: Any, *, caller: Principal = ALICE, **members: Any) -> dict[str, Any]:
        """One response, at a process of its own."""

        async def load() -> Model:
            return self.model

        async def asker(conversation: str) -> ToolCaller:
            return ToolCaller(self.registry)

        process = Responses(self.store, load)
        process.configure(max_turns=10, style="mcp_call", ttl_s=TTL_S, heal_s=self.heal_s)
        self.processes.append(process)
        request = ResponseRequest(input=items, tools=[WEATHER], **members)
        last: dict[str, Any] = {}
        async for event in process.of(caller).events(request, caller.tenant, asker):
            last = event
        response: Any = last["response"]
        assert response["status"] == "completed", response
        return response


@asynccontextmanager
async def opened_hosts(wrap: Callable[[Store], Store] = lambda store: store) -> AsyncIterator[Hosts]:
    """Open them over a store in memory; `wrap` may watch it."""
    mail = Mail()
    async with MemoryStore(clock=virtual_clock) as store, FunctionRegistry({"mail": mail}) as registry:
        yield Hosts(wrap(store), registry, mail)


def answers_to(output: Items) -> Items:
    """What the client answers to its calls of a response."""
    calls = [item for item in output if item["type"] == "function_call"]
    return [{"type": "function_call_output", "call_id": call["call_id"], "output": "sun"} for call in calls]
