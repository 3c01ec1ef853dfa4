"""Built-in stubs in a request become the functions of the provider that declares their type."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plain_tools import plain_tool
from tests.providers.stub_listing import (
    ALL,
    FIND,
    FIND_ENTRY,
    NOTHING,
    OWN,
    READ,
    READ_ENTRY,
    SEARCH,
    SEARCH_ENTRY,
    Listing,
    choosing,
    codes,
    listing,
)

from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.definition import Hosted
from toolplug.catalog.schema import Schema
from toolplug.errors import UnmatchedStub
from toolplug.model_apis.stubs import CHOICE, Expansion, StubWarning, expand_builtin_tools


@pytest.mark.requirement("FR-007a", "C-4-matched", "C-4-result")
def test_a_stub_becomes_the_whole_function_of_the_tool_that_declares_it() -> None:
    expansion = expand_builtin_tools([{"type": "seek"}], ALL)
    assert expansion == Expansion(tools=[SEARCH_ENTRY], tool_choice=None, options={}, warnings=())


@pytest.mark.requirement("C-4-matched", "FR-007a")
def test_a_type_of_several_tools_becomes_all_of_them_in_the_order_of_the_listing() -> None:
    expansion = expand_builtin_tools([OWN, {"type": "archive"}, {"type": "seek"}], ALL)
    assert expansion.tools == [OWN, READ_ENTRY, FIND_ENTRY, SEARCH_ENTRY]
    assert expansion.warnings == ()


@pytest.mark.requirement("C-1-wire-in-listings")
def test_an_expanded_tool_and_a_mapped_choice_have_the_wire_name() -> None:
    catalog = Catalog([SEARCH]).prefixed("web")
    expansion = expand_builtin_tools([{"type": "seek", "size": "low"}], Listing(catalog), tool_choice={"type": "seek"})
    assert [entry["function"]["name"] for entry in json.loads(json.dumps(expansion.tools))] == ["web__search"]
    assert expansion.tool_choice == choosing("web__search")
    assert expansion.options == {"web.search": {"size": "low"}}


@pytest.mark.requirement("C-4-client-tools-stay", "C-4-what-is-a-stub")
def test_the_clients_own_entries_stay_the_same_objects_in_the_same_order() -> None:
    flat = {"type": "function", "name": "flat", "parameters": NOTHING}
    custom = {"type": "custom", "custom": {"name": "grammar"}}
    odd = {"type": "later", "function": {"name": "odd"}}
    untyped = {"function": {"name": "untyped"}}
    broken = {"type": "function"}
    own = [OWN, flat, custom, odd, untyped, broken]
    expansion = expand_builtin_tools([own[0], {"type": "seek"}, *own[1:]], ALL, strict=True)
    assert [id(entry) for entry in expansion.tools[:1] + expansion.tools[2:]] == [id(entry) for entry in own]
    assert expansion.tools[1] == SEARCH_ENTRY


@pytest.mark.requirement("C-4-unmatched", "C-4-empty-registry")
def test_an_empty_registry_leaves_no_stub_and_says_so() -> None:
    expansion = expand_builtin_tools([{"type": "seek"}, OWN], Listing(EMPTY_CATALOG))
    assert expansion == Expansion(
        tools=[OWN],
        tool_choice=None,
        options={},
        warnings=(
            StubWarning("unmatched_stub", 0, "seek", "no active provider declares stub type 'seek'; it is dropped"),
        ),
    )


@pytest.mark.requirement("C-4-what-is-a-stub", "C-4-unmatched")
@pytest.mark.parametrize(
    ("entry", "type_", "message"),
    [
        ({"type": "nothing"}, "nothing", "no active provider declares stub type 'nothing'; it is dropped"),
        ({"type": ""}, "", "no active provider declares stub type ''; it is dropped"),
        ({"type": 7}, "", "no active provider declares stub type 7; it is dropped"),
        ({"type": ["seek"]}, "", "no active provider declares stub type ['seek']; it is dropped"),
        ({"type": None}, "", "an entry of tools has no type and no function; it is dropped"),
        ({}, "", "an entry of tools has no type and no function; it is dropped"),
        ({"name": "x"}, "", "an entry of tools has no type and no function; it is dropped"),
        ({"type": "later", "function": "x"}, "later", "no active provider declares stub type 'later'; it is dropped"),
        ("seek", "", "an entry of tools is no object but str; it is dropped"),
        (None, "", "an entry of tools is no object but NoneType; it is dropped"),
        ([{"type": "seek"}], "", "an entry of tools is no object but list; it is dropped"),
    ],
)
def test_what_is_no_function_and_matches_no_type_is_dropped_and_named(entry: object, type_: str, message: str) -> None:
    expansion = expand_builtin_tools([OWN, entry], ALL)
    assert expansion.tools == [OWN]
    assert expansion.warnings == (StubWarning("unmatched_stub", 1, type_, message),)
    with pytest.raises(UnmatchedStub) as raised:
        expand_builtin_tools([OWN, entry], ALL, strict=True)
    refused = message.removesuffix("; it is dropped")
    assert (raised.value.index, raised.value.type, str(raised.value)) == (1, type_, refused)


@pytest.mark.requirement("C-4-strict")
def test_a_strict_request_with_an_unmatched_stub_is_refused_also_by_an_empty_registry() -> None:
    for registry in (ALL, Listing(EMPTY_CATALOG)):
        with pytest.raises(UnmatchedStub) as raised:
            expand_builtin_tools([OWN, {"type": "elsewhere"}], registry, strict=True)
        assert (raised.value.index, raised.value.type) == (1, "elsewhere")


@pytest.mark.requirement("C-4-two-stubs-one-tool")
def test_two_stubs_of_one_tool_give_one_definition_at_the_first_place() -> None:
    expansion = expand_builtin_tools([{"type": "seek_preview"}, OWN, {"type": "seek"}, {"type": "seek"}], ALL)
    assert expansion.tools == [SEARCH_ENTRY, OWN]
    assert expansion.warnings == ()


@pytest.mark.requirement("C-4-options")
def test_options_are_kept_by_tool_name_and_the_entry_is_as_without_them() -> None:
    expansion = expand_builtin_tools([{"type": "seek", "size": "low", "domains": ["a.example"]}], ALL)
    assert expansion.tools == [SEARCH_ENTRY]
    assert expansion.options == {"search": {"size": "low", "domains": ["a.example"]}}


@pytest.mark.requirement("C-4-options", "C-4-matched")
def test_each_tool_of_a_type_gets_the_options_that_it_declares() -> None:
    expansion = expand_builtin_tools([{"type": "archive", "limit": 3}], ALL)
    assert expansion.tools == [READ_ENTRY, FIND_ENTRY]
    assert expansion.options == {"find": {"limit": 3}}
    assert expansion.warnings == ()


@pytest.mark.requirement("C-4-unsupported-option", "C-4-strict")
@pytest.mark.parametrize(
    ("stub", "message"),
    [
        (
            {"type": "seek", "size": "low", "user_location": {}},
            "stub 'seek' does not support 'user_location'; it takes 'domains', 'size'",
        ),
        (
            {"type": "archive", "limits": 1, "ranker": 2},
            "stub 'archive' does not support 'limits', 'ranker'; it takes 'limit'",
        ),
        ({"type": "bare", "x": 1}, "stub 'bare' does not support 'x'; it takes no options"),
    ],
)
def test_a_stub_with_an_option_that_no_tool_of_it_supports_counts_as_unmatched(
    stub: Mapping[str, object], message: str
) -> None:
    registry = listing(SEARCH, READ, FIND, plain_tool("bare", hosted=Hosted(("bare",))))
    kind = str(stub["type"])
    expansion = expand_builtin_tools([stub, OWN], registry, tool_choice={"type": kind})
    assert expansion.tools == [OWN]
    assert expansion.options == {}
    assert expansion.warnings[0] == StubWarning("unsupported_option", 0, kind, message)
    assert codes(expansion)[1:] == [("unmatched_stub", CHOICE, kind)]
    assert expansion.tool_choice is None
    with pytest.raises(UnmatchedStub) as raised:
        expand_builtin_tools([stub, OWN], registry, strict=True)
    assert (raised.value.index, raised.value.type, str(raised.value)) == (0, kind, message)


@pytest.mark.requirement("C-4-options", "C-4-strict")
def test_a_stub_with_an_invalid_value_of_an_option_counts_as_unmatched_and_does_not_repeat_the_value() -> None:
    expansion = expand_builtin_tools([{"type": "seek", "size": "s3cret"}], ALL)
    assert (expansion.tools, expansion.options, codes(expansion)) == ([], {}, [("invalid_option", 0, "seek")])
    assert expansion.warnings[0].message.startswith("the options of stub 'seek' are not valid: /size: ")
    assert "s3cret" not in expansion.warnings[0].message
    with pytest.raises(UnmatchedStub):
        expand_builtin_tools([{"type": "seek", "size": "s3cret"}], ALL, strict=True)


@pytest.mark.requirement("C-4-options")
def test_a_required_option_that_is_missing_is_invalid() -> None:
    needs = Schema({"type": "object", "properties": {"stores": {"type": "array"}}, "required": ["stores"]})
    registry = listing(plain_tool("look", hosted=Hosted(("look",), needs)))
    assert codes(expand_builtin_tools([{"type": "look"}], registry)) == [("invalid_option", 0, "look")]
    assert expand_builtin_tools([{"type": "look", "stores": []}], registry).options == {"look": {"stores": []}}


@pytest.mark.requirement("C-4-options")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {}, "patternProperties": {"^x": {"type": "integer"}}},
        {"type": "object"},
    ],
)
def test_a_schema_that_is_open_for_further_options_takes_them(schema: Mapping[str, object]) -> None:
    registry = listing(plain_tool("look", hosted=Hosted(("look",), Schema(schema))))
    assert expand_builtin_tools([{"type": "look", "x": 1}], registry, strict=True).options == {"look": {"x": 1}}


@pytest.mark.requirement("C-4-two-stubs-one-tool", "C-4-options")
def test_of_two_stubs_with_different_options_the_first_holds_and_the_other_is_told() -> None:
    stubs = [{"type": "seek"}, {"type": "seek", "size": "low"}, {"type": "seek_preview", "size": "high"}]
    expansion = expand_builtin_tools(stubs, ALL, strict=True)
    assert expansion.options == {"search": {"size": "low"}}
    assert codes(expansion) == [("options_ignored", 2, "seek_preview")]


@pytest.mark.requirement("C-4-name-taken")
@pytest.mark.parametrize(
    "own",
    [
        choosing("search"),
        {"type": "function", "name": "search"},
        {"type": "custom", "custom": {"name": "search"}},
        {"type": "custom", "name": "search"},
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_client_function_of_the_same_name_wins_wherever_it_stands(own: object, first: bool) -> None:
    stub = {"type": "seek", "size": "low"}
    expansion = expand_builtin_tools([own, stub] if first else [stub, own], ALL, strict=True)
    assert expansion.tools == [own]
    assert expansion.options == {}
    assert expansion.warnings == (
        StubWarning("name_taken", int(first), "seek", "the request has a function 'search' of its own, which is used"),
    )


@pytest.mark.requirement("C-4-name-taken")
def test_a_client_function_takes_one_tool_of_several_and_the_others_stay() -> None:
    expansion = expand_builtin_tools([choosing("read"), {"type": "archive"}], ALL)
    assert expansion.tools == [choosing("read"), FIND_ENTRY]
    assert codes(expansion) == [("name_taken", 1, "archive")]


@pytest.mark.requirement("C-4-name-taken")
@pytest.mark.parametrize("name", ["web.search", "web__search"])
def test_a_client_function_wins_by_the_canonical_and_by_the_wire_name(name: str) -> None:
    registry = Listing(Catalog([SEARCH]).prefixed("web"))
    expansion = expand_builtin_tools([{"type": "seek"}, choosing(name)], registry)
    assert expansion.tools == [choosing(name)]
    assert codes(expansion) == [("name_taken", 0, "seek")]


@pytest.mark.requirement("C-4-two-providers")
def test_of_two_providers_with_one_type_the_first_is_used_and_one_warning_names_both() -> None:
    second = plain_tool("other_search", source="engine", hosted=Hosted(("seek", "rest")))
    third = plain_tool("third_search", source="again", hosted=Hosted(("seek",)))
    registry = listing(SEARCH, second, third)
    expansion = expand_builtin_tools([{"type": "seek"}, {"type": "seek"}, {"type": "rest"}], registry, strict=True)
    assert [entry["function"]["name"] for entry in json.loads(json.dumps(expansion.tools))] == [
        "search",
        "other_search",
    ]
    assert expansion.warnings == (
        StubWarning(
            "duplicate_type",
            0,
            "seek",
            "stub type 'seek' is declared by 'web' and by 'engine'; the first one is used",
        ),
    )
    assert expand_builtin_tools([{"type": "rest"}], registry).warnings == ()


@pytest.mark.requirement("C-4-open-table")
@given(kind=st.text(min_size=1).filter(lambda kind: kind not in ("function", "custom")))
def test_any_type_that_a_provider_declares_expands(kind: str) -> None:
    registry = listing(plain_tool("answer", hosted=Hosted((kind,))))
    expansion = expand_builtin_tools([{"type": kind}], registry, strict=True)
    assert expansion.tools == [
        {"type": "function", "function": {"name": "answer", "description": "", "parameters": NOTHING}}
    ]


def test_no_tools_at_all_are_no_tools() -> None:
    assert expand_builtin_tools(None, ALL).tools == []
    assert expand_builtin_tools((), ALL).tools == []


ENTRIES = st.one_of(
    st.sampled_from(
        [
            OWN,
            {"type": "seek"},
            {"type": "seek_preview", "size": "high"},
            {"type": "archive", "limit": 2},
            {"type": "archive", "limit": 0},
            {"type": "elsewhere"},
            {"type": "function", "name": "read"},
            {"type": "custom", "custom": {"name": "find"}},
        ]
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["type", "function", "name", "mode", "tools", "x"]), inner, max_size=3)
        ),
        max_leaves=6,
    ),
)
CHOICES = ENTRIES | st.builds(
    lambda mode, tools: {"type": "allowed_tools", "mode": mode, "tools": tools},
    st.sampled_from(["auto", "required"]),
    st.lists(ENTRIES, max_size=3),
)


@pytest.mark.requirement("C-4-pure", "C-4-client-tools-stay")
@given(entries=st.lists(ENTRIES, max_size=6), choice=CHOICES)
def test_expansion_changes_no_input_and_expanding_its_answer_changes_nothing(
    entries: list[object], choice: object
) -> None:
    before = copy.deepcopy((entries, choice))
    expansion = expand_builtin_tools(entries, ALL, tool_choice=choice)
    assert (entries, choice) == before
    assert expand_builtin_tools(entries, ALL, tool_choice=choice) == expansion
    again = expand_builtin_tools(expansion.tools, ALL, tool_choice=expansion.tool_choice, strict=True)
    assert again == Expansion(tools=expansion.tools, tool_choice=expansion.tool_choice, options={}, warnings=())
    own = [id(entry) for entry in expansion.tools if any(entry is given for given in entries)]
    assert own == [id(entry) for entry in entries if id(entry) in own]


@pytest.mark.requirement("C-4-pure")
def test_a_changed_answer_changes_no_later_one() -> None:
    first = expand_builtin_tools([{"type": "seek"}], ALL)
    entry = first.tools[0]
    assert isinstance(entry, dict)
    entry.clear()
    first.tools.append(None)
    assert expand_builtin_tools([{"type": "seek"}], ALL).tools == [SEARCH_ENTRY]
