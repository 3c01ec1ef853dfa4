"""Each rule of the contract check for prompts and resources finds the provider that breaks it, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from toolplug import CallContext, FunctionProvider, Prompt, Resource, prompt, resource
from toolplug.testing.broken_rule import ContractBroken
from toolplug.testing.provider_check import check_provider

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I2-9-check-provider")]

Calls = Mapping[str, Mapping[str, object]]
STARTS: list[int] = []


class Offers(FunctionProvider):
    """Keeps every rule with its prompts and resources; each bad one below differs in one thing."""

    @prompt
    async def thank(self) -> str:
        """Thank somebody."""
        await asyncio.sleep(0)
        return "Thank you."

    @prompt(complete={"name": ["Ann"]})
    def praise(self, name: str) -> str:
        """Praise somebody."""
        return f"Well done, {name}."

    @resource("greetings://first")
    async def first(self) -> str:
        """The first greeting."""
        return "Hello"

    @resource("greetings://by/{name}", complete={"name": lambda typed: [f"{typed}n"]})
    async def by(self, name: str) -> str:
        """A greeting."""
        return f"Hello, {name}"


PRAISE: Calls = {"praise": {"name": "Ann"}}
BY: Calls = {"greetings://by/{name}": {"name": "Ann"}}


class FailingPrompt(Offers):
    @prompt
    async def thank(self) -> str:
        """Thank somebody."""
        raise LookupError


class NoMessage(Offers):
    @prompt
    async def thank(self) -> int:  # type: ignore[override]
        """Thank somebody."""
        return 7


class Undescribed(Offers):
    @resource("greetings://first")
    async def first(self) -> str:
        return "Hello"


class FailingResource(Offers):
    @resource("greetings://by/{name}")
    async def by(self, name: str) -> str:
        """A greeting."""
        raise LookupError


class FailingCompletion(Offers):
    @prompt(complete={"name": lambda typed: [typed[0]]})
    def praise(self, name: str) -> str:
        """Praise somebody."""
        return f"Well done, {name}."


class DeafPrompt(FunctionProvider):
    @prompt
    async def thank(self) -> str:
        """Thank somebody."""
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
        return "Thank you."


class OneReader(Offers):
    reading = False

    @resource("greetings://first")
    async def first(self) -> str:
        """The first greeting."""
        if self.reading:
            raise RuntimeError
        self.reading = True
        try:
            await asyncio.sleep(0)
        finally:
            self.reading = False
        return "Hello"


class OpenPrompt(Offers):
    def prompts(self) -> Sequence[Prompt]:
        schema = {"type": "object", "properties": {}}
        return [*super().prompts(), Prompt(name="open", get=said, description="Say it.", schema=schema)]


def said(given: Mapping[str, object], context: CallContext) -> object:
    return "Fine."


class ChangingOffers(Offers):
    def resources(self) -> Sequence[Resource]:
        STARTS.append(1)
        return [
            *super().resources(),
            Resource(uri=f"tick://{len(STARTS)}", read=said, description="A tick."),
        ]


OFFER_ROWS = [
    (FailingPrompt, "offers", "example of prompt 'thank'"),
    (NoMessage, "offers", "example of prompt 'thank'"),
    (Undescribed, "descriptions", "resource 'greetings://first'"),
    (FailingResource, "offers", "example of resource 'greetings://by/{name}'"),
    (FailingCompletion, "completions", "completion of 'name' of prompt 'praise'"),
    (DeafPrompt, "cancellation", "prompt 'thank'"),
    (OneReader, "concurrency", "resource 'greetings://first'"),
    (OpenPrompt, "invalid-arguments", "prompt 'open' with an argument 'not_an_argument' that it does not have"),
    (ChangingOffers, "stable", "prompts() and resources()"),
]


@pytest.mark.parametrize(("make", "rule", "where"), OFFER_ROWS)
async def test_prompts_and_resources_are_checked_like_tools(
    make: type[FunctionProvider], rule: str, where: str
) -> None:
    examples: dict[str, Any] = {} if make is DeafPrompt else {"prompts": PRAISE, "resources": BY}
    with pytest.raises(ContractBroken) as caught:
        await check_provider(make, **examples, within_s=0.1 if make is DeafPrompt else 20)
    assert [item[:2] for item in caught.value.broken] == [(rule, where)]


async def test_prompts_and_resources_that_keep_every_rule_pass() -> None:
    await check_provider(Offers, prompts=PRAISE, resources=BY)
    await check_provider(Offers, uncalled=["praise", "greetings://by/{name}"])


async def test_what_takes_arguments_needs_an_example_and_an_example_something_that_is_offered() -> None:
    with pytest.raises(ContractBroken) as caught:
        await check_provider(Offers, prompts={"blame": {}}, resources={"greetings://of/{name}": {}})
    assert [item[:2] for item in caught.value.broken] == [
        ("examples", "prompt 'praise'"),
        ("examples", "resource 'greetings://by/{name}'"),
        ("examples", "example 'blame'"),
        ("examples", "example 'greetings://of/{name}'"),
    ]
