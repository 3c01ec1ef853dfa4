"""Gives every test one of the markers in `KINDS`, and holds unit and slow tests to theirs.

A test without a marker is `unit`, one that takes a third of a second or more is `slow`. Both start no process, open no
browser and neither listen on nor connect to a TCP port: one that does fails and names the markers. uvloop's own sockets
and processes raise no audit event, so that a test which uses them in a uvloop is not found out.
"""

from __future__ import annotations

import gc
import re
import socket
import sys
import warnings
from collections.abc import Generator
from pathlib import Path

import pytest

KINDS = ("unit", "slow", "process", "browser", "mcp", "framework", "wire", "judge")
TRIED_TWICE = frozenset({"process", "browser", "mcp", "wire", "judge"})
"""Tests that depend on the machine's other processes: one that fails gets a second try, and the summary names it."""

ALONE = ("unit", "slow")
"""Tests that use nothing but this process and its files."""

QUICK = "not judge and not framework and not wire"
"""The value of `-m` in the Makefile for everything but the slow tests."""

_OF_MODULE = re.compile(r"^pytestmark = (?:\[$.*?^\]|.*?$)", re.DOTALL | re.MULTILINE)

STARTS_A_PROCESS = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec", "os.system"}
)
USES_A_SOCKET = frozenset({"socket.bind", "socket.connect"})
WATCHED = STARTS_A_PROCESS | USES_A_SOCKET
INTERNET = frozenset({socket.AF_INET, socket.AF_INET6})


class UnitGuard:
    """Listens to the interpreter's audit events in unit and slow tests.

    An audit hook cannot be removed again, and hears of hundreds of events a test: a run without such tests has none.
    """

    def __init__(self) -> None:
        self._seen: list[str] | None = None
        self._is_listening = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        yield from self._guarded(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        yield from self._guarded(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        yield from self._guarded(item)

    def _guarded(self, item: pytest.Item) -> Generator[None]:
        kind = next((kind for kind in ALONE if item.get_closest_marker(kind) is not None), None)
        if kind is None:
            return (yield)
        self._listen()
        self._seen = seen = []
        try:
            return (yield)
        finally:
            self._seen = None
            if seen:
                choice = "`, `".join(kind for kind in KINDS if kind not in ALONE)
                pytest.fail(f"a {kind} test {seen[0]}: mark it with one of `{choice}` (tests/README.md)", pytrace=False)

    def _listen(self) -> None:
        if self._is_listening:
            return
        self._is_listening = True

        def hear(event: str, arguments: tuple[object, ...]) -> None:  # a method would take three times as long
            if event in WATCHED and (seen := self._seen) is not None:
                self._note(seen, event, arguments)

        sys.addaudithook(hear)

    def _note(self, seen: list[str], event: str, arguments: tuple[object, ...]) -> None:
        if event in STARTS_A_PROCESS:
            seen.append(f"starts a process ({event} {arguments[0]!r})" if arguments else f"starts a process ({event})")
        else:
            endpoint, address = arguments
            if isinstance(endpoint, socket.socket) and endpoint.family in INTERNET:
                seen.append(f"uses the network ({event} {address!r})")


class FailureGuard:
    """Lets go of what a failed attempt has left open, before the next test begins.

    Its traceback keeps its objects: they would end in some later test, which would fail for what it has not opened.
    """

    def __init__(self) -> None:
        self._failed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        self._failed |= report.failed
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if not self._failed:
            return
        self._failed = False
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(UnitGuard(), "tests.markers.unit_guard")
    config.pluginmanager.register(FailureGuard(), "tests.markers.failure_guard")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the modules of which no test runs: to import them all takes each worker forty seconds of CPU.

    Those of the agent frameworks alone take thirteen. Markers are written in the module that they are for.
    """
    wanted = _kinds_of(config.option.markexpr)
    if wanted is None or not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text("utf-8")
    found = _OF_MODULE.search(text)
    of_module = _kinds_in(found.group()) if found is not None else frozenset[str]()
    return None if wanted & (of_module or _kinds_in(text) | {"unit"}) else True


def _kinds_of(expression: str) -> frozenset[str] | None:
    """Return the kinds that an expression of `-m` chooses; None if it is about more than kinds."""
    if expression == QUICK:
        return frozenset(KINDS) - {"judge", "framework", "wire"}
    chosen = frozenset(expression.split(" or "))
    return chosen if chosen <= frozenset(KINDS) else None


def _kinds_in(text: str) -> frozenset[str]:
    return frozenset(kind for kind in KINDS if f"mark.{kind}" in text)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what has no marker of its own as `unit`, before `-m` selects; two markers are an error."""
    for item in items:
        kinds = {marker.name for marker in item.iter_markers() if marker.name in KINDS}
        if not kinds:
            item.add_marker("unit")
        elif len(kinds) > 1:
            raise pytest.UsageError(
                f"{item.nodeid} has more than one of the markers {', '.join(KINDS)}: {sorted(kinds)}"
            )
        elif kinds <= TRIED_TWICE:
            item.add_marker(pytest.mark.flaky(reruns=1))
