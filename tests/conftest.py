"""What every test under `tests/` gets: its marker, the loop of asyncio, the *not run* list and the leak guards."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings
from tests import leaks, markers, not_run
from tests.leaks import leak_guard, loop_guard, task_guard

__all__ = ["anyio_backend", "leak_guard", "loop_guard", "pytest_configure", "task_guard"]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(markers, "tests.markers")
    config.pluginmanager.register(not_run, "tests.not_run")
    leaks.pytest_configure(config)
    # A busy machine is no failure: no property is judged by the clock.
    settings.register_profile("toolplug", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("toolplug")
    # A shell's job in the background ignores an interrupt, and so would every process that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
