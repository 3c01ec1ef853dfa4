"""One run of the public conformance suite, and what each of its checks found."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple

import yaml
from tests.node.installed import node, script

Leg = Literal["server", "client"]
REVISIONS = ("2025-11-25", "2026-07-28")
BAD = ("FAILURE", "WARNING")
"""A warning is a SHOULD of the specification that does not hold."""

_PACKAGE = "@modelcontextprotocol/conformance"
SCENARIO_S = 120
_STAMP = re.compile(r"-\d{4}-\d{2}-\d{2}T[\d-]+Z$")


class Check(NamedTuple):
    """One check of one scenario."""

    scenario: str
    id: str
    status: str
    message: str


def checked(leg: Leg, revision: str, results: Path, *arguments: str) -> list[Check]:
    """Run all that a revision requires, and what the suite runs beside it; fails where a scenario left no result.

    Two at once: the suite by itself starts a client for each scenario at the same time, and measures how fast they are.
    """
    scenarios = _scenarios(leg, revision)
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda scenario: _ran(leg, scenario, revision, results, arguments), sorted(scenarios)))
    checks = list(_read(leg, results))
    missing = scenarios - {check.scenario for check in checks}
    assert not missing, (sorted(missing), said)
    return checks


def _ran(leg: Leg, scenario: str, revision: str, results: Path, arguments: Iterable[str]) -> str:
    what = ["--scenario", scenario, "--spec-version", revision, "--force", "--output-dir", results]
    done = subprocess.run(
        [node(), _suite(), leg, *what, *arguments], capture_output=True, text=True, timeout=SCENARIO_S, check=False
    )
    return done.stdout + done.stderr


def _suite() -> Path:
    return script("conformance", _PACKAGE)


def _scenarios(leg: Leg, revision: str) -> set[str]:
    """Every scenario that a run has to have."""
    file = _suite().parent.parent / "requirements" / f"{revision}.yaml"
    required = yaml.safe_load(file.read_text("utf-8"))
    beside = {entry["scenario"] for entry in required["not_scored"] if entry["leg"] == leg}
    return {*required[leg], *beside}


def _read(leg: Leg, results: Path) -> Iterator[Check]:
    for file in sorted(results.rglob("checks.json")):
        name = _STAMP.sub("", str(file.parent.relative_to(results)))
        scenario = name.removeprefix("server-") if leg == "server" else name
        for check in json.loads(file.read_text("utf-8")):
            yield Check(scenario, check["id"], check["status"], check.get("errorMessage") or "")
