"""Commands with a provider that prints, and next to a package whose metadata cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.process import toolplug
from tests.field.conftest import INPUTS, copy_inputs

pytestmark = pytest.mark.judge

BROKEN = "site/unrelated-1.0.dist-info"
FILES = {
    "stdout": {"hello.jsonl", "noisy.py", "providers.yaml"},
    "package": {"providers.yaml", f"{BROKEN}/METADATA", f"{BROKEN}/RECORD", f"{BROKEN}/entry_points.txt"},
}
"""Folders → the files that the tests below use."""


@pytest.mark.requirement("C-10-stdout")
def test_the_protocol_alone_is_on_standard_output_from_the_first_byte(tmp_path: Path) -> None:
    folder = copy_inputs("stdout", tmp_path)
    done = toolplug("serve", "--stdio", folder=folder, stdin=folder.joinpath("hello.jsonl").read_text("utf-8"))
    assert done.code == 0, done
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert sorted(answer["id"] for answer in answers) == [1, 2, 3]
    assert [answer["result"]["content"][0]["text"] for answer in answers if answer["id"] > 1] == ["hi", "hi"]
    for printed in ("Hello from the library", "connected"):
        assert printed in done.err


@pytest.mark.requirement("C-10-stdout")
def test_the_answer_of_a_call_is_one_json_document(tmp_path: Path) -> None:
    done = toolplug("call", "say", "--json", folder=copy_inputs("stdout", tmp_path))
    assert (done.code, done.json["output"]) == (0, "hi")


@pytest.mark.requirement("C-10-check")
def test_metadata_that_cannot_be_read_is_one_line_of_check(tmp_path: Path) -> None:
    folder = copy_inputs("package", tmp_path)
    done = toolplug("check", folder=folder, site=folder / "site")
    assert (done.code, len(done.err.splitlines())) == (0, 1), done
    assert f"{BROKEN}/entry_points.txt: cannot be read" in done.err
    assert done.out.startswith("providers.yaml is valid")


@pytest.mark.requirement("C-10-check")
def test_metadata_that_cannot_be_read_affects_no_other_package(tmp_path: Path) -> None:
    done = toolplug("call", "say", "--json", folder=copy_inputs("stdout", tmp_path), site=INPUTS / "package" / "site")
    assert (done.code, done.json["output"]) == (0, "hi")
