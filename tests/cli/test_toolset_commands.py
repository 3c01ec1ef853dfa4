"""`toolplug toolsets` and `toolplug notes`, beside a host that runs or without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from toolplug.toolsets.saved.saved_toolset import ref_id

Write = Callable[..., Path]

FILE = """
providers: {hello: {enabled: true}, journal: {enabled: true}}
toolsets: {h: {prefix: h, from: provider:hello}}
agents: {greeter: {toolsets: [h]}}
store: sqlite:///./state.db
"""
HELLO = {"namespacedName": "hello", "refId": ref_id("hello")}


@pytest.fixture
def kept(write: Write) -> Path:
    return write(FILE)


@pytest.mark.slow
@pytest.mark.requirement("C-10-toolsets", "C-7-saved-restored")
def test_a_toolset_is_built_shown_equipped_unequipped_and_deleted(kept: Path, run: Run) -> None:
    assert run("toolsets", "list").out == "operator has no saved toolsets; toolplug toolsets build makes one\n"
    built = run("toolsets", "build", "greeting", "hello", "--description", "To greet.")
    assert built == (
        0,
        "greeting: not equipped, version 1, 1 tool\n"
        "TOOL   ACTIVE  NOTES  REFERENCE ID\n"
        f"hello  yes     0      {ref_id('hello')}\n",
        "",
    )
    assert run("toolsets", "show").out == "nothing is equipped: every tool is listed\n"
    assert run("toolsets", "equip", "greeting", "--json").json["equipped"] is True
    tools = run("tools", "--json").json["tools"]
    assert [tool["function"]["name"] for tool in tools] == ["hello"]
    assert run("toolsets", "list").out.splitlines()[1].split() == ["greeting", "yes", "1", "1", "To", "greet."]
    assert run("toolsets", "show", "--json").json == run("toolsets", "show", "greeting", "--json").json
    assert run("toolsets", "unequip").out == "greeting: unequipped\n"
    assert len(run("tools", "--json").json["tools"]) == 2
    assert run("toolsets", "delete", "greeting").out == "greeting: deleted\n"
    assert run("toolsets", "list", "--json").json == {"toolsets": []}


@pytest.mark.requirement("C-10-toolsets")
def test_who_has_none_is_told_of_those_of_the_callers_of_a_host_without_auth(kept: Path, run: Run) -> None:
    run("toolsets", "build", "greeting", "hello", "--subject", "anonymous")
    hint = " (anonymous has 1 saved toolset: add --subject anonymous)\n"
    assert run("toolsets", "list").out == f"operator has no saved toolsets; toolplug toolsets build makes one{hint}"
    assert run("toolsets", "show").out == f"nothing is equipped: every tool is listed{hint}"
    assert run("notes", "list").out == f"saved toolsets: no notes; toolplug notes add makes some{hint}"
    missed = run("toolsets", "equip", "greeting")
    assert (missed.code, "--subject names the caller that saved it: anonymous" in missed.err) == (1, True)
    assert run("toolsets", "list", "--subject", "anonymous").out.splitlines()[1].split()[0] == "greeting"
    assert run("toolsets", "list", "--json").json == {"toolsets": []}


@pytest.mark.slow
@pytest.mark.requirement("C-10-toolsets", "C-7-saved-away", "C-7-saved-routes")
def test_a_document_is_exported_and_imported_for_another_caller(kept: Path, run: Run, tmp_path: Path) -> None:
    document = {"name": "greeting", "version": 3, "tools": [HELLO, {"namespacedName": "away"}]}
    file = tmp_path / "greeting.json"
    file.write_text(json.dumps(document))
    shown = run("toolsets", "import", "greeting.json", "--subject", "alice", "--json").json
    assert [tool["active"] for tool in shown["tools"]] == [True, False]
    assert run("toolsets", "list", "--json").json == {"toolsets": []}
    text = run("toolsets", "export", "greeting", "--subject", "alice").out
    assert text.startswith("name: greeting\nversion: 3\ntools:\n- namespacedName: hello\n")
    (tmp_path / "greeting.yaml").write_text(text)
    assert run("toolsets", "import", "greeting.yaml").code == 0
    assert run("toolsets", "export", "greeting", "--json").out == run("toolsets", "export", "greeting", "--json").out


@pytest.mark.requirement("C-10-toolsets", "C-10-exit-codes")
def test_what_is_wrong_with_a_document_or_a_name_is_told_with_its_place(kept: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("name: No\ntools:\n  - {namespacedName: hello, ref: x}\nextra: 1\n")
    done = run("toolsets", "import", "bad.yaml", "--json")
    assert done.code == 1
    places = [(problem["file"], problem["line"], problem["path"]) for problem in done.json["problems"]]
    assert places == [("bad.yaml", 1, "name"), ("bad.yaml", 3, "tools[0].ref"), ("bad.yaml", 4, "extra")]
    assert run("toolsets", "equip", "nothing", "--json").codes == ["toolset_not_found"]
    assert run("toolsets", "build", "greeting", "helo", "--json").codes == ["tool_not_found"]
    assert run("notes", "add", "greeting", "hello", "no text").code == 2


@pytest.mark.slow
@pytest.mark.requirement("C-10-toolsets", "C-7-notes-answer")
def test_notes_are_added_replaced_listed_and_removed(kept: Path, run: Run) -> None:
    run("toolsets", "build", "greeting", "hello")
    added = run("notes", "add", "greeting", "hello", "whom=First names only.", "tone=Warm = kind.")
    assert added == (0, "hello: added whom, tone\n", "")
    again = run("notes", "add", "greeting", "hello", "whom=Everybody.")
    assert again == (0, "hello: added nothing\n", "the note 'whom' exists already and is unchanged\n")
    assert run("notes", "add", "greeting", "hello", "whom=Everybody.", "--replace", "--json").json["addedNotes"] == [
        "whom"
    ]
    assert run("notes", "list", "greeting").out.splitlines() == [
        "TOOL   NOTE  STATE  TEXT",
        "hello  whom  good   Everybody.",
        "hello  tone  good   Warm = kind.",
    ]
    assert run("notes", "list").out.splitlines() == [
        "TOOLSET   TOOL   NOTE  STATE  TEXT",
        "greeting  hello  whom  good   Everybody.",
        "greeting  hello  tone  good   Warm = kind.",
    ]
    assert run("notes", "remove", "greeting", "hello", "whom").out == "hello: removed whom\n"
    (left,) = run("notes", "list", "greeting", "--json").json["toolNotes"]
    assert left["notes"] == [{"name": "tone", "note": "Warm = kind.", "stale": False}]
    assert run("notes", "list", "--json").json == {"toolsets": [{"name": "greeting", "toolNotes": [left]}]}
    assert run("notes", "remove", "greeting", "hello", "whom", "--json").codes == ["note_not_found"]
    assert run("notes", "add", "greeting", "hello", "Bad=x", "--json").codes == ["invalid_note"]


@pytest.mark.slow
@pytest.mark.requirement("C-7-notes-check")
def test_check_warns_where_description_and_notes_pass_a_thousand_and_twenty_four_characters(
    kept: Path, run: Run
) -> None:
    described = "Say hello to somebody."
    frame = len(f"{described}\n\n### Additional Tool Notes\n\n• **whom**: ")
    run("toolsets", "build", "greeting", "hello")
    run("notes", "add", "greeting", "hello", "whom=" + "x" * (1024 - frame))
    right = "providers.yaml is valid: 2 providers enabled\n"
    assert run("check") == (0, right, "")
    run("notes", "add", "greeting", "hello", "whom=" + "x" * (1025 - frame), "--replace")
    done = run("check")
    assert (done.code, done.out) == (0, right)
    warning = "warning: saved toolset greeting: with its notes the description of 'hello' has 1025 characters"
    assert done.err.startswith(warning)
    assert [problem["code"] for problem in run("check", "--json").json["warnings"]] == ["long_notes"]
    assert "long_notes" in [problem["code"] for problem in run("doctor", "--json").json["warnings"]]


def test_toolsets_in_the_memory_of_another_process_are_not_looked_for(write: Write, run: Run) -> None:
    write("providers: {hello: {enabled: true}}")
    done = run("toolsets", "list", "--json")
    assert (done.code, done.codes) == (1, ["store_in_memory"])
