"""A provider with an interpreter of its own: its type, settings and libraries are those that are installed there."""

from __future__ import annotations

import io
import json
import tarfile
from importlib.metadata import version
from pathlib import Path

import httpx2
import pytest
from tests.apart.own_environment import OTHER, build_stranger_wheels, install_stranger, linked_environment
from tests.cli.conftest import Run, run
from tests.cli.process import serving, toolplug

from toolplug import Principal, open_host
from toolplug.errors import ConfigError
from toolplug.packages.entry_points import Installed, find_installed

__all__ = ["run"]

OPERATOR = Principal("ada", scopes=frozenset({"tools:call"}))
HOST_FILE = """
import httpx2

from toolplug import tool


@tool
def own() -> str:
    "Say which library the host has."
    return httpx2.__version__
"""
CONFIGURATION = """
store: memory://
providers:
  own: {enabled: true, type: ./own.py}
  stranger:
    enabled: true
    run: {process: true, python: ./env/bin/python, package: PACKAGE}
"""


def write(folder: Path, package: str = "toolplug-stranger") -> Path:
    file = folder / "providers.yaml"
    file.write_text(CONFIGURATION.replace("PACKAGE", json.dumps(package)))
    (folder / "own.py").write_text(HOST_FILE)
    return file


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The folder of packages of an environment with the stranger's package, which a configuration names."""
    site = linked_environment(tmp_path / "env")
    install_stranger(site)
    write(tmp_path)
    return site


async def _refusal(folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        async with open_host(folder / "providers.yaml"):
            pass
    return str(caught.value)


@pytest.mark.process
@pytest.mark.anyio
@pytest.mark.requirement("I36-environment")
async def test_it_imports_another_version_of_a_library_than_the_host(site: Path, tmp_path: Path) -> None:
    async with open_host(tmp_path / "providers.yaml") as host:
        tools = host.executor_for(OPERATOR)
        theirs, ours = await tools.call("library"), await tools.call("own")
        record = next(each for each in host.records() if each.key == "stranger")
    assert (theirs.output, ours.output) == (f"httpx2 {OTHER}", httpx2.__version__)
    assert (record.state, record.distribution, record.version) == ("active", "toolplug-stranger", "1.0")


@pytest.mark.process
@pytest.mark.anyio
async def test_its_settings_are_checked_there_and_a_problem_has_the_place_in_the_file(
    site: Path, tmp_path: Path
) -> None:
    file = write(tmp_path)
    file.write_text(file.read_text() + "    name: [1]\n")
    said = await _refusal(tmp_path)
    assert f"{file}:8:11: providers.stranger.name: " in said


@pytest.mark.process
def test_the_schema_has_the_settings_of_a_type_that_only_its_own_environment_has(
    run: Run, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each installed package would be asked in a process of its own, and is by other tests.
    hello = {"hello": find_installed().types["hello"]}
    monkeypatch.setattr("toolplug.cli.schema.find_installed", lambda: Installed(types=hello))
    entry = run("schema", "--json").json["$defs"]["provider.stranger"]
    assert list(entry["properties"]["settings"]["properties"]) == ["name"]


@pytest.mark.process
@pytest.mark.anyio
async def test_what_is_missing_is_said_with_the_command_that_brings_it(tmp_path: Path) -> None:
    write(tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    assert f"there is no interpreter {python}: No such file or directory (toolplug env stranger" in await _refusal(
        tmp_path
    )
    site = linked_environment(tmp_path / "env")
    assert f"{python} has no provider type 'stranger' (" in await _refusal(tmp_path)
    next(site.glob("toolplug-*.dist-info")).rename(site / "nothing")
    assert f"{python} has no toolplug, which runs the provider there" in await _refusal(tmp_path)


@pytest.mark.process
@pytest.mark.anyio
@pytest.mark.requirement("I36-environment")
async def test_a_process_of_another_protocol_is_refused_in_words(site: Path, tmp_path: Path) -> None:
    number = site / "sitecustomize.py"
    number.write_text("import toolplug.apart.frames\ntoolplug.apart.frames.PROTOCOL = 7\n")
    said = await _refusal(tmp_path)
    assert "provider 'stranger'" in said
    assert "its process speaks protocol 7, and this host 1 and 0 (update toolplug of the host)" in said
    # The one before, whose messages have no number.
    number.write_text(
        "import toolplug.apart.worker as worker\n"
        "describe = worker._describe\n"
        "worker._describe = lambda *given: {k: v for k, v in describe(*given).items() if k != 'protocol'}\n"
    )
    async with open_host(tmp_path / "providers.yaml") as host:
        assert (await host.executor_for(OPERATOR).call("library")).output == f"httpx2 {OTHER}"


@pytest.mark.process
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("{python: ./env/bin/python}", "python is of a provider in a process of its own; add process: true"),
        ("{process: true, package: toolplug-x}", "package is installed for python, which names no interpreter"),
    ],
)
def test_an_environment_that_nobody_uses_is_a_problem(run: Run, tmp_path: Path, settings: str, words: str) -> None:
    (tmp_path / "providers.yaml").write_text(f"providers:\n  hello: {{enabled: true, run: {settings}}}\n")
    done = run("check")
    assert (done.code, words in done.out) == (1, True), done.out


@pytest.mark.process
def test_an_environment_is_made_only_where_an_entry_names_one(run: Run, tmp_path: Path) -> None:
    (tmp_path / "providers.yaml").write_text("providers:\n  hello: {enabled: true, run: {process: true}}\n")
    assert "providers.hello: names no environment to make (write run:" in run("env", "hello").err
    assert "'helo'" in run("env", "helo").err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("keep me")
    entry = "hello: {run: {process: true, python: ./mine/bin/python, package: x}}"
    (tmp_path / "providers.yaml").write_text(f"providers:\n  {entry}\n")
    done = run("env", "hello")
    assert (done.code, "is there, is not empty, and has no python" in done.err) == (1, True), done.err
    assert [each.name for each in (tmp_path / "mine").iterdir()] == ["letter.txt"]


METADATA = "Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n"
BACKEND = """
import pathlib
pathlib.Path(MARK).write_text("built as the host")
"""


@pytest.mark.process
def test_nothing_is_built_of_a_folder_of_wheels(run: Run, tmp_path: Path) -> None:
    mark, source = tmp_path / "mark", tmp_path / "wheels" / "stranger-1.0.tar.gz"
    source.parent.mkdir()
    build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    files = {"pyproject.toml": build, "backend.py": BACKEND.replace("MARK", repr(str(mark))), "PKG-INFO": METADATA}
    with tarfile.open(source, "w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"stranger-1.0/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    entry = "hello: {run: {process: true, python: ./env/bin/python, package: stranger}}"
    (tmp_path / "providers.yaml").write_text(f"providers:\n  {entry}\n")
    done = run("env", "hello", "--wheels", str(source.parent))
    assert (done.code, mark.exists(), "stranger is not installed into" in done.err) == (1, False, True), done.err


@pytest.mark.judge
@pytest.mark.requirement("I36-environment")
def test_a_stranger_s_wheel_that_needs_another_library_is_served_from_an_environment_that_env_made(
    tmp_path: Path,
) -> None:
    wheels = tmp_path / "wheels"
    build_stranger_wheels(wheels)
    write(tmp_path, f"toolplug-stranger @ {(wheels / 'toolplug_stranger-1.0-py3-none-any.whl').as_uri()}")
    found = {"UV_FIND_LINKS": str(wheels), "PIP_FIND_LINKS": str(wheels)}
    made = toolplug("env", "stranger", folder=tmp_path, environ=found, patience_s=600)
    assert made.code == 0, made.err
    assert "is made: toolplug-stranger 1.0 has the provider type 'stranger'" in made.out
    with serving(folder=tmp_path) as host:
        assert host.call("library").json()["output"] == f"httpx2 {OTHER}"
        assert host.call("own").json()["output"] == version("httpx2")


LEAVE = """
import contextlib, pathlib
with contextlib.suppress(OSError):
    pathlib.Path(MARK).write_text("ran as the host")
"""


@pytest.mark.process
@pytest.mark.usefixtures("confinement")
def test_no_line_of_a_confined_environment_runs_outside(run: Run, site: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    program = LEAVE.replace("MARK", repr(str(mark)))
    (site / "sitecustomize.py").write_text(program)
    (site / "start.pth").write_text(f"import sys; exec({program!r})\nimport first\n")
    (site / "first.py").write_text(FIRST)
    file = write(tmp_path)
    # What the links of this environment lead to is granted, as an operator does for a working copy.
    granted = [line for line in (site / "linked.pth").read_text().split("\n") if line]
    file.write_text(file.read_text().replace("python:", f"confine: required, files: {json.dumps(granted)}, python:"))
    (site / "toolplug_stranger.py").write_text(READS)
    (tmp_path / "beside.py").write_text("secret = 1\n")
    (site / "beside.pth").write_text(f"{tmp_path}\n")
    for words in (["check"], ["lock"]):
        assert run(*words).code == 0
    assert run("call", "beside", f"path={tmp_path}/beside.py").out.strip() == "nothing"
    before, _, now = run("call", "limits").out.strip().partition(" | ")
    assert (before, mark.exists()) == (now, False)


FIRST = """
import builtins, resource

def limits():
    names = ("NOFILE", "FSIZE", "CORE", "DATA", "NPROC", "SIGPENDING")
    return str([resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in names])

builtins.before = limits()
"""
READS = '''
import builtins
from pathlib import Path

from first import limits

from toolplug import FunctionProvider, tool


class Stranger(FunctionProvider):
    """Reads what it finds."""

    @tool
    def beside(self, path: str) -> str:
        "Read a file."
        return Path(path).read_text() if Path(path).exists() else "nothing"

    @tool
    def limits(self) -> str:
        "Say what was there before the first line of a package, and what is now."
        return f"{builtins.before} | {limits()}"
'''


@pytest.mark.process
@pytest.mark.parametrize("replaced", ["bin/python", "bin/python3.12._pth", "pyvenv.cfg", "lib/python3.11/encodings.py"])
def test_an_interpreter_that_a_package_has_brought_is_not_run(
    run: Run, site: Path, tmp_path: Path, replaced: str
) -> None:
    env, mark = tmp_path / "env", tmp_path / "mark"
    (env / "bin" / "python").unlink()
    (env / "bin" / "python").write_text(f"#!/bin/sh\ntouch {mark}\n")
    (env / "bin" / "python").chmod(0o755)
    record = next(site.glob("toolplug_stranger-*.dist-info")) / "RECORD"
    record.write_text(f"{record.read_text()}../../../{replaced},,\n../../../bin/python-tool,,\n")
    said = run("check").out
    assert f"a package has written {env / replaced}, which decides what {env / 'bin' / 'python'} runs" in said
    assert (said.count("a package has written"), mark.exists()) == (1, False)
