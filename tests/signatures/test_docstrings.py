"""What a docstring gives to a tool's description and to its parameters."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from toolplug.providers.authoring import bound_tools, tool
from toolplug.providers.provider import FunctionProvider


class Words:
    """As `typing_extensions.Doc`."""

    documentation = "from a Doc"


class Place(BaseModel):
    """Somewhere."""

    name: str


def described(function: Any) -> tuple[str, dict[str, str | None]]:
    (bound,) = bound_tools(type("Provider", (FunctionProvider,), {"method": tool(function)})())
    properties: dict[str, dict[str, str]] = bound.definition.parameters.value["properties"]  # type: ignore[assignment]
    return bound.definition.description, {name: schema.get("description") for name, schema in properties.items()}


@pytest.mark.requirement("C-12-tool-descriptions")
def test_the_text_up_to_its_first_section_describes_the_tool_and_args_the_parameters() -> None:
    def method(self: Any, query: str, place: Place, limit: int = 5, silent: str = "") -> None:
        """Find what was
        lost.

        This is for people.

        Args:
            query: what to look for:
                any words
            place (Place): where to look
            limit: how many
            unknown: nothing of ours

        Returns:
            everything
        """

    assert described(method) == (
        "Find what was lost.\n\nThis is for people.",
        {"query": "what to look for: any words", "place": "where to look", "limit": "how many", "silent": None},
    )


@pytest.mark.requirement("C-12-tool-descriptions")
def test_the_description_of_a_field_wins() -> None:
    def method(self: Any, query: Annotated[str, Field(description="from the field")]) -> None:
        """Find.

        Args:
            query: from the docstring
        """

    assert described(method) == ("Find.", {"query": "from the field"})


@pytest.mark.requirement("C-12-tool-descriptions")
def test_a_text_beside_the_type_describes_the_parameter_unless_a_field_does() -> None:
    def method(
        self: Any,
        minutes: Annotated[int, "how many minutes"],
        place: Annotated[Place | None, "where"] = None,
        words: Annotated[str, Words()] = "",
        both: Annotated[str, "a text", Field(description="from the field")] = "",
    ) -> None:
        """Wait.

        Args:
            minutes: from the docstring
        """

    assert described(method)[1] == {
        "minutes": "how many minutes",
        "place": "where",
        "words": "from a Doc",
        "both": "from the field",
    }


def test_args_may_follow_at_once_or_stand_alone() -> None:
    def glued(self: Any, query: str) -> None:
        """Find.
        Args:
            query: words
        """

    def alone(self: Any, query: str) -> None:
        """
        Args:
            query: words
        """

    assert described(glued) == ("Find.", {"query": "words"})
    assert described(alone) == ("", {"query": "words"})


def test_args_that_are_not_google_style_are_passed_over() -> None:
    def broken(self: Any, query: str) -> None:
        """Find.

        Args:
            the words that are looked for
        """

    assert described(broken) == ("Find.", {"query": None})


@pytest.mark.requirement("C-12-tool-descriptions")
def test_numpy_style_is_read() -> None:
    def method(self: Any, first: int, second: int, query: str = "") -> None:
        """Add two numbers.

        Use it whenever
        a sum is asked for.

        Parameters
        ----------
        first, second : int
            the numbers
        query : str, optional
            what for,
            in words

        Returns
        -------
        int
            the sum
        """

    numbers = {"first": "the numbers", "second": "the numbers", "query": "what for, in words"}
    assert described(method) == ("Add two numbers.\n\nUse it whenever a sum is asked for.", numbers)


@pytest.mark.requirement("C-12-tool-descriptions")
def test_rest_style_is_read() -> None:
    def method(self: Any, first: int, second: int) -> None:
        """Add two numbers.

        Note: they may be negative.

        :param first: the one
        :param int second: the other,
            which may be zero
        :returns: the sum
        """

    numbers = {"first": "the one", "second": "the other, which may be zero"}
    assert described(method) == ("Add two numbers.\n\nNote: they may be negative.", numbers)


def test_lists_and_code_keep_their_lines() -> None:
    def method(self: Any) -> None:
        """Find what
        was lost:

        - at home,
        - or elsewhere

            like this
        """

    assert described(method) == ("Find what was lost:\n\n- at home,\n- or elsewhere\n\n    like this", {})


def test_a_method_without_a_docstring_has_no_description() -> None:
    def method(self: Any, query: str) -> None: ...

    assert described(method) == ("", {"query": None})
