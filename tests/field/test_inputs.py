"""No input is forgotten: a test uses every file."""

from __future__ import annotations

import json

import pytest
from tests.field import test_commands, test_files, test_import, test_mcp, test_openapi, test_upstream
from tests.field.conftest import INPUTS

pytestmark = pytest.mark.judge

USED = {
    "upstream": test_upstream.FILES,
    "mcp": test_mcp.FILES,
    "import": test_import.FILES,
    "openapi": test_openapi.FILES,
    "files": test_files.FILES,
    **test_commands.FILES,
}


def test_every_input_is_used_by_a_test() -> None:
    inputs = {file.relative_to(INPUTS).as_posix() for file in INPUTS.rglob("*") if file.is_file()}
    assert inputs == {f"{folder}/{name}" for folder, names in USED.items() for name in names}


def test_every_operation_of_the_document_is_called() -> None:
    paths = json.loads(INPUTS.joinpath("openapi", test_openapi.DOCUMENT).read_bytes())["paths"]
    assert {each["operationId"] for path in paths.values() for each in path.values()} == test_openapi.CALLED


def test_every_tool_with_a_bad_keyword_has_its_pointer() -> None:
    assert set(test_mcp.REMOVED) == set(test_mcp.SCHEMAS["F18-one-bad-keyword.json"])
