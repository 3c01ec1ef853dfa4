"""Whether this machine can confine processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from toolplug.apart.confinement.confinement import confine
from toolplug.config.run_settings import RunSettings


@pytest.fixture(scope="session")
def confinement() -> None:
    refusal = confine(RunSettings(process=True, confine="try"), Path.cwd(), sys.executable).refusal
    if refusal is not None:
        pytest.skip(f"{refusal.reason}; {refusal.fix}")
