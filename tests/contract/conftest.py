"""What the contract's examples stand on: installed packages and a configuration file."""

from __future__ import annotations

from tests.host.conftest import config, package

__all__ = ["config", "package"]
