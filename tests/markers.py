"""Gives every test one of the markers in `KINDS`, and holds the unit tests to theirs.

A test without a marker is `unit`: it starts no process, opens no browser and neither listens on nor connects to a TCP
port. One that does fails and names the markers to choose from. uvloop's own sockets and processes raise no audit
event, so that a test which uses them in a uvloop is not found out.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Generator

import pytest

KINDS = ("unit", "process", "browser", "mcp", "framework", "judge")
TRIED_TWICE = frozenset({"process", "browser", "mcp", "judge"})
"""Tests that depend on the machine's other processes: one that fails gets a second try, and the summary names it."""

STARTS_A_PROCESS = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec", "os.system"}
)
USES_A_SOCKET = frozenset({"socket.bind", "socket.connect"})
INTERNET = frozenset({socket.AF_INET, socket.AF_INET6})


class UnitGuard:
    """Listens to the interpreter's audit events while a unit test runs. An audit hook cannot be removed again."""

    def __init__(self) -> None:
        self._seen: list[str] | None = None
        sys.addaudithook(self._audit)

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
        if item.get_closest_marker("unit") is None:
            return (yield)
        self._seen = seen = []
        try:
            return (yield)
        finally:
            self._seen = None
            if seen:
                choice = "`, `".join(kind for kind in KINDS if kind != "unit")
                pytest.fail(f"a unit test {seen[0]}: mark it with one of `{choice}` (tests/README.md)", pytrace=False)

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        seen = self._seen
        if seen is None:
            return
        if event in STARTS_A_PROCESS:
            seen.append(f"starts a process ({event} {arguments[0]!r})" if arguments else f"starts a process ({event})")
        elif event in USES_A_SOCKET:
            endpoint, address = arguments
            if isinstance(endpoint, socket.socket) and endpoint.family in INTERNET:
                seen.append(f"uses the network ({event} {address!r})")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(UnitGuard(), "tests.markers.unit_guard")


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
