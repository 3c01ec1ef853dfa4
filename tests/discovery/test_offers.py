"""Prompts, resources and instructions of a server that means no good: what is kept of them and what is reported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolplug.catalog.definition import MAX_DESCRIPTION_BYTES
from toolplug.foreign.definitions import MAX_META_BYTES
from toolplug.foreign.sanitise import RemovedParts
from toolplug.parts.mcp.discovery.offers import (
    MAX_ARGUMENTS,
    MAX_OFFERS,
    MAX_OFFERS_BYTES,
    MAX_URI_BYTES,
    MAX_VARIABLES,
    NO_OFFERS,
    FoundOffers,
    RawOffers,
    read_offers,
)

pytestmark = pytest.mark.requirement("C-8-sanitised")

ICON = {"src": "https://a.example/icon.png"}


def kept(**lists: Any) -> tuple[FoundOffers, tuple[str, ...]]:
    """What is kept of lists, and the report."""
    left_out = RemovedParts(at_most=100)
    found = asyncio.run(read_offers(RawOffers(**lists), left_out))
    return found, left_out.lines()


def one_prompt(**fields: Any) -> dict[str, Any]:
    found, _ = kept(prompts=[{"name": "ask", **fields}])
    return dict(found.prompts[0])


def one_resource(**fields: Any) -> dict[str, Any]:
    found, _ = kept(resources=[{"uri": "a:b", "name": "b", **fields}])
    return dict(found.resources[0])


def test_nothing_is_kept_of_nothing() -> None:
    assert kept() == (NO_OFFERS, ())


def test_good_entries_stay_as_they_are() -> None:
    prompt = {
        "name": "ask",
        "title": "Ask",
        "description": "Asks.",
        "icons": [ICON],
        "_meta": {"example.com/a": 1},
        "arguments": [{"name": "what", "title": "What", "description": "Of what.", "required": True}],
    }
    resource = {
        "uri": "book://index",
        "name": "index",
        "mimeType": "text/plain",
        "annotations": {"audience": ["user", "assistant"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"},
        "size": 12,
    }
    template = {"uriTemplate": "book://by/{name}", "name": "by", "title": "A book"}
    assert kept(prompts=[prompt], resources=[resource], templates=[template], instructions="Ask.") == (
        FoundOffers(prompts=(prompt,), resources=(resource,), templates=(template,), instructions="Ask."),
        (),
    )


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("ask", "/prompts/0: must be an object"),
        ({}, "/prompts/0: name must be 1 to 128 printable ASCII characters without spaces"),
        ({"name": 7}, "/prompts/0: name must be 1 to 128 printable ASCII characters without spaces"),
        ({"name": "a b"}, "/prompts/0: name must be 1 to 128 printable ASCII characters without spaces"),
        ({"name": "a\u202eb"}, "/prompts/0: name must be 1 to 128 printable ASCII characters without spaces"),
        ({"name": "a" * 129}, "/prompts/0: name must be 1 to 128 printable ASCII characters without spaces"),
        (
            {"name": "a", "arguments": [{"name": ""}]},
            "/prompts/0: name must be 1 to 128 printable ASCII characters without spaces",
        ),
        ({"name": "a", "arguments": ["what"]}, "/prompts/0: must be an object"),
    ],
)
def test_a_prompt_that_is_none_is_left_out_and_no_other(entry: object, why: str) -> None:
    assert kept(prompts=[entry, {"name": "ask"}]) == (FoundOffers(prompts=({"name": "ask"},)), (why,))


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"name": "a"}, f"the URI must be text of at most {MAX_URI_BYTES} bytes"),
        ({"uri": "", "name": "a"}, f"the URI must be text of at most {MAX_URI_BYTES} bytes"),
        ({"uri": "a:" + "\u00e4" * 1_024, "name": "a"}, f"the URI must be text of at most {MAX_URI_BYTES} bytes"),
        ({"uri": "a:\u200b", "name": "a"}, "the URI has an invisible character or a space"),
        ({"uri": "a: b", "name": "a"}, "the URI has an invisible character or a space"),
        ({"uri": "a:\ud800", "name": "a"}, "the URI has an invisible character or a space"),
        ({"uri": "a:b"}, "name must be text"),
        ({"uri": "a:b", "name": "\u200b"}, "name must be text"),
    ],
)
def test_a_resource_that_is_none_is_left_out(entry: object, why: str) -> None:
    assert kept(resources=[entry]) == (NO_OFFERS, (f"/resources/0: {why}",))


def test_a_template_has_so_many_variables() -> None:
    def template(count: int) -> dict[str, object]:
        return {"uriTemplate": "a:" + "".join(f"{{v{number}}}/" for number in range(count)), "name": "a"}

    listed = {"uriTemplate": "a:{?" + ",".join("abcdefghijklmnopq") + "}", "name": "b"}
    good, wide = template(MAX_VARIABLES), template(MAX_VARIABLES + 1)
    why = f"the URI template has more than {MAX_VARIABLES} variables"
    assert kept(templates=[good, wide, listed]) == (
        FoundOffers(templates=(good,)),
        (f"/resourceTemplates/1: {why}", f"/resourceTemplates/2: {why}"),
    )


def test_the_first_of_a_name_or_uri_is_kept() -> None:
    found, report = kept(
        prompts=[{"name": "a", "title": "1"}, {"name": "a", "title": "2"}],
        resources=[{"uri": "a:b", "name": "1"}, {"uri": "a:b", "name": "2"}],
    )
    assert [found.prompts[0]["title"], found.resources[0]["name"]] == ["1", "1"]
    assert report == (
        "/prompts/1: another one of this name comes before",
        "/resources/1: another one of this uri comes before",
    )


def test_so_many_are_kept_and_so_many_bytes_of_all() -> None:
    found, report = kept(prompts=[{"name": f"p{number}"} for number in range(MAX_OFFERS + 2)])
    assert (len(found.prompts), report) == (MAX_OFFERS, (f"/prompts/{MAX_OFFERS}: only 1000 of 1002 are kept",))
    large = "x" * MAX_DESCRIPTION_BYTES
    found, report = kept(
        prompts=[{"name": f"p{number}", "description": large} for number in range(100)],
        resources=[{"uri": f"a:{number}", "name": "a", "description": large} for number in range(100)],
    )
    sizes = len(found.prompts) + len(found.resources)
    assert 100 < sizes <= MAX_OFFERS_BYTES // MAX_DESCRIPTION_BYTES
    assert report[-1] == f"/resources/99: prompts and resources together have over {MAX_OFFERS_BYTES} bytes"


def test_texts_are_cleaned_and_cut() -> None:
    hidden = one_prompt(title="As\u202ek", description="a\u200bb" + "x" * MAX_DESCRIPTION_BYTES, arguments=[])
    assert (hidden["title"], hidden["description"]) == ("Ask", "ab" + "x" * (MAX_DESCRIPTION_BYTES - 2))
    assert kept(instructions="Do\u200b it." + "\u00e4" * MAX_DESCRIPTION_BYTES)[0].instructions == (
        "Do it." + "\u00e4" * ((MAX_DESCRIPTION_BYTES - 6) // 2)
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"title": 7, "description": ["x"], "icons": "x", "_meta": [], "arguments": {"name": "a"}},
        {"title": "\u200b", "description": "", "icons": [], "_meta": {}, "arguments": []},
        {"icons": [{"src": "http://a.example/i.png"}, {"src": "javascript:alert(1)"}, {"src": 7}, "x", {}]},
        {"_meta": {"io.modelcontextprotocol/x": 1, "toolplug/name": "other"}},
        {"_meta": {"a": "x" * MAX_META_BYTES}},
        {"_meta": {"a": 1 << 70}},
        {"unknown": 1, "name_": 2},
    ],
)
def test_what_is_odd_in_an_entry_is_left_out_of_it(fields: dict[str, object]) -> None:
    assert one_prompt(**fields) == {"name": "ask"}


def test_icons_are_bounded_together() -> None:
    whole = {"src": "data:image/png;base64,AAAA", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}
    odd = {**ICON, "theme": "pink", "sizes": "any", "mimeType": 7, "onload": "x"}
    large = {"src": "data:image/png;base64," + "A" * 9_000}
    assert one_prompt(icons=[whole, odd, large, large])["icons"] == [whole, ICON, large]
    assert len(one_prompt(icons=[ICON] * 9)["icons"]) == 8


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"size": -1}, {}),
        ({"size": True}, {}),
        ({"size": 1 << 53}, {}),
        ({"size": 1.5}, {}),
        ({"size": 0}, {"size": 0}),
        ({"annotations": {"audience": ["nobody", "user", 7]}}, {"annotations": {"audience": ["user"]}}),
        ({"annotations": {"priority": 2}}, {}),
        ({"annotations": {"priority": True}}, {}),
        ({"annotations": {"priority": float("nan")}}, {}),
        ({"annotations": ["user"]}, {}),
        ({"annotations": {"lastModified": "now\u200b"}}, {"annotations": {"lastModified": "now"}}),
        ({"mimeType": "text/\u200bplain"}, {"mimeType": "text/plain"}),
        ({"mimeType": 7}, {}),
    ],
)
def test_the_fields_of_a_resource_are_those_of_the_protocol(
    fields: dict[str, object], expected: dict[str, object]
) -> None:
    assert one_resource(**fields) == {"uri": "a:b", "name": "b", **expected}


def test_a_prompt_has_so_many_arguments_of_known_fields() -> None:
    arguments = [{"name": f"a{number}", "required": "yes", "more": 1} for number in range(MAX_ARGUMENTS + 1)]
    assert one_prompt(arguments=arguments)["arguments"] == [
        {"name": f"a{number}", "required": False} for number in range(MAX_ARGUMENTS)
    ]


def test_lists_that_failed_are_reported() -> None:
    assert kept(failed=("prompts are not listed: no",)) == (NO_OFFERS, ("/prompts: prompts are not listed: no",))
