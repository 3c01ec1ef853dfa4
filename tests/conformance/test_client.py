"""The public conformance suite as servers of ours: every scenario starts a client over our own connection."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.conformance.baseline import expected, judged
from tests.conformance.suite import REVISIONS, client_checks
from tests.mcp.forking import forking

CLIENT = Path(__file__).with_name("client.py")
IMPORTED = ("toolplug.parts.mcp.discovery.listing", "toolplug.parts.mcp.input_rounds", "toolplug.parts.mcp.sdk.client")
"""What the client imports, for two seconds: once, and not for each of a hundred scenarios."""


@pytest.mark.judge
@pytest.mark.long(40)
@pytest.mark.requirement("I5-5-conformance-client")
@pytest.mark.parametrize("revision", REVISIONS)
def test_the_suite_finds_what_the_baseline_says_and_nothing_else(revision: str, tmp_path: Path) -> None:
    with forking(*IMPORTED) as forked:
        command = shlex.join(forked(CLIENT))
        assert judged(client_checks(command, revision, tmp_path), expected("client")) == []
