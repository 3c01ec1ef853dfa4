"""Files, paths and programs as Windows has them: read, kept and started, by imitation where the tests run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import Run

from toolplug.config.document import expand, parse_document, read_document
from toolplug.foreign.client_files import expand_path
from toolplug.packages.loading import file_of, names_file
from toolplug.parts.mcp.client import child_process
from toolplug.parts.mcp.client_files.import_plan import Variables, server_entry, with_servers
from toolplug.parts.mcp.client_files.reading import ClientServer

pytestmark = pytest.mark.requirement("I32-windows")

Write = Callable[..., Path]
PYTHON = r"C:\Program Files\Python 3\python.exe"
NOTES = r"C:\Users\me\new notes\table.py"
SERVERS = {
    "notes": {"command": PYTHON, "args": [NOTES, "--root", "D:\\", r"\\server\share\x"], "cwd": r"C:\Users\me"},
    "fetch": {"command": "npx.cmd", "args": ["-y", "server-fetch"], "env": {"APPDATA": r"%APPDATA%\x", "T": r"C:\t"}},
    "shell": {"command": "cmd", "args": ["/c", "npx", "-y", "server-x"]},
}


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_an_import_keeps_paths_and_the_line_ends_of_the_configuration(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line_end: str
) -> None:
    roaming = tmp_path / "Roaming"
    (roaming / "Claude").mkdir(parents=True)
    monkeypatch.setenv("APPDATA", str(roaming))
    text = json.dumps({"mcpServers": SERVERS}, indent=2).replace("\n", "\r\n")
    (roaming / "Claude/claude_desktop_config.json").write_bytes(b"\xef\xbb\xbf" + text.encode())
    config = tmp_path / "providers.yaml"
    config.write_bytes(f"# mine{line_end}providers: {{}}{line_end}".encode())
    done = run("discover", "--import", r"%appdata%\Claude\claude_desktop_config.json")
    assert done.code == 0, done.err
    section = read_document(config).value["mcp_servers"]
    assert isinstance(section, dict)
    for name, server in SERVERS.items():
        assert section[name] == {**server, "prefix": name}
    data = config.read_bytes()
    assert data.count(b"\r") == (data.count(b"\n") if line_end == "\r\n" else 0)


TEXTS = st.text(st.sampled_from("\\/:%${}\"'# \tCcDd.pyexéß-=&,[]\r\n"), min_size=1, max_size=24)


@given(command=TEXTS, args=st.lists(TEXTS, max_size=3), line_end=st.sampled_from(["\n", "\r\n"]))
def test_every_path_and_argument_is_the_same_after_an_import(command: str, args: list[str], line_end: str) -> None:
    server = ClientServer(command=command, args=args)
    variables = Variables()
    entry = server_entry(server, "x", variables)
    before = f"providers: {{}}{line_end}".encode()
    after = with_servers(before, parse_document(before, file="x.yaml"), {"x": entry}, {})
    section = expand(parse_document(after, file="x.yaml"), ("mcp_servers", "x"), {})
    # A reference such as ${C} stays one, and is a problem until it is set.
    if not section.problems and not variables.uses:
        value = section.value
        assert isinstance(value, dict)
        assert (value["command"], value.get("args", [])) == (command, args)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (r"%APPDATA%\Claude\x.json", "/roaming/Claude/x.json"),
        ("%appdata%/Claude/x.json", "/roaming/Claude/x.json"),
        (r"%OTHER%\x.json", r"%OTHER%\x.json"),
        ("%APPDATA", "%APPDATA"),
        ("100%.json", "100%.json"),
        ("~/x.json", "/home/me/x.json"),
        ("~\\x.json", "/home/me/x.json"),
        ("~me/x.json", "~me/x.json"),
    ],
)
def test_a_path_is_expanded_where_the_shell_does_not(text: str, path: str) -> None:
    assert expand_path(text, {"AppData": "/roaming"}, home=Path("/home/me")) == Path(path)


def test_a_program_is_started_by_the_name_that_it_has_on_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None]] = []

    def which(name: str, *, path: str | None) -> str | None:
        asked.append((name, path))
        return {"npx": r"C:\node\npx.cmd"}.get(name)

    assert child_process.find_program("npx", None, tmp_path) == "npx"
    monkeypatch.setattr(child_process, "_ENDINGS_MATTER", True)
    monkeypatch.setattr(child_process, "which", which)
    assert child_process.find_program("npx", r"C:\node", tmp_path) == r"C:\node\npx.cmd"
    assert child_process.find_program("none", None, tmp_path) == "none"
    assert child_process.find_program("./own", None, tmp_path) == "./own"
    assert asked == [("npx", r"C:\node"), ("none", None), (str(tmp_path / "./own"), None)]


@pytest.mark.parametrize(
    ("named", "file"),
    [
        (r"C:\srv\notes.py:Notes", r"C:\srv\notes.py"),
        (r"C:\srv\notes.py", r"C:\srv\notes.py"),
        ("./notes.py:Notes", "./notes.py"),
        ("notes", "notes"),
    ],
)
def test_the_colon_of_a_drive_is_not_that_before_a_class(named: str, file: str) -> None:
    assert (file_of(named), names_file(named)) == (file, file.endswith(".py"))


def test_a_package_of_a_file_keeps_the_line_ends_of_its_code(run: Run, tmp_path: Path) -> None:
    lines = (
        "from toolplug import tool",
        "",
        "",
        "@tool",
        "async def note() -> str:",
        '    """Note."""',
        '    return ""',
    )
    code = "".join(f"{line}\r\n" for line in lines).encode()
    (tmp_path / "crlf_notes.py").write_bytes(code)
    done = run("new-provider", "--from", "crlf_notes.py")
    assert done.code == 0, done.err
    assert (tmp_path / "toolplug-crlf-notes/src/toolplug_crlf_notes/provider.py").read_bytes() == code
