"""What holds where toolplug is root holds for an ordinary user, too: there a container has a user namespace."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = [pytest.mark.judge, pytest.mark.needs("bwrap")]

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PLACES = {"/srv/python": sys.base_prefix, "/srv/site": sysconfig.get_path("purelib"), "/srv/root": str(ROOT)}
"""Where a user without any right finds what is needed, whatever folders the checkout is in."""
USER = 61_999


@pytest.mark.requirement("I3-code-escape", "I3-code-limits")
def test_code_finds_no_way_out_of_the_containers_of_an_ordinary_user() -> None:
    tests = [f"/srv/root/{(HERE / name).relative_to(ROOT)}" for name in ("test_escape.py", "test_limits.py")]
    sources = ["/srv/root", "/srv/root/src", f"/srv/root/{HERE.parent.relative_to(ROOT)}/src", "/srv/site"]
    binds = [word for place, folder in PLACES.items() for word in ("--ro-bind", folder, place)]
    python = f"/srv/python/bin/{Path(sys.executable).resolve().name}"
    rights = () if os.geteuid() else ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
    done = subprocess.run(
        [
            *("bwrap", "--dev-bind", "/", "/", "--tmpfs", "/srv", *binds, "--perms", "0777", "--dir", "/srv/tmp"),
            *("--chdir", "/srv/root", "--", *rights),
            *(python, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--basetemp=/srv/tmp/pytest", *tests),
        ],
        env={
            "HOME": "/srv/tmp",
            "LD_LIBRARY_PATH": "/srv/python/lib",
            "PATH": "/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": ":".join(sources),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
