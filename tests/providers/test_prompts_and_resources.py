"""`@prompt` and `@resource`: what is wrong is said when the class is made, with the method and the fix."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest

from toolplug import (
    CallContext,
    ConfigError,
    FunctionProvider,
    FunctionRegistry,
    Prompt,
    PromptArgument,
    Resource,
    prompt,
    resource,
)
from toolplug.errors import InvalidDefinition

pytestmark = [pytest.mark.requirement("I14-5-prompts-resources")]


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


def problem(make: Callable[[], object]) -> str:
    with pytest.raises(InvalidDefinition) as caught:
        make()
    return str(caught.value).replace("problem_of.<locals>.", "")


def test_the_arguments_of_a_prompt_are_its_parameters_and_their_texts_are_completed() -> None:
    class Notes(FunctionProvider):
        @prompt
        async def plan(self, dish: str, size: Size, mood: Literal["good", "bad"] | None = None) -> str:
            """Plan a meal.

            Args:
                dish: the main dish
            """
            return ""

    [plan] = Notes().prompts()
    assert (plan.name, plan.description) == ("plan", "Plan a meal.")
    assert plan.arguments == (
        PromptArgument("dish", "the main dish", required=True),
        PromptArgument("size", "", required=True),
        PromptArgument("mood", "", required=False),
    )
    assert {name: [*texts] for name, texts in plan.completions.items() if not callable(texts)} == {
        "size": ["small", "large"],
        "mood": ["good", "bad"],
    }


def test_a_parameter_that_is_no_text_is_refused_with_the_fix() -> None:
    def numbers() -> object:
        class Notes(FunctionProvider):
            @prompt
            async def plan(self, count: int) -> str:
                return ""

        return Notes

    assert problem(numbers).endswith(
        "Notes.plan: parameter 'count' does not take text, and the arguments of prompts and of URIs are texts; "
        "annotate it as str, a Literal of texts or an enum of texts"
    )


def test_a_template_has_a_parameter_for_each_variable() -> None:
    def without() -> object:
        class Notes(FunctionProvider):
            @resource("notes://{owner}/{id}")
            async def note(self, id: str, context: CallContext) -> str:  # noqa: A002
                return ""

        return Notes

    assert problem(without).endswith(
        "Notes.note: the parameters are id, the variables of 'notes://{owner}/{id}' are owner, id"
    )


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("notes", "is no URI of a resource; write a scheme"),
        ("notes://a b", "is no URI of a resource"),
        ("notes://" + "a" * 2_050, "is no URI of a resource"),
        ("notes://\u202e", "has the invisible character U+202E"),
        ("notes://{?query}", "has a variable that is neither {name} nor {+name}"),
        ("notes://{a", "has a variable that is neither"),
        ("notes://{a}/{a}", "has a variable twice"),
    ],
)
def test_a_wrong_uri_is_refused(uri: str, words: str) -> None:
    assert words in problem(lambda: resource(uri))


def test_two_of_one_name_are_refused_and_so_are_completions_of_nothing() -> None:
    def twice() -> object:
        class Notes(FunctionProvider):
            @prompt
            async def one(self) -> str:
                return ""

            @prompt(name="one")
            async def two(self) -> str:
                return ""

        return Notes

    assert problem(twice).endswith("Notes: the methods 'one' and 'two' are both the prompt 'one'")
    assert problem(lambda: Prompt(name="a", get=_nothing, completions={"x": []})) == (
        "prompt 'a': completions of 'x', which is no argument; there are none"
    )
    assert "'a b' is not a valid name" in problem(lambda: Prompt(name="a b", get=_nothing))


def _nothing(given: object, context: object) -> str:
    return ""


@pytest.mark.anyio
async def test_hooks_that_return_something_else_stop_the_start_in_words() -> None:
    class Wrong(FunctionProvider):
        def prompts(self) -> Sequence[Prompt]:
            broken: Any = ["greet"]
            return broken

    class Twice(FunctionProvider):
        def resources(self) -> Sequence[Resource]:
            return [Resource(uri="a://b", read=_nothing), Resource(uri="a://b", read=_nothing)]

    for kind, words in ((Wrong, "'greet' is no Prompt"), (Twice, "offers the resource 'a://b' twice")):
        with pytest.raises(ConfigError) as caught:
            async with FunctionRegistry([kind]):
                pass
        assert words in str(caught.value)


@pytest.mark.anyio
async def test_a_provider_without_prompts_has_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with FunctionRegistry({"plain": FunctionProvider()}) as registry:
        offering = registry.running()["plain"].offering
        assert (dict(offering.prompts), dict(offering.resources), dict(offering.templates)) == ({}, {}, {})
    assert caplog.messages == []
