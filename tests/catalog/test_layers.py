"""Layers: to a reader and a caller they are the merged catalog, to the memory a tuple of shared parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plain_tools import plain_tool

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog, CatalogDiff, merged
from toolplug.catalog.definition import Note, wire_name
from toolplug.catalog.layered_catalog import layer_catalogs
from toolplug.catalog.plan import Gate, PolicyGate, TenantsGate, Tool
from toolplug.catalog.render import Dialect
from toolplug.errors import InvalidDefinition

DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "anthropic", "mcp")
T1, T2 = Principal(tenant="t1"), Principal(tenant="t2")
ONLY_T1: Gate = TenantsGate(frozenset({"t1"}), "providers.yaml:3")
GATES: tuple[tuple[Gate, ...], ...] = ((), (), (ONLY_T1,), (PolicyGate("providers.yaml:4"),))

NAMES = ("a", "b", "fs.a", "fs__a", "fs.b", "web.a", "a/b", wire_name("a/b"), "x" * 64)
TRIED = (*NAMES, *(wire_name(name) for name in NAMES), "p.a", "p__a", "p.fs.a", "a2", "a22", "fs.zz", "web.zz", "p.zz")

READ = plain_tool("read", source="files")
SEARCH = plain_tool("search", source="web")
BASE = Catalog([READ, SEARCH])
MORE = Catalog([plain_tool("a", source="more"), plain_tool("fs__a", source="more")])
OWN = Catalog([plain_tool("draw", source="page")])

RESHAPINGS: Mapping[str, Callable[[Catalog], Catalog]] = {
    "prefixed": lambda catalog: catalog.prefixed("p"),
    "where": lambda catalog: catalog.where(lambda tool: not tool.definition.ref.name.endswith("b")),
    "nothing": lambda catalog: catalog.where(lambda tool: tool.definition.ref.source == "nobody"),
    "ordered": lambda catalog: catalog.ordered(["fs.b", "nobody", "a", "fs.b"]),
    "annotated": lambda catalog: catalog.annotated({"a": [Note("units", "Metric.")], "fs.a": [Note("b", "c")]}),
    "renamed": lambda catalog: catalog.renamed({"a": "a2", "fs.a": "a2", "b": "a", "p.a": "a22"}),
    "planned": lambda catalog: catalog.planned(lambda _, plan: replace(plan, timeout_s=plan.timeout_s / 2)),
    "visible_to": lambda catalog: catalog.visible_to(T2),
    "merged": lambda catalog: merged([catalog, MORE])[0],
    "layered": lambda catalog: layer_catalogs(catalog, MORE),
}


def cleared(tools: list[Tool]) -> list[Tool]:
    """Without the tools that would clash in one catalog."""
    return list(merged(Catalog([tool]) for tool in tools)[0].values())


def some_tools(source: str) -> st.SearchStrategy[list[Tool]]:
    made = st.builds(
        lambda name, gates: plain_tool(name, source=source, gates=gates), st.sampled_from(NAMES), st.sampled_from(GATES)
    )
    return st.lists(made, max_size=4).map(cleared)


def some_catalogs(source: str) -> st.SearchStrategy[Catalog]:
    return st.builds(
        lambda tools, prefixes, away: Catalog(tools, prefixes=prefixes, unavailable=Catalog(away)),
        some_tools(source),
        st.frozensets(st.sampled_from(("fs", "web"))),
        some_tools(f"{source}-away"),
    )


PARTS = st.tuples(some_catalogs("one"), some_catalogs("two"), some_catalogs("three"))
STEPS = st.lists(st.sampled_from(sorted(RESHAPINGS)), max_size=3)


def shown(catalog: Catalog) -> object:
    """Everything that a reader or a caller of the catalog can find out, but for its etag."""
    return (
        [(name, described(tool)) for name, tool in catalog.items()],
        [described(tool) for tool in catalog.values()],
        list(catalog.definitions()) == [tool.definition for tool in catalog.values()],
        (len(catalog), bool(catalog), repr(catalog), catalog.prefixes),
        [(name in catalog, described(catalog.get(name)), described(catalog.find(name))) for name in TRIED],
        [catalog.unknown(name) for name in TRIED],
        [catalog.render(dialect) for dialect in DIALECTS],
        shown(catalog.unavailable) if catalog.unavailable is not None else None,
    )


def described(tool: Tool | None) -> object:
    return None if tool is None else (tool.definition.signature, tool.plan.ref, tool.plan.timeout_s, tool.plan.target)


def outcome(catalog: Catalog, steps: list[str]) -> Catalog | str:
    try:
        for step in steps:
            catalog = RESHAPINGS[step](catalog)
    except InvalidDefinition as error:
        return str(error)
    return catalog


@pytest.mark.requirement("I3-catalog-layers", "LAW-1", "I2-2-algebra")
@given(parts=PARTS, steps=STEPS, principal=st.sampled_from([T1, T2]))
def test_layers_show_what_the_merged_catalog_shows_after_any_reshapings(
    parts: tuple[Catalog, ...], steps: list[str], principal: Principal
) -> None:
    flat, layers = outcome(merged(parts)[0], steps), outcome(layer_catalogs(*parts), steps)
    if isinstance(flat, str) or isinstance(layers, str):
        assert flat == layers
        return
    assert shown(layers) == shown(flat)
    assert shown(layers.visible_to(principal)) == shown(flat.visible_to(principal))


@pytest.mark.requirement("I3-catalog-layers", "I2-2-diff")
@given(before=PARTS, after=PARTS, kept=st.sets(st.sampled_from([0, 1, 2])))
def test_layers_differ_as_the_merged_catalogs_do(
    before: tuple[Catalog, ...], after: tuple[Catalog, ...], kept: set[int]
) -> None:
    after = tuple(before[at] if at in kept else part for at, part in enumerate(after))
    expected = merged(before)[0].diff(merged(after)[0])
    assert layer_catalogs(*before).diff(layer_catalogs(*after)) == expected
    assert layer_catalogs(*before).diff(merged(after)[0]) == expected
    assert merged(before)[0].diff(layer_catalogs(*after)) == expected


@pytest.mark.requirement("I3-catalog-layers", "I2-2-render")
@given(parts=PARTS, others=PARTS)
def test_equal_etags_are_equal_listings_and_layers_divided_alike_have_equal_etags(
    parts: tuple[Catalog, ...], others: tuple[Catalog, ...]
) -> None:
    one, two = layer_catalogs(*parts), layer_catalogs(*others)
    if one.etag == two.etag:
        assert [one.render(dialect) for dialect in DIALECTS] == [two.render(dialect) for dialect in DIALECTS]
    again = [Catalog(part.values(), prefixes=part.prefixes) for part in parts]
    assert layer_catalogs(*again).etag == one.etag
    assert (
        layer_catalogs(layer_catalogs(parts[0], parts[1]), parts[2]).etag
        == layer_catalogs(parts[0], layer_catalogs(parts[1], parts[2])).etag
    )


@pytest.mark.requirement("I3-catalog-layers")
@given(parts=PARTS)
def test_layers_of_layers_are_layers_of_all_their_parts(parts: tuple[Catalog, ...]) -> None:
    one, two, three = parts
    at_once = shown(layer_catalogs(one, two, three))
    assert shown(layer_catalogs(layer_catalogs(one, two), three)) == at_once
    assert shown(layer_catalogs(one, layer_catalogs(two, three))) == at_once


@pytest.mark.requirement("I3-catalog-layers", "DESIGN-same-object")
def test_layers_of_one_part_that_is_not_empty_are_that_part() -> None:
    known = Catalog(prefixes=frozenset({"fs"}))
    gone = Catalog(unavailable=OWN)
    for part in (BASE, known, gone):
        assert layer_catalogs(EMPTY_CATALOG, part, Catalog()) is part
    assert layer_catalogs(BASE, Catalog([plain_tool("read", source="second")])) is BASE
    assert len(layer_catalogs()) == 0


@pytest.mark.requirement("I3-catalog-layers", "DESIGN-same-object")
@pytest.mark.parametrize(
    "reshaping",
    [
        lambda catalog: catalog.where(lambda _: True),
        lambda catalog: catalog.ordered(["read", "elsewhere"]),
        lambda catalog: catalog.annotated({}),
        lambda catalog: catalog.renamed({"elsewhere": "x"}),
        lambda catalog: catalog.planned(lambda _, plan: plan),
        lambda catalog: catalog.visible_to(T1),
        lambda catalog: merged([catalog])[0],
        lambda catalog: layer_catalogs(catalog, EMPTY_CATALOG),
    ],
)
def test_where_nothing_changes_layers_stay_the_same_object(reshaping: Callable[[Catalog], Catalog]) -> None:
    catalog = layer_catalogs(Catalog([READ, SEARCH], unavailable=Catalog([plain_tool("gone")])), OWN)
    assert reshaping(catalog) is catalog


@pytest.mark.requirement("I3-catalog-layers", "DESIGN-same-object")
def test_only_the_part_that_loses_a_tool_is_replaced() -> None:
    free, taken = plain_tool("free", source="page"), plain_tool("read", source="page")
    catalog = layer_catalogs(BASE, Catalog([taken, free]), OWN)
    assert list(catalog.values()) == [READ, SEARCH, free, OWN["draw"]]
    assert all(catalog[name] is BASE[name] for name in BASE)
    assert catalog["free"] is free


@pytest.mark.requirement("I3-catalog-layers", "DESIGN-same-object")
def test_who_may_see_what_of_a_part_is_decided_once_for_all_that_share_it() -> None:
    base = Catalog([READ, plain_tool("write", source="files", gates=(ONLY_T1,))])
    views = [layer_catalogs(base, Catalog([plain_tool(f"own{at}")])).visible_to(T2) for at in range(2)]
    assert [list(view) for view in views] == [["read", "own0"], ["read", "own1"]]
    assert layer_catalogs(base).visible_to(T2) is base.visible_to(T2)
    assert [view.diff(layer_catalogs(base.visible_to(T2), OWN)).removed for view in views] == [("own0",), ("own1",)]


@pytest.mark.requirement("I3-catalog-layers")
def test_a_layered_catalog_is_an_immutable_map() -> None:
    catalog = layer_catalogs(BASE, OWN)
    with pytest.raises(KeyError):
        catalog["nothing"]
    with pytest.raises(TypeError):
        catalog["read"] = READ
    with pytest.raises(AttributeError):
        catalog.extra = 1


# Tools that are away


@pytest.mark.requirement("I3-catalog-away", "C-6-detached")
def test_a_tool_that_is_away_is_in_no_listing_and_no_map() -> None:
    catalog = Catalog([READ], unavailable=Catalog([SEARCH]))
    assert (list(catalog), len(catalog), "search" in catalog, catalog.find("search")) == (["read"], 1, False, None)
    assert [catalog.render(dialect) for dialect in DIALECTS] == [Catalog([READ]).render(name) for name in DIALECTS]
    assert catalog.etag == Catalog([READ]).etag
    assert catalog.diff(Catalog([READ])) == Catalog([READ]).diff(catalog) == CatalogDiff()
    assert catalog.unavailable is not None
    assert catalog.unavailable.find("search") is SEARCH


@pytest.mark.requirement("I3-catalog-away")
@pytest.mark.parametrize("step", sorted(RESHAPINGS))
def test_a_reshaping_changes_what_is_away_as_what_is_listed(step: str) -> None:
    tools = [plain_tool("a", gates=(ONLY_T1,)), plain_tool("fs.b"), plain_tool("web.a")]
    reshaped = RESHAPINGS[step](Catalog(unavailable=Catalog(tools)))
    expected = RESHAPINGS[step](Catalog(tools))
    away = reshaped.unavailable or EMPTY_CATALOG
    own = [tool for tool in expected.values() if tool.definition.ref.source == "notes"]
    assert [described(tool) for tool in away.values()] == [described(tool) for tool in own]


@pytest.mark.requirement("I3-catalog-away")
def test_when_nothing_is_left_of_what_is_away_nothing_is_away() -> None:
    catalog = Catalog([READ], unavailable=Catalog([plain_tool("gone", gates=(ONLY_T1,))]))
    assert catalog.visible_to(T1) is catalog
    assert catalog.visible_to(T2).unavailable is None
    assert Catalog([READ], unavailable=EMPTY_CATALOG).unavailable is None


@pytest.mark.requirement("I3-catalog-away")
def test_two_tools_that_are_away_are_not_renamed_to_one() -> None:
    with pytest.raises(InvalidDefinition, match="renaming gives two tools one name"):
        Catalog(unavailable=BASE).renamed({"read": "search"})
