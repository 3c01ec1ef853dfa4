"""`toolplug bundle`: the wheels of a lock, each compared with it, and what is no package."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from tests.apart.own_environment import OTHER, build_stranger_wheels, linked_environment
from tests.cli.process import toolplug

NAMES = ("toolplug_stranger-1.0", f"httpx2-{OTHER}")
OFFLINE = {"PIP_NO_INDEX": "1"}


@pytest.mark.process
@pytest.mark.requirement("I36-bundle")
def test_the_wheels_of_a_lock_are_written_and_another_wheel_is_refused(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    build_stranger_wheels(wheels)
    site = linked_environment(tmp_path / "env")
    for name in NAMES:
        wheel = wheels / f"{name}-py3-none-any.whl"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        (site / f"{name}.dist-info" / "direct_url.json").write_text(json.dumps({"url": wheel.as_uri()}))
    run = "{process: true, python: ./env/bin/python}"
    (tmp_path / "providers.yaml").write_text(
        f"store: memory://\nproviders:\n  stranger: {{enabled: true, run: {run}}}\n"
    )
    locked = toolplug("lock", folder=tmp_path)
    assert locked.code == 0, locked.err
    done = toolplug("bundle", "out", folder=tmp_path, environ=OFFLINE)
    assert done.code == 0, done.out + done.err
    lines = (tmp_path / "out" / "requirements-env-bin-python.txt").read_text().splitlines()
    assert [line.split(" --hash=sha256:")[0] for line in lines] == [f"httpx2=={OTHER}", "toolplug-stranger==1.0"]
    assert (tmp_path / "out" / "toolplug.lock").read_text() == (tmp_path / "toolplug.lock").read_text()
    # The same name and version, and another file.
    shutil.rmtree(tmp_path / "out")
    wheel = wheels / f"{NAMES[0]}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content + (b"# more\n" if name == "toolplug_stranger.py" else b""))
    refused = toolplug("bundle", "out", folder=tmp_path, environ=OFFLINE)
    assert refused.code == 1
    assert "toolplug-stranger 1.0: toolplug_stranger.py of its wheel is not the one that is locked" in refused.err
