"""The reference says what the code says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import get_args

import pytest
from docs.generator.__main__ import FOLDER
from docs.generator.pages import PAGES
from docs.generator.sessions import EVENTS
from tests.project.sources import sources

from toolplug.catalog.call import ToolStatus
from toolplug.errors import GoneState
from toolplug.execution.idempotency import KEY_REUSED, KEY_RUNNING
from toolplug.host.file.settings import HostSettings
from toolplug.parts.sessions.streams.events import CANCELLED, REQUEST, STATUS, UPDATE

pytestmark = pytest.mark.requirement("I2-10-reference-generated")

_NAMED = {"KEY_REUSED": [KEY_REUSED], "KEY_RUNNING": [KEY_RUNNING], "error.state": get_args(GoneState)}


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_the_code_gives_now(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == PAGES[name](), "run `make reference`"


def test_every_section_of_the_configuration_is_explained() -> None:
    explained = re.findall(r"^## (\w+)$", (FOLDER / "configuration.md").read_text("utf-8"), re.MULTILINE)
    assert set(explained) >= {"providers", "mcp_servers", *HostSettings.model_fields}


def test_a_default_is_that_of_its_own_section() -> None:
    page = (FOLDER / "configuration.md").read_text("utf-8")
    sections = dict(re.findall(r"^## ([\w.]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    defaults = {
        name: re.findall(r"^\| `scope` \|[^|]*\| ([^|]*) \|", text, re.MULTILINE) for name, text in sections.items()
    }
    assert {name: found for name, found in defaults.items() if found} == {
        "limits": ["`process`"],
        "mcp_servers.oauth": ["none"],
        "toolsets": ["`shared`"],
    }


def test_every_status_is_explained() -> None:
    assert set(_first_cells("statuses.md")) == set(ToolStatus)


def test_every_error_is_explained_with_its_http_status() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", (FOLDER / "errors.md").read_text("utf-8"), re.MULTILINE)
    assert {code: int(status) for code, status in rows} == dict(_codes_in_the_code())
    assert len({code for code, _ in rows}) == len(rows), "a code stands in two rows"


def test_every_event_of_a_session_is_explained() -> None:
    feed = next(sources("src/toolplug/parts/sessions/streams/stream.py"))
    framed = set(re.findall(r'\bframe\("([a-z-]+)"', feed.text))
    assert set(EVENTS) == framed | {UPDATE, REQUEST, CANCELLED, STATUS}


def _first_cells(name: str) -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", (FOLDER / name).read_text("utf-8"), re.MULTILINE)


def _codes_in_the_code() -> Iterator[tuple[str, int]]:
    """Each `HttpProblem(status, code, …)` whose status and code stand there, and each code of the `_CODES` table."""
    folders = ("src/toolplug/http/**/*.py", "src/toolplug/parts/*/http/*.py", "src/toolplug/cli/serving/*.py")
    for source in sources(*folders):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "HttpProblem":
                status, code = node.args[0], ast.unparse(node.args[1])
                if isinstance(status, ast.Constant) and isinstance(status.value, int):
                    yield from ((name, status.value) for name in _NAMED.get(code) or [ast.literal_eval(code)])
            elif isinstance(node, ast.Assign | ast.AnnAssign) and ast.unparse(node).startswith("_CODES"):
                assert node.value is not None
                table: dict[int, str] = ast.literal_eval(node.value)
                yield from ((code, status) for status, codes in table.items() for code in codes.split())
