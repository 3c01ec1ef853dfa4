"""What the checked-out commit decides: which share of a large test runs, so that each commit tries another one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from tests.requirement_table import ROOT


def number_of_commit() -> int:
    """Return the hash of the checked-out commit; 0 outside a repository."""
    command = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return int(commit or "0", 16)


def shares(count: int) -> Sequence[int]:
    """Return which of so many shares of a test run: that of the commit, or all with `TOOLPLUG_SHARES=all`."""
    return range(count) if os.environ.get("TOOLPLUG_SHARES") == "all" else [number_of_commit() % count]
