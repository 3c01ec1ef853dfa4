"""The settings of installed packages, asked for in child processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.providers.fake_distribution import install, provides

from toolplug.host.file.schema import settings_schemas

pytestmark = pytest.mark.process

HANGS = "import os, signal, subprocess\nsubprocess.Popen(['sleep', '600'])\nos.kill(os.getpid(), signal.SIGSTOP)\n"


@pytest.mark.requirement("C-10-schema-child")
def test_a_package_that_hangs_or_exits_costs_only_its_own_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {"hangs_mod": HANGS, "exits_mod": "import os\nos._exit(7)\n"}
    types = provides(hangs="hangs_mod:X", exits="exits_mod:X")
    install(tmp_path, "toolplug-faulty", types, modules=modules)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = settings_schemas(["hangs", "exits", "hello"], within_s=8)
    assert {name: (answer.open, answer.error) for name, answer in found.items()} == {
        "hangs": (True, "no answer within 8 s"),
        "exits": (True, "no answer; the process ended with 7"),
        "hello": (False, ""),
    }
    assert found["hello"].model is not None
