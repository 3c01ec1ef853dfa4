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
    """`toolplug.testing.in_process_host` in the folder of the test; opened again there, it is the host restarted."""
    return partial(resolve_name("toolplug.testing:in_process_host"), folder=tmp_path)
