"""The immutable, ordered map from name to tool, and the algebra that reshapes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plain_tools import plain_tool

from toolplug.catalog.call import ANONYMOUS, Principal
from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog, CatalogDiff, Conflict, merged
from toolplug.catalog.definition import Note, ToolHints
from toolplug.catalog.layered_catalog import layer_catalogs
from toolplug.catalog.plan import PolicyGate, ScopeGate, TenantsGate, Tool
from toolplug.errors import InvalidDefinition

READ = plain_tool("read", source="files")
WRITE = plain_tool("write", source="files", gates=(TenantsGate(frozenset({"t1"}), "providers.yaml:3"),))
SEARCH = plain_tool("search", source="web")
CATALOG = Catalog([READ, WRITE, SEARCH])
T1 = Principal(tenant="t1")
T2 = Principal(tenant="t2")


def only(catalog: Catalog) -> list[Tool]:
    return list(catalog.values())


# Look-up


@pytest.mark.requirement("C-1-lookup-whole-first", "I2-2-resolves")
def test_a_name_is_looked_up_whole_also_when_it_has_dots() -> None:
    dotted, twice = plain_tool("a.b.c", source="one"), plain_tool("b.c", source="two")
    catalog, conflicts = merged([Catalog([dotted]), Catalog([twice]).prefixed("x")])
    assert conflicts == ()
    assert catalog.find("a.b.c") is dotted
    found = catalog.find("x.b.c")
    assert found is not None
    assert found.plan is twice.plan


@pytest.mark.requirement("C-1-call-either-name", "C-1-canonical-name")
def test_a_tool_is_found_by_its_canonical_and_by_its_wire_name() -> None:
    catalog = CATALOG.prefixed("fs")
    assert list(catalog) == ["fs.read", "fs.write", "fs.search"]
    assert catalog.find("fs.read") is catalog.find("fs__read") is catalog["fs.read"]
    assert "fs.read" in catalog
    assert "fs__read" not in catalog


@pytest.mark.requirement("C-1-exact-wins")
def test_an_exact_canonical_name_wins_over_another_tools_wire_name() -> None:
    prefixed, exact = plain_tool("fs.read", source="one"), plain_tool("fs__read", source="two")
    assert Catalog([prefixed, exact]).find("fs__read") is exact
    assert Catalog([exact, prefixed]).find("fs__read") is exact


@pytest.mark.requirement("C-1-exact-wins", "C-1-wire-conflict")
@pytest.mark.parametrize("names", [("fs.read", "fs__read"), ("fs__read", "fs.read")])
def test_in_a_merged_catalog_no_name_is_another_tools_wire_name(names: tuple[str, str]) -> None:
    first, second = (plain_tool(name, source=name) for name in names)
    catalog, conflicts = merged([Catalog([first]), Catalog([second])])
    assert only(catalog) == [first]
    assert conflicts == (Conflict(names[1], first.definition, second.definition),)


@pytest.mark.requirement("C-1-unknown-prefix", "C-1-unknown-tool", "C-1-name-as-called", "C-1-lookup-first-dot")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".read", "Toolset not found for .read"),
        (".", "Toolset not found for ."),
        ("fs.", "Toolset not found for fs."),
        ("other.", "Toolset not found for other."),
        ("other.read", "Toolset not found for other.read"),
        ("FS.read", "Toolset not found for FS.read"),
        ("other.fs.read", "Toolset not found for other.fs.read"),
        ("fs.nothing", 'no builtin provider handles tool "fs.nothing"'),
        ("fs.read.more", 'no builtin provider handles tool "fs.read.more"'),
        ("fs..", 'no builtin provider handles tool "fs.."'),
        ("nothing", 'no builtin provider handles tool "nothing"'),
        ("", 'no builtin provider handles tool ""'),
        ("fs__nothing", 'no builtin provider handles tool "fs__nothing"'),
        ("fs", 'no builtin provider handles tool "fs"'),
    ],
)
def test_a_name_that_is_not_listed_is_answered_by_its_form_and_the_known_prefixes(name: str, text: str) -> None:
    catalog = Catalog([READ]).prefixed("fs")
    assert catalog.find(name) is None
    assert catalog.unknown(name) == text


@pytest.mark.requirement("C-1-known-is-own")
def test_a_prefix_outside_the_catalog_answers_like_one_that_exists_nowhere() -> None:
    own, other = Catalog([READ]).prefixed("fs"), Catalog([SEARCH]).prefixed("web")
    everything, _ = merged([own, other])
    assert everything.unknown("web.x") == 'no builtin provider handles tool "web.x"'
    assert own.unknown("web.x") == own.unknown("nowhere.x").replace("nowhere", "web") == "Toolset not found for web.x"


@pytest.mark.requirement("C-1-known-is-own")
def test_a_prefix_of_which_a_principal_may_see_nothing_is_unknown_to_it() -> None:
    catalog, _ = merged([Catalog([WRITE]).prefixed("fs"), Catalog([SEARCH]).prefixed("web"), Catalog().prefixed("new")])
    assert catalog.visible_to(T1).prefixes == {"fs", "web", "new"}
    assert catalog.visible_to(T2).prefixes == {"web", "new"}
    assert catalog.visible_to(T2).unknown("fs.write") == "Toolset not found for fs.write"
    partly = Catalog([READ, WRITE]).prefixed("fs").visible_to(T2)
    assert partly.unknown("fs.write") == 'no builtin provider handles tool "fs.write"'


# The map


@pytest.mark.requirement("DESIGN-catalog-frozen")
def test_a_catalog_and_what_is_in_it_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CATALOG["read"] = READ
    with pytest.raises(TypeError):
        del CATALOG["read"]
    with pytest.raises(FrozenInstanceError):
        CATALOG["read"].definition.name = "other"
    with pytest.raises(FrozenInstanceError):
        CATALOG["read"].plan.timeout_s = 1.0
    with pytest.raises(AttributeError):
        CATALOG.extra = 1


@pytest.mark.requirement("I2-2-resolves")
def test_a_catalog_is_an_ordered_map() -> None:
    assert (list(CATALOG), only(CATALOG), len(CATALOG)) == (["read", "write", "search"], [READ, WRITE, SEARCH], 3)
    assert [definition.name for definition in CATALOG.definitions()] == list(CATALOG)
    assert CATALOG["write"] is WRITE
    assert repr(CATALOG) == "Catalog(read, write, search)"
    with pytest.raises(KeyError):
        CATALOG["nothing"]


@pytest.mark.requirement("I2-2-render")
def test_the_etag_is_equal_for_equal_listings_and_changes_with_what_is_listed() -> None:
    tags = [
        Catalog([READ, SEARCH]).etag,
        Catalog([SEARCH, READ]).etag,
        Catalog([READ]).etag,
        EMPTY_CATALOG.etag,
        Catalog([READ, SEARCH]).prefixed("fs").etag,
        Catalog([READ, SEARCH]).annotated({"read": [Note("units", "Metric.")]}).etag,
        Catalog([plain_tool("read", source="files", description="Read."), SEARCH]).etag,
        Catalog([plain_tool("read", source="files", hints=ToolHints(read_only=True)), SEARCH]).etag,
        Catalog([plain_tool("read", source="files", parameters={"type": "object"}), SEARCH]).etag,
        Catalog([plain_tool("read", source="files", output_schema={"type": "object"}), SEARCH]).etag,
    ]
    assert len(set(tags)) == len(tags)
    assert tags[0] == Catalog([plain_tool("read", source="files"), SEARCH]).etag
    assert tags[0] == Catalog([READ, SEARCH]).planned(lambda _, plan: replace(plan, timeout_s=1.0)).etag


# The algebra

RESHAPINGS: Mapping[str, Callable[[Catalog], Catalog]] = {
    "prefixed": lambda catalog: catalog.prefixed("fs"),
    "where": lambda catalog: catalog.where(lambda tool: tool.definition.ref.name != "search"),
    "ordered": lambda catalog: catalog.ordered([*list(catalog)[1:], "elsewhere"]),
    "annotated": lambda catalog: catalog.annotated({name: [Note("units", "Metric.")] for name in catalog}),
    "renamed": lambda catalog: catalog.renamed({name: f"{name}-again" for name in catalog}),
    "planned": lambda catalog: catalog.planned(lambda _, plan: replace(plan, timeout_s=plan.timeout_s / 2)),
    "visible_to": lambda catalog: catalog.visible_to(T2),
    "merged": lambda catalog: merged([catalog, Catalog([plain_tool("more", source="more")])])[0],
    "layered": lambda catalog: layer_catalogs(catalog, Catalog([plain_tool("more", source="more")])),
}

NAMES: Mapping[str, Callable[[list[str]], list[str]]] = {
    "prefixed": lambda names: [f"fs.{name}" for name in names],
    "where": lambda names: [name for name in names if "search" not in name],
    "ordered": lambda names: [*names[1:], *names[:1]],
    "annotated": lambda names: names,
    "renamed": lambda names: [f"{name}-again" for name in names],
    "planned": lambda names: names,
    "visible_to": lambda names: [name for name in names if "write" not in name],
    "merged": lambda names: names if "more" in names else [*names, "more"],
    "layered": lambda names: names if "more" in names else [*names, "more"],
}


@pytest.mark.requirement("LAW-1", "I2-2-algebra", "DESIGN-identity")
@pytest.mark.parametrize(("first", "second"), list(product(RESHAPINGS, RESHAPINGS)))
def test_for_every_pair_of_reshapings_a_listed_name_resolves_to_its_own_target_and_no_other_to_any(
    first: str, second: str
) -> None:
    before = {tool.definition.ref: tool.plan.target for tool in CATALOG.values()}
    catalog = RESHAPINGS[second](RESHAPINGS[first](CATALOG))
    assert list(catalog) == NAMES[second](NAMES[first](list(CATALOG)))
    for name, tool in catalog.items():
        assert tool.definition.name == name
        assert tool.plan.ref == tool.definition.ref
        assert tool.definition.ref.name in name
        assert catalog.find(name) is catalog.find(tool.definition.wire) is tool
        if tool.definition.ref.source != "more":
            assert tool.plan.target is before[tool.definition.ref]
    listed = {*catalog, *(definition.wire for definition in catalog.definitions())}
    for name in {*CATALOG, "fs.read", "fs__read", "read-again", "fs.fs.read", "fs", ""} - listed:
        assert catalog.find(name) is None


@pytest.mark.requirement("I2-2-algebra", "DESIGN-catalog-frozen")
@pytest.mark.parametrize("reshaping", RESHAPINGS)
def test_a_reshaping_leaves_the_catalog_that_it_was_made_from_as_it_was(reshaping: str) -> None:
    catalog = Catalog([READ, WRITE, SEARCH])
    tools, etag, bytes_before = only(catalog), catalog.etag, catalog.render("mcp")
    RESHAPINGS[reshaping](catalog)
    assert (only(catalog), catalog.etag, catalog.render("mcp")) == (tools, etag, bytes_before)
    assert all(new is old for new, old in zip(only(catalog), tools, strict=True))


@pytest.mark.requirement("I2-2-algebra", "DESIGN-same-object")
@pytest.mark.parametrize(
    "reshaping",
    [
        lambda catalog: catalog.where(lambda _: True),
        lambda catalog: catalog.ordered(["elsewhere", "read", "write"]),
        lambda catalog: catalog.annotated({}),
        lambda catalog: catalog.annotated({"elsewhere": [Note("a", "b")], "read": []}),
        lambda catalog: catalog.renamed({}),
        lambda catalog: catalog.renamed({"read": "read", "elsewhere": "x"}),
        lambda catalog: catalog.planned(lambda _, plan: plan),
        lambda catalog: catalog.visible_to(T1),
        lambda catalog: merged([catalog])[0],
        lambda catalog: merged([EMPTY_CATALOG, catalog, Catalog()])[0],
    ],
)
def test_where_nothing_changes_the_answer_is_the_same_object(reshaping: Callable[[Catalog], Catalog]) -> None:
    assert reshaping(CATALOG) is CATALOG


@pytest.mark.requirement("I2-2-algebra")
def test_a_reshaping_keeps_the_tools_that_it_does_not_change_as_objects() -> None:
    annotated = CATALOG.annotated({"read": [Note("units", "Metric.")]})
    assert annotated["read"].definition.notes == (Note("units", "Metric."),)
    assert annotated["read"].plan is READ.plan
    assert annotated["write"] is WRITE
    assert CATALOG.renamed({"read": "load"})["search"] is SEARCH
    assert CATALOG.where(lambda tool: tool is SEARCH)["search"] is SEARCH


@pytest.mark.requirement("I2-2-algebra")
def test_an_order_names_the_first_and_leaves_the_others_in_theirs() -> None:
    assert list(CATALOG.ordered(["search", "nowhere", "write", "search"])) == ["search", "write", "read"]
    away = Catalog([SEARCH], unavailable=Catalog([READ, WRITE])).ordered(["write"]).unavailable
    assert away is not None
    assert list(away) == ["write", "read"]


@pytest.mark.requirement("I2-2-algebra")
def test_notes_replace_those_that_were_there() -> None:
    once = CATALOG.annotated({"read": [Note("a", "1"), Note("b", "2")]})
    assert once.annotated({"read": [Note("c", "3")]})["read"].definition.notes == (Note("c", "3"),)
    assert once.annotated({"read": []})["read"].definition.notes == ()


@pytest.mark.requirement("C-1-prefix")
@pytest.mark.parametrize("prefix", ["a", "a" * 32, "web-2_x"])
def test_a_legal_prefix_is_known_also_without_a_tool(prefix: str) -> None:
    assert Catalog().prefixed(prefix).prefixes == {prefix}
    assert list(CATALOG.prefixed(prefix)) == [f"{prefix}.{name}" for name in CATALOG]


@pytest.mark.requirement("C-1-prefix", "H-trust-names")
@pytest.mark.parametrize("prefix", ["", ".", "a.b", "fs.", "A", "1a", "_a", "-a", "a" * 33, "é", "fs\n", "f s", "a/b"])
def test_an_illegal_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidDefinition, match="is no toolset prefix"):
        CATALOG.prefixed(prefix)


@pytest.mark.requirement("I2-2-algebra")
def test_renaming_two_tools_to_one_name_is_refused_and_swapping_is_not() -> None:
    with pytest.raises(InvalidDefinition, match="renaming gives two tools one name"):
        CATALOG.renamed({"read": "write"})
    swapped = CATALOG.renamed({"read": "write", "write": "read"})
    assert [(name, tool.definition.ref.name) for name, tool in swapped.items()] == [
        ("write", "read"),
        ("read", "write"),
        ("search", "search"),
    ]


@pytest.mark.requirement("I2-2-algebra")
def test_a_changed_plan_is_made_from_the_definition_and_the_plan_before() -> None:
    changed = CATALOG.planned(
        lambda definition, plan: replace(plan, timeout_s=1.0) if definition.name == "read" else plan
    )
    assert [tool.plan.timeout_s for tool in changed.values()] == [1.0, 5.0, 5.0]
    assert changed["read"].definition is READ.definition
    assert changed["write"] is WRITE


@pytest.mark.requirement("C-3-conflict-listed-once", "REG-edge-conflict", "FR-006", "C-1-order")
def test_of_two_tools_with_one_name_the_first_is_listed_and_every_other_is_reported() -> None:
    second, third = plain_tool("read", source="second"), plain_tool("read", source="third")
    catalog, conflicts = merged([Catalog([READ, SEARCH]), Catalog([second, WRITE]), Catalog([third])])
    assert only(catalog) == [READ, SEARCH, WRITE]
    assert conflicts == (
        Conflict("read", READ.definition, second.definition),
        Conflict("read", READ.definition, third.definition),
    )


@pytest.mark.requirement("C-3-conflict-heir")
def test_when_the_winner_goes_the_next_takes_its_place_as_one_modified() -> None:
    second = plain_tool("read", source="second")
    before, _ = merged([Catalog([READ]), Catalog([second])])
    after, conflicts = merged([Catalog(), Catalog([second])])
    assert conflicts == ()
    assert before.diff(after) == CatalogDiff(modified=("read",))


@pytest.mark.requirement("I2-2-algebra")
def test_merging_joins_the_prefixes_and_nothing_is_an_empty_catalog() -> None:
    catalog, _ = merged([Catalog([READ]).prefixed("fs"), Catalog().prefixed("web"), Catalog([SEARCH])])
    assert catalog.prefixes == {"fs", "web"}
    nothing, conflicts = merged([])
    assert (len(nothing), nothing.prefixes, conflicts) == (0, frozenset(), ())


@pytest.mark.requirement("I2-2-algebra")
@given(names=st.lists(st.sampled_from("abcdef"), max_size=12), cut=st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_merging_in_steps_is_merging_at_once(names: list[str], cut: tuple[int, int]) -> None:
    parts = [Catalog([plain_tool(name, source=str(at))]) for at, name in enumerate(names)]
    low, high = sorted(cut)
    at_once, _ = merged(parts)
    in_steps, _ = merged(merged(group)[0] for group in (parts[:low], parts[low:high], parts[high:]))
    assert only(in_steps) == only(at_once)


# Who sees what


@pytest.mark.requirement("I2-2-algebra")
def test_a_hiding_gate_takes_a_tool_from_whom_it_refuses_and_other_gates_do_not() -> None:
    denied = plain_tool("denied", gates=(PolicyGate("providers.yaml:5"),))
    scoped = plain_tool("scoped", gates=(ScopeGate("notes:read", "providers.yaml:6"),))
    catalog = Catalog([READ, WRITE, denied, scoped])
    assert list(catalog.visible_to(T1)) == ["read", "write", "denied", "scoped"]
    assert list(catalog.visible_to(T2)) == ["read", "denied", "scoped"]
    assert catalog.visible_to(T1) is catalog


@pytest.mark.requirement("I2-2-algebra", "DESIGN-same-object")
def test_there_is_one_catalog_for_each_verdict_and_not_for_each_principal() -> None:
    other = plain_tool("other", gates=(TenantsGate(frozenset({"t2", "t3"}), "providers.yaml:4"),))
    catalog = Catalog([READ, WRITE, other])
    seen = {name: catalog.visible_to(Principal(subject=name, tenant=name)) for name in ("t1", "t2", "t3", "t4", "t5")}
    assert {name: list(view) for name, view in seen.items()} == {
        "t1": ["read", "write"],
        "t2": ["read", "other"],
        "t3": ["read", "other"],
        "t4": ["read"],
        "t5": ["read"],
    }
    assert seen["t2"] is seen["t3"]
    assert seen["t4"] is seen["t5"]
    assert catalog.visible_to(Principal(tenant="t2", subject="again")) is seen["t2"]


@pytest.mark.requirement("I2-2-algebra")
def test_a_tool_behind_two_hiding_gates_needs_both() -> None:
    gates = (TenantsGate(frozenset({"t1", "t2"}), "a"), TenantsGate(frozenset({"t1"}), "b"))
    catalog = Catalog([plain_tool("both", gates=gates)])
    assert [list(catalog.visible_to(principal)) for principal in (T1, T2, ANONYMOUS)] == [["both"], [], []]


# Differences


@pytest.mark.requirement("I2-2-diff")
def test_a_difference_names_what_came_went_and_changed_in_listing_order() -> None:
    changed = plain_tool("search", source="web", description="Search.")
    new, newer = plain_tool("z"), plain_tool("a")
    diff = CATALOG.diff(Catalog([new, changed, newer, READ]))
    assert diff == CatalogDiff(added=("z", "a"), removed=("write",), modified=("search",), reordered=True)
    assert bool(diff)


@pytest.mark.requirement("I2-2-diff")
@pytest.mark.parametrize(
    "newer",
    [
        CATALOG,
        Catalog([READ, WRITE, SEARCH]),
        Catalog([plain_tool("read", source="files"), WRITE, SEARCH]),
        CATALOG.planned(lambda _, plan: replace(plan, timeout_s=1.0)),
    ],
)
def test_what_lists_alike_is_no_difference(newer: Catalog) -> None:
    assert CATALOG.diff(newer) == CatalogDiff()
    assert not CATALOG.diff(newer)


@pytest.mark.requirement("I2-2-diff")
def test_the_same_tools_in_another_order_are_reordered_and_a_new_one_between_is_not() -> None:
    assert CATALOG.diff(Catalog([SEARCH, READ, WRITE])) == CatalogDiff(reordered=True)
    assert CATALOG.diff(Catalog([READ, plain_tool("x"), WRITE, SEARCH])) == CatalogDiff(added=("x",))


@pytest.mark.requirement("I2-2-diff")
@given(
    old=st.lists(st.sampled_from("abcdef"), unique=True),
    new=st.lists(st.sampled_from("abcdef"), unique=True),
    changed=st.sets(st.sampled_from("abcdef")),
)
def test_whoever_applies_a_difference_has_the_newer_names(old: list[str], new: list[str], changed: set[str]) -> None:
    before = Catalog(plain_tool(name) for name in old)
    after = Catalog(plain_tool(name, description="new" if name in changed else "") for name in new)
    diff = before.diff(after)
    assert (set(old) - set(diff.removed)) | set(diff.added) == set(new)
    assert set(diff.modified) == changed & set(old) & set(new)
    assert diff.reordered == ([name for name in old if name in new] != [name for name in new if name in old])
