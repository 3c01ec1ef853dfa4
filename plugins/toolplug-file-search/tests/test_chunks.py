"""Documents are cut into passages that are found again where they say they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolplug_file_search.documents.chunks import Chunk, chunks
from toolplug_file_search.documents.conversion import Layout
from toolplug_file_search.documents.sections import Section, sections

TEXTS = st.text(alphabet=st.sampled_from("ab# \n\t\f.`~=é木🦦"), max_size=600)


def cut(text: str, size: int = 100, overlap: int = 20, *, layout: Layout = "markdown") -> list[Chunk]:
    return list(chunks(text, size=size, overlap=overlap, layout=layout))


def test_a_short_document_is_one_passage_with_its_place() -> None:
    assert cut("# Otters\n\nThey hold hands.\n") == [
        Chunk(text="# Otters\n\nThey hold hands.", headings=("Otters",), start=0, end=26, first_line=1, last_line=3)
    ]


def test_each_heading_begins_a_passage_that_knows_the_headings_above() -> None:
    text = "intro\n# A\na\n## B ##\nb\n### C\nc\n## D\nd\n"
    assert [(chunk.headings, chunk.text) for chunk in cut(text)] == [
        ((), "intro"),
        (("A",), "# A\na"),
        (("A", "B"), "## B ##\nb"),
        (("A", "B", "C"), "### C\nc"),
        (("A", "D"), "## D\nd"),
    ]


def test_a_heading_without_text_of_its_own_goes_with_the_next_one() -> None:
    assert [chunk.text for chunk in cut("# A\n\n## B\n\nb\n\n# C\n")] == ["# A\n\n## B\n\nb", "# C"]


def test_what_looks_like_a_heading_in_fenced_code_is_none() -> None:
    text = "# Setup\n\n```sh\n# make it\nmake\n~~~\n```\n\n~~~\n# no\n~~~\nend\n"
    assert sections(text, "markdown") == [Section(0, len(text), ("Setup",))]


def test_a_line_underlined_with_equal_signs_is_a_first_heading() -> None:
    assert [section.headings for section in sections("Title\n=====\ntext\n", "markdown")] == [("Title",)]


def test_plain_text_has_no_headings() -> None:
    assert [chunk.headings for chunk in cut("# not a heading\n\ntext", layout="plain")] == [()]


def test_paragraphs_are_packed_and_the_last_ones_come_again() -> None:
    paragraphs = [f"{letter * 15}." for letter in "abcdefgh"]
    found = cut("\n\n".join(paragraphs), size=60, overlap=20)
    assert [chunk.text.split("\n\n") for chunk in found] == [
        paragraphs[0:3],
        paragraphs[2:5],
        paragraphs[4:7],
        paragraphs[6:8],
    ]


def test_a_long_paragraph_is_cut_after_sentences_and_repeats_whole_words() -> None:
    found = cut("The otter sleeps on its back. " * 20, size=100, overlap=20, layout="plain")
    assert all(chunk.text.endswith("back.") for chunk in found)
    assert all(chunk.text.split()[0] in {"The", "otter", "sleeps", "on", "its", "back."} for chunk in found)


@pytest.mark.slow
def test_ten_megabytes_without_a_line_break_are_cut() -> None:
    found = cut("x" * 10_000_000, size=1500, overlap=200, layout="plain")
    assert sum(chunk.end - chunk.start for chunk in found) >= 10_000_000


@pytest.mark.parametrize("text", ["", " \n\t\n", "\n" * 50])
def test_nothing_has_no_passages(text: str) -> None:
    assert cut(text) == []


@given(
    text=TEXTS,
    size=st.integers(10, 80),
    share=st.integers(0, 2),
    layout=st.sampled_from(("plain", "markdown", "pages")),
)
def test_passages_hold_every_word_are_short_enough_and_stand_where_they_say(
    text: str, size: int, share: int, layout: Layout
) -> None:
    overlap = size * share // 4
    found = cut(text, size=size, overlap=overlap, layout=layout)
    held = {place for chunk in found for place in range(chunk.start, chunk.end)}
    assert {place for place, character in enumerate(text) if not character.isspace()} <= held
    for chunk in found:
        assert chunk.text == text[chunk.start : chunk.end]
        assert 0 < len(chunk.text) <= size
        assert chunk.first_line == text.count("\n", 0, chunk.start) + 1
        assert chunk.last_line == text.count("\n", 0, chunk.end - 1) + 1
    assert [chunk.start for chunk in found] == sorted({chunk.start for chunk in found})
    assert [chunk.end for chunk in found] == sorted({chunk.end for chunk in found})
