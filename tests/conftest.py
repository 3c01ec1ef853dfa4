"""What every test under `tests/` gets: its marker, the loop of asyncio, the *not run* list and the leak guards."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests import few, figures, leaks, markers, not_run, order, read_once
from tests.leaks import leak_guard, loop_guard, task_guard

__all__ = [
    "anyio_backend",
    "leak_guard",
    "loop_guard",
    "pytest_addoption",
    "pytest_collection",
    "pytest_configure",
    "pytest_xdist_auto_num_workers",
    "task_guard",
]

UNIT_EXAMPLES = 20
"""So many of a property in the loop of a minute, of the usual hundred."""


def pytest_addoption(parser: pytest.Parser) -> None:
    said = f"{few.EXAMPLES} examples of a property, not 100, and at most {few.VARIANTS} variants of a test"
    parser.addoption("--few-examples", action="store_true", help=said)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(few, "tests.few")
    config.pluginmanager.register(markers, "tests.markers")
    config.pluginmanager.register(figures, "tests.figures")
    config.pluginmanager.register(not_run, "tests.not_run")
    config.pluginmanager.register(read_once, "tests.read_once")
    config.pluginmanager.register(order, "tests.order")
    leaks.pytest_configure(config)
    # A busy machine is no failure: no property is judged by the clock.
    settings.register_profile("toolplug", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    # The loop of a minute and `make coverage` take a sample; `make test` tries the usual hundred of each property.
    for name, examples in (("unit", UNIT_EXAMPLES), ("few", few.EXAMPLES)):
        settings.register_profile(name, parent=settings.get_profile("toolplug"), max_examples=examples)
    profile = "few" if config.option.few_examples else "unit" if config.option.markexpr == "unit" else "toolplug"
    settings.load_profile(profile)
    # Coverage counts what runs in the workers: to count the programs that tests start took a third of the time.
    if hasattr(config, "workerinput"):
        os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    # jsonschema, which the SDK of MCP imports at a call, makes the parser of a grammar of IRIs if it can, for a second
    # and a half: no test needs it.
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
    # A shell's job in the background ignores an interrupt, and so would every process that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Runs single files, and what must show its output (`-s`), in one process; else one worker more than cores."""
    single = all(Path(argument.split("::")[0]).is_file() for argument in config.args)
    return 0 if single or config.option.capture == "no" else (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Hides what is imported and collected from the garbage collector: it stays, and to look through it takes time.

    Afterwards it looks rarely: at Python's interval a test takes a twentieth longer, and to parse src thrice as long.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
