"""What holds for every command: help, options, and the answer to a wrong command line."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from docs.generator.commands import every_command
from tests.cli.conftest import Run
from tests.cli.process import toolplug

from toolplug.cli.command_line import LISTING, NAMES

LINES = [name.removeprefix("toolplug ") for name, _ in every_command()]


@pytest.mark.requirement("I2-7-help", "C-10-json", "C-10-config")
@pytest.mark.parametrize("line", LINES)
def test_every_command_explains_itself_with_an_example_and_takes_config_and_json(run: Run, line: str) -> None:
    done = run(*line.split(), "--help")
    assert done.code == 0
    assert {"--config", "-c", "--json"} <= set(re.findall(r"--?[a-z-]+", done.out))
    assert f"toolplug {line.split(maxsplit=1)[0]}" in done.out
    assert re.search(r"Examples?:", done.out)


@pytest.mark.requirement("I2-7-help")
@pytest.mark.parametrize("line", ["", *LINES])
def test_the_help_names_every_value_in_words_and_not_by_its_type_in_python(run: Run, line: str) -> None:
    text = run(*line.split(), "--help").out
    usage = next(row for row in text.splitlines() if "Usage:" in row)

    assert re.findall(r"<[^>|]*>", text) == [], "only choices, such as <text|json>, are between them"
    assert re.search(r"\{|\[\[", usage) is None


@pytest.mark.requirement("I2-7-help")
@pytest.mark.parametrize("line", LINES)
def test_the_text_of_an_option_has_a_third_of_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = run(*line.split(), "--help").out.splitlines()
    help_row = next(row for row in rows if "--help " in row and "Show this" in row)
    assert 80 - help_row.index("Show this") >= 27, "a second name such as --no-x has a column of its own"


@pytest.mark.requirement("I2-7-help")
def test_the_help_lists_every_command(run: Run) -> None:
    done = run("--help")
    assert done.code == 0
    assert all(re.search(rf"\b{name}\b", done.out) for name in NAMES)


@pytest.mark.requirement("C-10-exit-codes")
def test_it_tells_its_version(run: Run) -> None:
    done = run("--version")
    assert (done.code, done.out, done.err) == (0, f"toolplug {version('toolplug')}\n", "")


@pytest.mark.requirement("I2-7-unreadable", "C-10-exit-codes")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["chek"], "Did you mean 'check'"),
        (["call"], "Missing argument"),
        (["serve", "--port", "70000"], "should be at most 65535, not '70000'"),
        (["serve", "--port", "eighty"], "should be a whole number, not 'eighty'"),
        (["tools", "--format", "xml"], "xml"),
        (["check", "--no-such-option"], "--no-such-option"),
        (["new-provider", "No Name"], "lower-case"),
        (["keys", "old"], "old"),
        (["sessions", "end"], "end"),
        (["sessions", "show"], "Missing argument"),
    ],
)
def test_a_wrong_command_line_exits_2_and_says_what_is_right(run: Run, line: list[str], said: str) -> None:
    done = run(*line)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "--help" in done.err
    as_json = run(*line, "--json")
    assert (as_json.code, as_json.codes) == (2, ["wrong_command_line"])


@pytest.mark.requirement("C-10-sessions", "C-10-toolsets", "C-10-json")
@pytest.mark.parametrize("group", sorted(LISTING))
def test_a_group_that_is_told_nothing_lists(run: Run, tmp_path: Path, group: str) -> None:
    (tmp_path / "providers.yaml").write_text("providers: {}\n")
    bare, listed = run(group, "--json"), run(group, "list", "--json")
    assert (bare.code, bare.err, bare.json) == (0, "", listed.json)
    assert run(group, "-c", "providers.yaml") == run(group, "list")
    assert "Commands" in run(group, "--help").out


def test_the_bare_command_shows_the_help_and_exits_2(run: Run) -> None:
    assert run().code == 2


@pytest.mark.process
def test_a_command_loads_no_server() -> None:
    code = "import sys; from toolplug.cli.main import main; main(['call', '--help']); print('uvicorn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=150)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.process
@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_extra_one_line_names_it(tmp_path: Path, package: str) -> None:
    missing(package, tmp_path)
    for line in (["--version"], ["check", "--json"], []):
        done = toolplug(*line, folder=tmp_path, site=tmp_path)
        said = f"toolplug: the command line needs the package '{package}'; pip install 'toolplug[cli]'\n"
        assert (done.code, done.out, done.err) == (1, "", said)


def test_without_aiosqlite_the_line_of_the_store_names_the_extra(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "aiosqlite", None)
    for module in [name for name in sys.modules if name.startswith("toolplug.sqlite.")]:
        monkeypatch.delitem(sys.modules, module)
    said = "store: a sqlite store needs the extra: pip install 'toolplug[sqlite]'; or write store: memory://, which"
    (tmp_path / "providers.yaml").write_text("providers: {}\nstore: sqlite:///./state.db\n")
    for line in (["check"], ["tools"]):
        done = run(*line)
        assert done.code == 1
        assert f"providers.yaml:2:8: {said}" in done.out + done.err
    (tmp_path / "providers.yaml").write_text("providers: {}\n")
    done = run("check")
    assert (done.code, said in done.out + done.err) == (1, True)
    (tmp_path / "providers.yaml").write_text("providers: {}\nstore: memory://\n")
    assert run("tools").code == 0


def missing(package: str, site: Path) -> None:
    """Make the package one that is not installed, for processes that look into `site` first."""
    (site / f"{package}.py").write_text(f"raise ModuleNotFoundError('No module named {package}', name='{package}')\n")


@pytest.mark.process
def test_the_version_needs_no_host() -> None:
    code = "import sys; from toolplug.cli.main import main; main(['--version']); print('toolplug.host' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=150)
    assert done.stdout.splitlines()[-1] == "False"
