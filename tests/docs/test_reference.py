"""The reference says what the code says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from docs.generator.__main__ import FOLDER
from docs.generator.pages import PAGES
from tests.house.sources import sources

from toolplug.catalog.call import ToolStatus
from toolplug.execution.replay import KEY_REUSED, KEY_RUNNING

pytestmark = pytest.mark.requirement("I2-10-reference-generated")

_NAMED = {"KEY_REUSED": KEY_REUSED, "KEY_RUNNING": KEY_RUNNING}


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_the_code_gives_now(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == PAGES[name](), "run `make reference`"


def test_every_status_is_explained() -> None:
    assert set(_first_cells("statuses.md")) == set(ToolStatus)


def test_every_error_is_explained_with_its_http_status() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", (FOLDER / "errors.md").read_text("utf-8"), re.MULTILINE)
    assert {code: int(status) for code, status in rows} == dict(_codes_in_the_code())


def _first_cells(name: str) -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", (FOLDER / name).read_text("utf-8"), re.MULTILINE)


def _codes_in_the_code() -> Iterator[tuple[str, int]]:
    """Each `HttpProblem(status, code, …)` whose status and code stand there."""
    for source in sources("src/toolplug/http/**/*.py"):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "HttpProblem":
                status, code = node.args[0], node.args[1]
                if isinstance(status, ast.Constant) and isinstance(status.value, int):
                    yield _NAMED.get(ast.unparse(code)) or ast.literal_eval(code), status.value
