"""Two nodes of Ray on this machine serve the calls of one entry; one is killed, and no call is lost silently."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.environments import CONSOLE, make_environment
from tests.requirement_table import ROOT

pytestmark = [pytest.mark.judge, pytest.mark.long(40), pytest.mark.requirement("I36-ray"), pytest.mark.timeout(600)]


def test_two_nodes_serve_and_the_death_of_one_is_seen(tmp_path: Path) -> None:
    here = Path(__file__).parent
    # Of its own: Ray is larger than all that the other tests need together.
    scripts = make_environment(tmp_path / "env", f"{ROOT}[sqlite]", CONSOLE, here.parent)
    # Ray's sockets have short names only.
    with TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as short:
        done = subprocess.run(
            [scripts / "python", here / "two_nodes.py", short],
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "both nodes have served; one was killed, and every call has ended" in done.stdout
