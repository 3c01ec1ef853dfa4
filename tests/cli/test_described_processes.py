"""Commands that read a configuration and start nothing end the processes that have described its entries."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Run

from toolplug.apart.processes import WorkerProcess

pytestmark = [pytest.mark.process, pytest.mark.requirement("I36-apart")]

NOTES = """
from toolplug import tool


@tool
def count() -> int:
    "Count."
    return 1
"""
FILE = "store: memory://\nproviders:\n  notes: {enabled: true, type: ./notes.py, run: {process: true}}\n"


@pytest.mark.parametrize("command", [("check",), ("diff", "providers.yaml"), ("lock",), ("dashboard", "-o", "-")])
def test_no_process_waits_for_a_start_that_does_not_come(
    run: Run, tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.py").write_text(NOTES)
    (tmp_path / "providers.yaml").write_text(FILE)
    described: list[WorkerProcess] = []
    describe = WorkerProcess.describe

    def keep(process: WorkerProcess) -> None:
        # Held here, so that it does not end since nobody has it any more.
        described.append(process)
        describe(process)

    monkeypatch.setattr(WorkerProcess, "describe", keep)
    assert run(*command).code == 0
    assert described
    assert [each.alive for each in described] == [False] * len(described)
