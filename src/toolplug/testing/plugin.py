"""The pytest plugin of toolplug: one fixture, whose extra is imported when a test uses it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest


@pytest.fixture
def in_process_host(tmp_path: Path) -> Callable[..., Any]:
    """Return `toolplug.testing.in_process_host` for the folder of the test; a second host there is a restart."""
    # By name: pytest loads this plugin in every project of the environment, also where the extra is not installed.
    return partial(resolve_name("toolplug.testing:in_process_host"), folder=tmp_path)
