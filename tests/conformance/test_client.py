"""The public conformance suite as servers of ours: every scenario starts a client over our own connection."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.conformance.baseline import expected, judged
from tests.conformance.suite import REVISIONS, client_checks

CLIENT = Path(__file__).with_name("client.py")


@pytest.mark.judge
@pytest.mark.requirement("I5-5-conformance-client")
@pytest.mark.parametrize("revision", REVISIONS)
def test_the_suite_finds_what_the_baseline_says_and_nothing_else(revision: str, tmp_path: Path) -> None:
    command = f"{sys.executable} {CLIENT}"
    assert judged(client_checks(command, revision, tmp_path), expected("client")) == []
