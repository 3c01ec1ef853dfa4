"""What the release page tells one to type."""

from __future__ import annotations

import re

from tests.requirement_table import ROOT


def replacing_address(address: str) -> str:
    """The command that gives every link of the project's own the address of a host."""
    page = (ROOT / "docs" / "contributing" / "release.md").read_text("utf-8")
    (command,) = re.findall(r"`(git grep [^`]+)`", page)
    return command.replace("ADDRESS", address)


def moving_ranges() -> str:
    """The command that moves each project's range of toolplug to the next minor version."""
    page = (ROOT / "docs" / "contributing" / "release.md").read_text("utf-8")
    (command,) = re.findall(r"`(sed [^`]+)`", page)
    return command
