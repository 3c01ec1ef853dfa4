"""A provider that says hello: one tool, one setting, one route, one metric."""

from __future__ import annotations

from typing import Annotated

from prometheus_client import Counter
from prometheus_client.registry import Collector
from pydantic import BaseModel, Field
from starlette.requests import Request

from toolplug import FunctionProvider, current_tenant, route, tool


class Hello(FunctionProvider):
    """Says hello in the operator's own words."""

    class Config(BaseModel):
        """The settings of one entry under `providers:`."""

        greeting: str = Field("Hello", min_length=1, max_length=100, description="the word before the name")

    config: Config

    def __init__(self) -> None:
        self.greeted = Counter("hello_greetings", "People greeted.", registry=None)

    def collectors(self) -> list[Collector]:
        """The count of greetings, at `/metrics`."""
        return [self.greeted]

    @tool(read_only=True)
    async def hello(self, name: Annotated[str, Field(max_length=200, description="whom to greet")] = "world") -> str:
        """Say hello to somebody."""
        self.greeted.inc()
        return f"{self.config.greeting}, {name}!"

    @route("GET", "/v1/hello")
    async def say_hello(self, request: Request) -> dict[str, str]:
        """Say hello over HTTP, to the tenant that asks."""
        return {"greeting": f"{self.config.greeting}, {current_tenant()}!"}
