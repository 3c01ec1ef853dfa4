"""The pytest plugin that is there wherever toolplug is installed: one fixture, loaded when a test asks for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

_IN_PROCESS_HOST = "toolplug.testing:in_process_host"


@pytest.fixture
def in_process_host(tmp_path: Path) -> Callable[..., Any]:
    """`toolplug.testing.in_process_host` with the test's own folder: opened again, it is a restart."""
    return partial(resolve_name(_IN_PROCESS_HOST), folder=tmp_path)  # loaded with its extra only here
