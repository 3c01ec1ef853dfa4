"""A pytest plugin that writes which test names which requirement: `-p tests.requirement_links --links-to FILE`.

It looks before anything is deselected: a slow test, or one whose tool this machine lacks, shows its requirements too.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--links-to", type=Path, required=True, help="the JSON file to write: node id → requirement ids")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    links = {item.nodeid: [row for marker in item.iter_markers("requirement") for row in marker.args] for item in items}
    config.getoption("--links-to").write_text(json.dumps({test: rows for test, rows in links.items() if rows}))
