"""Runs the command in this process, in a folder of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.done import Done
from tests.host.conftest import package

from toolplug.cli.main import main

__all__ = ["package", "run", "write"]

Run = Callable[..., Done]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a configuration, by default `providers.yaml`; records are kept in memory unless it says otherwise."""

    def written(text: str, name: str = "providers.yaml") -> Path:
        file = tmp_path / name
        file.write_text(text if "store:" in text else f"{text}\nstore: memory://\n", "utf-8")
        return file

    return written


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """`run("call", "hello")` in the test's folder, with no configuration named by the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOOLPLUG_CONFIG", raising=False)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def ran(*arguments: str) -> Done:
        capsys.readouterr()
        code = main(arguments)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    yield ran
    root.handlers[:] = handlers
    root.setLevel(level)
