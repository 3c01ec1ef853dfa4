"""A request's `tool_choice`, once its stubs are functions."""

from __future__ import annotations

import pytest
from openai.types.chat import ChatCompletionToolChoiceOptionParam, ChatCompletionToolUnionParam
from pydantic import TypeAdapter
from tests.providers.stub_listing import ALL, OWN, SEARCH_ENTRY, choosing, codes

from toolplug.errors import UnmatchedStub
from toolplug.model_apis.stubs import CHOICE, expand_builtin_tools


@pytest.mark.requirement("C-4-tool-choice")
@pytest.mark.parametrize(
    "choice",
    [
        None,
        "auto",
        "none",
        "required",
        choosing("mine"),
        {"type": "function"},
        {"type": "custom", "custom": {"name": "grammar"}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [choosing("mine"), choosing("search")]}},
    ],
)
def test_a_choice_in_the_chat_form_stays_the_same_object(choice: object) -> None:
    expansion = expand_builtin_tools([OWN, {"type": "seek"}], ALL, tool_choice=choice, strict=True)
    assert expansion.tool_choice is choice


@pytest.mark.requirement("C-4-tool-choice", "FR-007a")
@pytest.mark.parametrize(
    ("choice", "mapped"),
    [
        ({"type": "seek"}, choosing("search")),
        ({"type": "seek_preview"}, choosing("search")),
        ({"type": "function", "name": "mine"}, choosing("mine")),
        (
            {"type": "archive"},
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [choosing("read"), choosing("find")]},
            },
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [
                    {"type": "function", "name": "mine"},
                    {"type": "archive"},
                    {"type": "seek"},
                    {"type": "seek"},
                ],
            },
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [choosing("mine"), choosing("read"), choosing("find"), choosing("search")],
                },
            },
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {"tools": [{"type": "seek"}]}},
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [choosing("search")]}},
        ),
    ],
)
def test_a_choice_that_names_a_type_is_mapped_to_its_tools(choice: object, mapped: object) -> None:
    expansion = expand_builtin_tools([OWN, {"type": "seek"}, {"type": "archive"}], ALL, tool_choice=choice, strict=True)
    assert expansion.tool_choice == mapped
    assert expansion.warnings == ()
    again = expand_builtin_tools(expansion.tools, ALL, tool_choice=expansion.tool_choice, strict=True)
    assert again.tool_choice is expansion.tool_choice


@pytest.mark.requirement("C-4-tool-choice", "C-4-unmatched", "C-4-strict")
@pytest.mark.parametrize(
    ("choice", "type_", "left"),
    [
        ({"type": "elsewhere"}, "elsewhere", None),
        ({"type": 3}, "", None),
        ({}, "", None),
        ([], "", None),
        (5, "", None),
        ({"type": "allowed_tools"}, "allowed_tools", "none"),
        ({"type": "allowed_tools", "tools": "seek"}, "allowed_tools", "none"),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "elsewhere"}]}, "elsewhere", "none"),
        ({"type": "allowed_tools", "mode": "auto", "tools": ["seek"]}, "", "none"),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "elsewhere"}, {"type": "seek"}]},
            "elsewhere",
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [choosing("search")]}},
        ),
    ],
)
def test_a_choice_of_nothing_that_is_here_is_reported_and_never_allows_more(
    choice: object, type_: str, left: object
) -> None:
    expansion = expand_builtin_tools([{"type": "seek"}], ALL, tool_choice=choice)
    assert expansion.tool_choice == left
    assert codes(expansion) == [("unmatched_stub", CHOICE, type_)]
    with pytest.raises(UnmatchedStub) as raised:
        expand_builtin_tools([{"type": "seek"}], ALL, tool_choice=choice, strict=True)
    assert (raised.value.index, raised.value.type) == (CHOICE, type_)


@pytest.mark.requirement("C-4-tool-choice")
def test_a_choice_is_mapped_while_one_stub_of_its_type_was_good() -> None:
    stubs = [{"type": "seek"}, {"type": "seek", "size": "none"}]
    for order in (stubs, stubs[::-1]):
        expansion = expand_builtin_tools(order, ALL, tool_choice={"type": "seek"})
        assert expansion.tools == [SEARCH_ENTRY]
        assert expansion.tool_choice == choosing("search")
        assert [warning.code for warning in expansion.warnings] == ["invalid_option"]


@pytest.mark.requirement("C-4-tool-choice")
def test_a_list_of_allowed_tools_that_is_empty_allows_nothing() -> None:
    choice = {"type": "allowed_tools", "mode": "auto", "tools": []}
    assert expand_builtin_tools([OWN], ALL, tool_choice=choice).tool_choice == "none"


@pytest.mark.requirement("FR-007a", "C-4-tool-choice")
def test_what_comes_out_is_what_the_chat_completions_client_takes() -> None:
    expansion = expand_builtin_tools([OWN, {"type": "archive"}, {"type": "seek"}], ALL, tool_choice={"type": "archive"})
    for entry in expansion.tools:
        TypeAdapter(ChatCompletionToolUnionParam).validate_python(entry, strict=True)
    TypeAdapter(ChatCompletionToolChoiceOptionParam).validate_python(expansion.tool_choice, strict=True)
