"""The checked-out commit as a number: what it decides is another part of a large test at each commit."""

from __future__ import annotations

import subprocess

from tests.requirement_table import ROOT


def number_of_commit() -> int:
    """Return the hash of the checked-out commit; 0 outside a repository."""
    command = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return int(commit or "0", 16)
