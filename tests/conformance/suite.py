"""One run of the public conformance suite, and what each of its checks found."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
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
_RUN_S = 600
_STAMP = re.compile(r"-\d{4}-\d{2}-\d{2}T[\d-]+Z$")


class Check(NamedTuple):
    """One check of one scenario."""

    scenario: str
    id: str
    status: str
    message: str


def server_checks(url: str, revision: str, results: Path) -> list[Check]:
    """Run all that a revision requires of a server, and what the suite runs beside it."""
    said = _ran("server", results, "--requirements", revision, "--url", url)
    return _whole("server", revision, results, [said])


def client_checks(command: str, revision: str, results: Path) -> list[Check]:
    """Run all that a revision requires of a client, and what the suite runs beside it.

    Two at once: the suite by itself starts a client for each scenario at the same time, and measures how fast they are.
    """
    given = ["--spec-version", revision, "--force", "--timeout", "60000", "--command", command]

    def ran(scenario: str) -> str:
        return _ran("client", results, "--scenario", scenario, *given)

    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(ran, sorted(_scenarios("client", revision))))
    return _whole("client", revision, results, said)


def _ran(leg: Leg, results: Path, *arguments: str) -> str:
    command = [node(), _suite(), leg, "--output-dir", results, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_S, check=False)
    return done.stdout + done.stderr


def _whole(leg: Leg, revision: str, results: Path, said: Sequence[str]) -> list[Check]:
    """What was found; fails where a scenario left no result."""
    checks = list(_read(leg, results))
    missing = _scenarios(leg, revision) - {check.scenario for check in checks}
    assert not missing, (sorted(missing), said)
    return checks


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
