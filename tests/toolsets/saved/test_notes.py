"""Notes on the tools of a saved toolset: added, replaced, removed, limited, and never more than one line each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.plain_tools import plain_tool

from toolplug.catalog.catalog import Catalog
from toolplug.catalog.definition import Note, ToolDefinition
from toolplug.catalog.render import describe
from toolplug.errors import ApiError
from toolplug.toolsets.saved.document import NotePart, ToolRefPart
from toolplug.toolsets.saved.equipped import chosen_only, equip
from toolplug.toolsets.saved.saved_toolset import (
    MAX_NOTES,
    MAX_NOTES_BYTES,
    NotesAdded,
    SavedToolset,
    note_text,
    with_notes,
    without_notes,
)

READ = plain_tool("read", description="Read.").definition
WRITE = plain_tool("write", description="").definition
KEPT = SavedToolset(name="kept", tools=("read", "write"))


def added(
    toolset: SavedToolset, *notes: tuple[str, str], tool: ToolDefinition = READ, replace: bool = False
) -> NotesAdded:
    return with_notes(toolset, tool, [Note(*note) for note in notes], replace=replace)


def texts(toolset: SavedToolset, tool: str = "read") -> list[tuple[str, str]]:
    return [(note.name, note.text) for note in toolset.notes_of(tool).notes]


@pytest.mark.requirement("ANN-AC-1", "ANN-AC-4", "ANN-store-many", "ANN-behaviour-confirm", "C-7-notes-answer")
def test_several_notes_are_added_to_any_tool_of_the_toolset() -> None:
    once = added(KEPT, ("units", "Metric."), ("cost", "Ask first."))
    assert once.fields() == {
        "toolset": "kept",
        "tool": "read",
        "addedNotes": ["units", "cost"],
        "skippedNotes": [],
        "warnings": [],
    }
    twice = added(once.toolset, ("units", "Of write."), tool=WRITE).toolset
    assert (texts(twice), texts(twice, "write")) == (
        [("units", "Metric."), ("cost", "Ask first.")],
        [("units", "Of write.")],
    )
    assert (KEPT.version, once.toolset.version, twice.version) == (1, 2, 3)


@pytest.mark.requirement("ANN-AC-5", "ANN-store-additive", "ANN-error-duplicate", "C-7-notes-answer")
def test_a_name_that_is_there_is_skipped_with_a_warning_and_the_rest_are_added() -> None:
    before = added(KEPT, ("units", "Metric.")).toolset
    after = added(before, ("units", "Imperial."), ("cost", "Ask."), ("cost", "Twice."))
    assert (after.added, after.skipped) == (("cost",), ("units", "cost"))
    assert after.warnings == tuple(f"the note {name!r} exists already and is unchanged" for name in after.skipped)
    assert texts(after.toolset) == [("units", "Metric."), ("cost", "Ask.")]
    assert added(before, ("units", "Imperial.")).toolset is before


def test_a_note_is_replaced_where_that_is_asked_for_and_removed_by_name() -> None:
    before = added(KEPT, ("units", "Metric."), ("cost", "Ask.")).toolset
    after = added(before, ("units", "Imperial."), replace=True)
    assert (after.added, after.skipped, after.warnings) == (("units",), (), ("the note 'units' was replaced",))
    assert texts(after.toolset) == [("units", "Imperial."), ("cost", "Ask.")]
    assert texts(without_notes(after.toolset, "read", ["units"])) == [("cost", "Ask.")]
    assert without_notes(after.toolset, "read", ["units", "cost"]).notes == ()
    with pytest.raises(ApiError) as refused:
        without_notes(after.toolset, "read", ["units", "nothing"])
    assert refused.value.code == "note_not_found"


@pytest.mark.requirement("ANN-error-not-in-toolset")
def test_a_tool_outside_the_toolset_takes_no_note() -> None:
    with pytest.raises(ApiError) as refused:
        added(KEPT, ("units", "Metric."), tool=plain_tool("burn").definition)
    assert refused.value.code == "tool_not_in_toolset"


@pytest.mark.requirement("C-7-notes-limits", "ANN-risk-length")
def test_a_tool_has_at_most_twenty_notes_and_eight_kibibytes_of_them() -> None:
    full = added(KEPT, *[(f"note-{number}", "x") for number in range(MAX_NOTES)]).toolset
    assert (MAX_NOTES, MAX_NOTES_BYTES) == (20, 8 * 1024)
    fits = MAX_NOTES_BYTES - 5 * len("long-1")
    long = added(KEPT, *[(f"long-{number}", "é" * (fits // 5 // 2)) for number in range(5)]).toolset
    exact = added(long, ("long-0", "x" * (fits - 4 * (fits // 5 // 2) * 2)), replace=True).toolset
    for toolset, name, text in ((full, "one-more", "x"), (exact, "one-more", "x")):
        with pytest.raises(ApiError) as refused:
            added(toolset, (name, text))
        assert refused.value.code == "too_many_notes"
        assert added(toolset, ("other", "x"), tool=WRITE).added == ("other",)


@pytest.mark.requirement("C-7-notes-lines", "ANN-format", "C-7-notes-text", "ANN-AC-3")
@given(st.text(min_size=1, max_size=200).filter(note_text))
def test_whatever_a_note_says_it_stays_one_bullet_of_one_line(text: str) -> None:
    toolset = added(KEPT, ("forged", text), ("next-one", "Of mine.")).toolset
    catalog = equip(Catalog([plain_tool("read", description="Read.")]), toolset, chosen_only)
    lines = describe(catalog["read"].definition).splitlines()
    assert lines[:4] == ["Read.", "", "### Additional Tool Notes", ""]
    assert len(lines) == 6
    assert lines[4].startswith("• **forged**:")
    assert lines[5] == "• **next-one**: Of mine."


@pytest.mark.requirement("ANN-error-name", "ANN-tool-schema")
@pytest.mark.parametrize("name", ["a", "A-b", "a_b", "a b", "a" * 51, "ab\n", "ä-b", ""])
def test_a_note_is_called_by_lower_case_letters_digits_and_hyphens(name: str) -> None:
    with pytest.raises(ValidationError):
        NotePart(name=name, note="x")
    assert NotePart(name="a" * 50, note="x" * 2000).value == Note("a" * 50, "x" * 2000)


@pytest.mark.parametrize("text", ["", "x" * 2001, "\u200b\n \u2028"])
def test_a_note_says_something_in_two_thousand_characters(text: str) -> None:
    with pytest.raises(ValidationError):
        NotePart(name="ab", note=text)
    for name, said in (("ab", text), ("A", "x")):
        with pytest.raises(ApiError) as refused:
            added(KEPT, ("fine", "x"), (name, said))
        assert refused.value.code == "invalid_note"


@pytest.mark.requirement("ANN-tool-ref-either")
def test_a_reference_names_a_tool_by_name_or_by_id() -> None:
    for fields in ({}, {"refId": "short"}, {"refId": "0" * 16 + "\n"}, {"namespacedName": ""}, {"name": "read"}):
        with pytest.raises(ValidationError):
            ToolRefPart.model_validate(fields)
    assert ToolRefPart.model_validate({"refId": "0" * 16}).reference.ref_id == "0" * 16
