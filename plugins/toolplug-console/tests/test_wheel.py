"""The package works from wheels in an environment of its own, with every file of the page and the licences."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from zipfile import ZipFile

import httpx2
import pytest
from tests.environments import install_wheels

pytestmark = pytest.mark.judge

PACKAGE = Path(__file__).parent.parent
STATIC = PACKAGE / "src" / "toolplug_console" / "static"


def test_the_wheels_install_and_serve_the_console(tmp_path: Path) -> None:
    scripts, wheel = install_wheels(tmp_path, "server", "", PACKAGE)
    with ZipFile(wheel) as files:
        names = files.namelist()
    assert {f"toolplug_console/static/{file.relative_to(STATIC)}" for file in STATIC.rglob("*") if file.is_file()} <= {
        *names
    }
    assert {"LICENSE.htm", "LICENSE.preact", "LICENSE.uplot"} <= {
        Path(name).name for name in names if "/licenses/" in name
    }
    config = {"providers": {"console": {"enabled": True, "public_routes": True}}, "store": "memory://"}
    (tmp_path / "providers.yaml").write_text(json.dumps(config))
    command = [str(scripts / "toolplug"), "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            url = next(found[1] for line in process.stderr if (found := re.search(r"listening on (http://\S+)", line)))
            page = httpx2.get(url, follow_redirects=True)
            files = re.findall(r'(?:src|href)="([^"]+)"', page.text)
            found = [httpx2.get(f"{url}/{name}").status_code for name in files]
        finally:
            process.terminate()
            process.stderr.read()
    assert (page.url.path, page.status_code) == ("/console", 200)
    assert found == [200] * len(files)
