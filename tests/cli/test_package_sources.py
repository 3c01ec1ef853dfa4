"""`toolplug new-provider --from`: packages of documents, servers, modules and plugins, which run."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.environments import make_environment
from tests.kept_port import kept_port
from tests.mcp.conftest import forked
from tests.mcp.forking import Forked
from tests.providers.fake_distribution import install
from tests.requirement_table import ROOT

from toolplug import FunctionRegistry
from toolplug.errors import ConfigError

__all__ = ["forked"]

pytestmark = pytest.mark.requirement("I39-new-provider-from")

PETS = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "https://pets.example/v1"}],
    "paths": {
        "/pets": {"get": {"operationId": "list_pets", "summary": "List the pets.", "responses": {"200": {}}}},
        "/pets/{id}": {
            "get": {
                "operationId": "get_pet",
                "summary": "Return a pet.",
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
                "responses": {"200": {}},
            }
        },
    },
}
SHAPES = '''\
def area(width: float, height: float) -> float:
    """Return the area of a rectangle."""
    return width * height


def shout(*words: str) -> str:
    """Not a tool: it has no names for its arguments."""
    return " ".join(words).upper()


def _own(text: str) -> str:
    return text
'''
SERVER = '''
import os
import sys
from mcp.server.mcpserver import MCPServer

mcp = MCPServer("clock", log_level="ERROR")

@mcp.tool()
def now(zone: str = "UTC") -> str:
    """Tell the time."""
    return f"noon in {zone}, {os.environ.get('CLOCK_WORD', 'no word')}"

@mcp.tool()
def stop() -> None:
    """End the server."""
    os._exit(3)

mcp.run(*sys.argv[1:2], **{"port": int(port) for port in sys.argv[2:]})
'''
LLM_PLUGIN = '''
import llm

class Notes(llm.Toolbox):
    def __init__(self, path: str):
        self.path = path

    def read_note(self, name: str) -> str:
        """Read a note."""
        return f"{name} of {self.path}"

@llm.hookimpl
def register_tools(register):
    register(Notes)
'''


@pytest.fixture
def pass_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], type]:
    """Run the tests of a package in this process, and return the class of its provider."""

    def passed(name: str) -> type:
        folder = tmp_path / f"toolplug-{name}"
        monkeypatch.syspath_prepend(folder / "src")
        monkeypatch.syspath_prepend(folder / "tests")
        [test] = [value for key, value in vars(import_module(f"test_{name}")).items() if key.startswith("test_")]
        test()
        ruff = Path(sys.executable).with_name("ruff")
        for command in (["check", "--select=E,F,I,UP,B"], ["format", "--check"]):
            options = ["--isolated", "--line-length=120", "."]
            done = subprocess.run([ruff, *command, *options], cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout
        kind = getattr(import_module(f"toolplug_{name}.provider"), name.capitalize())
        assert isinstance(kind, type)
        return kind

    return passed


def output_of(kind: type, tool: str, **arguments: object) -> str:
    async def called() -> str:
        async with FunctionRegistry({"it": kind}) as registry:
            return (await registry.call(tool, **arguments)).output

    return asyncio.run(called())


def run_apart(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own: what it starts writes to its stderr, which has to be a file."""
    command = [sys.executable, "-m", "toolplug.cli.main", "new-provider", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.process
def test_a_command_that_is_not_there_is_named_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_apart("x", "--from", "no-such-program --serve")
    assert done.returncode == 1
    assert "No such file or directory: 'no-such-program'; start it, or correct its entry" in done.stderr
    assert not list(tmp_path.iterdir())


def package_text(tmp_path: Path, name: str, file: str) -> str:
    return (tmp_path / f"toolplug-{name}" / file).read_text("utf-8")


@pytest.mark.process
def test_a_document_becomes_a_package_that_has_it_and_names_its_server(
    run: Run, tmp_path: Path, pass_tests: Callable[[str], type]
) -> None:
    (tmp_path / "pets.json").write_text(json.dumps(PETS))
    done = run("new-provider", "--from", "pets.json", "--json")
    assert (done.code, done.json.get("warnings")) == (0, None), done.out
    kind = pass_tests("pets")
    assert json.loads(package_text(tmp_path, "pets", "src/toolplug_pets/openapi.json")) == PETS
    assert 'default="https://pets.example/v1"' in package_text(tmp_path, "pets", "src/toolplug_pets/provider.py")
    assert '"toolplug-openapi>=' in package_text(tmp_path, "pets", "pyproject.toml")
    assert 'network = ["pets.example"]' in package_text(tmp_path, "pets", "src/toolplug_pets/toolplug_permissions.toml")
    assert '["list_pets", "get_pet"]' in package_text(tmp_path, "pets", "tests/test_pets.py")
    assert "arguments" in output_of(kind, "get_pet", id="no number")


@pytest.mark.process
def test_a_document_that_names_no_server_needs_its_url_as_a_setting(
    run: Run, tmp_path: Path, pass_tests: Callable[[str], type]
) -> None:
    (tmp_path / "zoo.yaml").write_text(json.dumps({**PETS, "servers": [{"url": "/v1"}]}))
    done = run("new-provider", "--from", "openapi:zoo.yaml", "--json")
    assert [each["message"] for each in done.json["warnings"]] == [
        "its document names no server, and its entry has to: base_url is a required setting"
    ]
    pass_tests("zoo")
    assert "base_url: WebUrl = Field(description" in package_text(tmp_path, "zoo", "src/toolplug_zoo/provider.py")
    assert run("new-provider", "park", "--from", "zoo.yaml", "--set", "base_url=https://zoo.example/v1").code == 0
    assert 'default="https://zoo.example/v1"' in package_text(tmp_path, "park", "src/toolplug_park/provider.py")


@pytest.mark.parametrize(
    ("module", "tool", "arguments", "output"),
    [
        ("textwrap", "dedent", {"text": "  otters"}, "otters"),
        ("shapes_of_nobody", "area", {"width": 2, "height": 3}, "6"),
    ],
)
@pytest.mark.process
def test_functions_of_a_module_become_tools_and_those_that_cannot_are_named(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pass_tests: Callable[[str], type],
    module: str,
    tool: str,
    arguments: dict[str, object],
    output: str,
) -> None:
    monkeypatch.syspath_prepend(tmp_path / "lib")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "shapes_of_nobody.py").write_text(SHAPES)
    name = "shapes" if module != "textwrap" else "textwrap"
    done = run("new-provider", name, "--from", module, "--json")
    assert done.code == 0, done.err
    kind = pass_tests(name)
    assert output in output_of(kind, tool, **arguments)
    if name == "shapes":
        unknown, left_out = [each["message"] for each in done.json["warnings"]]
        assert "'shapes_of_nobody', which is of no installed package" in unknown
        assert left_out.startswith("left out shout: ")


@pytest.mark.process
def test_a_file_without_tools_becomes_a_package_that_calls_its_functions(
    run: Run, tmp_path: Path, pass_tests: Callable[[str], type]
) -> None:
    (tmp_path / "rooms.py").write_text(SHAPES)
    assert run("new-provider", "--from", "rooms.py").code == 0
    assert package_text(tmp_path, "rooms", "src/toolplug_rooms/functions.py") == SHAPES
    assert output_of(pass_tests("rooms"), "area", width=2, height=3) == "6"


@pytest.mark.process
def test_a_command_becomes_a_package_that_starts_the_server_and_starts_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pass_tests: Callable[[str], type], forked: Forked
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.py").write_text(SERVER)
    command = shlex.join(forked(tmp_path / "server.py"))
    done = run_apart("clock", "--from", command, "--set", 'environment={"CLOCK_WORD": "tick"}', "--json")
    assert (done.returncode, "warnings" in done.stdout) == (0, False), done.stdout
    kind = pass_tests("clock")
    assert "subprocess = true" in package_text(tmp_path, "clock", "src/toolplug_clock/toolplug_permissions.toml")

    async def calls() -> list[str]:
        async with FunctionRegistry({"it": kind}) as registry:
            names = ("now", "stop", "now")
            return [(await registry.call(name)).output for name in names]

    first, gone, again = asyncio.run(calls())
    assert (first, again) == ("noon in UTC, no word", "noon in UTC, no word")
    assert "the server of 'it' went away: MCPError: Connection closed; the next call connects to it again" in gone


@pytest.fixture
def served_clock(tmp_path: Path, forked: Forked) -> Generator[str]:
    """The URL of an MCP server that runs elsewhere."""
    (tmp_path / "http_server.py").write_text(SERVER.replace("ERROR", "INFO"))
    with kept_port() as port:
        command = forked(tmp_path / "http_server.py", "streamable-http", str(port))
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            assert any("running on" in line for line in server.stderr)
            yield f"http://127.0.0.1:{port}/mcp"
            server.terminate()


@pytest.mark.process
def test_a_url_becomes_a_package_that_calls_the_server_there(
    run: Run, tmp_path: Path, pass_tests: Callable[[str], type], served_clock: str
) -> None:
    done = run("new-provider", "distant", "--from", served_clock, "--json")
    assert (done.code, done.json.get("warnings")) == (0, None), done.out
    assert 'network = ["127.0.0.1"]' in package_text(
        tmp_path, "distant", "src/toolplug_distant/toolplug_permissions.toml"
    )
    kind = pass_tests("distant")
    assert output_of(kind, "now", zone="CET") == "noon in CET, no word"
    assert "the server of 'it' went away: " in output_of(kind, "stop")
    with pytest.raises(ConfigError, match=r"the server of 'it' does not answer: .*; start it, or correct its entry"):
        output_of(kind, "now")


@pytest.fixture
def llm_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two distributions: a plugin of llm, and one that is none."""
    site = tmp_path / "site"
    install(site, "llm-tools-notes", "[llm]\nnotes = notes_of_nobody\n", modules={"notes_of_nobody": LLM_PLUGIN})
    install(site, "llm-tools-none", "")
    monkeypatch.syspath_prepend(site)


@pytest.mark.process
@pytest.mark.usefixtures("llm_plugin")
def test_a_plugin_of_llm_becomes_a_package_with_the_settings_that_it_needs(
    run: Run, tmp_path: Path, pass_tests: Callable[[str], type]
) -> None:
    refused = run("new-provider", "--from", "llm-tools-notes")
    assert (refused.code, "the toolbox Notes of llm-tools-notes 1.0 needs path" in refused.err) == (1, True)
    assert "--set" in refused.err
    done = run("new-provider", "--from", "llm-tools-notes", "--set", 'arguments={"path": "a.txt"}', "--json")
    assert (done.code, done.json["folder"], done.json.get("warnings")) == (0, "toolplug-notes", None), done.err
    pass_tests("notes")
    assert '"llm-tools-notes>=1.0"' in package_text(tmp_path, "notes", "pyproject.toml")
    assert 'arguments: {"path": "a.txt"}' in package_text(tmp_path, "notes", "README.md")


BAD: dict[tuple[str, ...], str] = {
    ("x", "--from", "module_of_nobody"): "there is no module 'module_of_nobody'; correct the name, or install",
    ("x", "--from", "module:no module"): "'no module' is no module",
    ("x", "--from", "xml.etree"): "the module xml.etree has no function that can be a tool",
    ("--from", "plain.json"): "plain.json has no key 'openapi'; OpenAPI 3.0 and 3.1 are read",
    ("--from", "away.yaml"): "away.yaml cannot be read: No such file or directory",
    ("--from", "openapi:ftp://pets.example/a.json"): "is no http or https URL",
    ("--from", "http://127.0.0.1:9/openapi.json"): "http://127.0.0.1:9/openapi.json cannot be fetched: ",
    ("x", "--from", "http://127.0.0.1:9/mcp"): "the server of 'x' does not answer: ",
    ("x", "--from", "mcp:'unclosed"): "is no command: No closing quotation",
    ("--from", "http://127.0.0.1:9/mcp"): "a server says no name for its package; give one as NAME",
    ("--from", "llm-tools-away"): "no package 'llm-tools-away' is installed (pip install llm-tools-away)",
    ("--from", "llm-tools-none"): "llm-tools-none 1.0 is no plugin of llm: it has no entry point 'llm'",
    ("x", "--from", "a/b"): "say which it is: file:a/b, openapi:a/b, mcp:a/b, module:a/b, llm:a/b",
    ("x", "--from", "llm:"): "names nothing; write it after llm:",
    ("x", "--set", "a=1"): "--set is for --from",
    ("x", "--from", "textwrap", "--set", "a=1"): "--set is for settings, and the functions of a module have none",
    ("--from", "pets.json", "--set", "nonsense=1"): "its settings are wrong: ",
}


@pytest.mark.process
@pytest.mark.usefixtures("llm_plugin")
@pytest.mark.parametrize("words", BAD, ids="-".join)
def test_what_can_be_no_package_is_named_and_nothing_is_written(
    run: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "plain.json").write_text('{"swagger": "2.0"}')
    (tmp_path / "pets.json").write_text(json.dumps(PETS))
    done = run("new-provider", *words)
    said = " ".join(done.err.replace("│", " ").split())
    assert (BAD[words] in said, done.code in (1, 2), "Traceback" in said) == (True, True, False), said
    assert not list(tmp_path.glob("toolplug-*"))


@pytest.mark.long(30)
@pytest.mark.judge
@pytest.mark.timeout(600)
def test_packages_of_every_kind_install_into_a_fresh_environment_pass_and_serve(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "pets.json").write_text(json.dumps(PETS))
    (tmp_path / "rooms.py").write_text(SHAPES)
    assert run("new-provider", "--from", "pets.json").code == 0
    assert run("new-provider", "--from", "rooms.py").code == 0
    assert run_apart("clock", "--from", "python -m mcp_server_time").returncode == 0
    ours = [ROOT / "plugins" / f"toolplug-{each}" for each in ("console", "openapi", "fastmcp")]
    packages = [tmp_path / f"toolplug-{each}" for each in ("pets", "rooms", "clock")]
    scripts = make_environment(
        tmp_path / "venv", "--constraint", ROOT / "constraints.txt", f"{ROOT}[server]", *ours, *packages, "pytest"
    )
    environment = {"PATH": f"{scripts}:/usr/bin:/bin"}
    finish = partial(subprocess.run, env=environment, capture_output=True, text=True, check=False, timeout=120)
    subprocess.run(
        [sys.executable, "-m", "uv", "-q", "pip", "install", "--python", scripts / "python", "mcp-server-time"],
        check=True,
    )
    for package in packages:
        done = finish([scripts / "python", "-m", "pytest", "-q"], cwd=package)
        assert done.returncode == 0, done.stdout + done.stderr
    entries = "".join(f"  {each}: {{enabled: true}}\n" for each in ("pets", "rooms", "clock"))
    (tmp_path / "providers.yaml").write_text(f"store: memory://\nproviders:\n{entries}")
    listed = finish([scripts / "toolplug", "tools"], cwd=tmp_path).stdout
    assert all(name in listed for name in ("list_pets", "get_pet", "area", "get_current_time", "convert_time"))
    answer = finish([scripts / "toolplug", "call", "get_current_time", "timezone=UTC"], cwd=tmp_path)
    assert '"timezone": "UTC"' in answer.stdout, answer.stderr
