"""The files that a configuration is read from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

USER_FILE = Path(".config") / "toolplug" / "providers.yaml"
"""Below the user's home: MCP servers for every project of this user (CONTRACT.md section 2)."""


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """A configuration file, and the user's own, whose servers it may replace; a path to whoever needs one."""

    file: Path
    user: Path | None = None

    def __fspath__(self) -> str:
        return os.fspath(self.file)

    def __str__(self) -> str:
        return str(self.file)


Source = str | os.PathLike[str] | Mapping[str, object]
"""A configuration file, with the user's own beside it or not, or a mapping of the same shape."""
