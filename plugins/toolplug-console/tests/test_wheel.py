"""The package works from wheels in an environment of its own, with every file of the page and the licences."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import httpx2
import pytest

pytestmark = pytest.mark.judge

PACKAGE = Path(__file__).parent.parent
ROOT = PACKAGE.parent.parent
STATIC = PACKAGE / "src" / "toolplug_console" / "static"


def test_the_wheels_install_and_serve_the_console(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip"]
    wheels = tmp_path / "wheels"
    build = [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels)]
    subprocess.run([*build, str(ROOT), str(PACKAGE)], check=True)
    core, plugin = (next(wheels.glob(f"{name}-*.whl")) for name in ("toolplug", "toolplug_console"))
    with ZipFile(plugin) as wheel:
        names = wheel.namelist()
    assert {f"toolplug_console/static/{file.relative_to(STATIC)}" for file in STATIC.rglob("*") if file.is_file()} <= {
        *names
    }
    assert {"LICENSE.htm", "LICENSE.preact", "LICENSE.uplot"} <= {
        Path(name).name for name in names if "/licenses/" in name
    }
    venv.create(tmp_path / "venv", with_pip=False)
    scripts = tmp_path / "venv" / "bin"
    install = [*pip, "--python", str(scripts / "python"), "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*install, f"{core}[server]", str(plugin)], check=True)
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
