"""`toolplug init`, `keys new`, `schema` and `new-provider`: what they write works."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent

import jsonschema_rs
import pytest
import yaml
from anyio.from_thread import start_blocking_portal
from packaging.version import Version
from tests.cli.conftest import Run
from tests.environments import make_environment
from tests.providers.fake_distribution import install, provides
from tests.requirement_table import ROOT

from toolplug import open_host
from toolplug.cli import init as init_command
from toolplug.errors import HostKeyError
from toolplug.host.file.schema import SettingsSchema, settings_schemas
from toolplug.host.file.settings import RESERVED_KEYS
from toolplug.host.file.settings_child import settings_of
from toolplug.packages.entry_points import find_installed

Write = Callable[..., Path]

HEAVY = """
    from pathlib import Path
    from pydantic import BaseModel, Field, SecretStr
    from toolplug import FunctionProvider

    Path(__file__).with_name("imported").touch()
    print("noise on stdout")

    class Heavy(FunctionProvider):
        class Config(BaseModel):
            size: int = Field(ge=1)
            token: SecretStr

    class Free(FunctionProvider):
        class Config(BaseModel):
            model_config = {"extra": "allow"}

    class Bare(FunctionProvider):
        pass
"""


@pytest.mark.requirement("C-10-init", "C-10-exit-codes")
def test_init_writes_a_configuration_that_runs_and_overwrites_nothing(run: Run, tmp_path: Path) -> None:
    assert run("init").code == 0
    assert run("call", "count_words", "text=one two").out == "2\n"
    text = (tmp_path / "providers.yaml").read_text()
    assert "hello:\n    enabled: false" in text
    told = text.partition("to the provider itself: ")[2].partition(".\n")[0]
    assert set(told.split(", ")) == RESERVED_KEYS
    entries = yaml.safe_load(text)["providers"]
    # `serve` has the console where there is no entry, and `store` has the URL of a store.
    assert {"journal", "otel"} <= set(entries)
    assert {"console", "redis", "rediss", "postgres", "postgresql"}.isdisjoint(entries)
    assert run("check").code == 0
    assert run("doctor", "--json").json["warnings"] == []
    (tmp_path / "providers.yaml").write_text(text.replace("hello:\n    enabled: false", "hello:\n    enabled: true"))
    assert run("call", "hello").out == "Hello, world!\n"
    again = run("init", "--json")
    assert (again.code, again.codes) == (1, ["exists"])
    assert run("init", "-c", "other.yaml", "--json").json == {"file": "other.yaml", "code": None}
    assert "my_tools" not in (tmp_path / "other.yaml").read_text()
    assert (tmp_path / "my_tools.py").read_text().count("count_words") == 1


@pytest.mark.requirement("C-10-init")
def test_init_without_the_extra_of_sqlite_writes_what_runs_there(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init_command, "find_spec", lambda name: None)
    assert run("init").code == 0
    assert yaml.safe_load((tmp_path / "providers.yaml").read_text())["store"] == "memory://"
    assert run("call", "count_words", "text=one two").out == "2\n"


@pytest.mark.requirement("C-10-keys-new")
def test_a_new_key_is_shown_once_with_the_line_that_lets_it_in(run: Run, write: Write) -> None:
    first, second = run("keys", "new", "--json").json, run("keys", "new", "--json").json
    assert first["key"] != second["key"]
    assert len(first["key"].removeprefix("tp_")) * 6 >= 256
    assert hashlib.sha256(first["key"].encode()).hexdigest() == first["sha256"]
    plain = run("keys", "new").out
    key = plain.splitlines()[0]
    pasted = plain[plain.index("auth:") :]
    assert hashlib.sha256(key.encode()).hexdigest() in pasted
    write(pasted)
    assert run("check").code == 0


ASKED_APART = ("hello", "heavy", "free", "bare", "gone")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with further packages."""
    folder = tmp_path_factory.mktemp("site")
    types = provides(heavy="heavy_mod:Heavy", free="heavy_mod:Free", bare="heavy_mod:Bare", gone="no_such:X")
    install(folder, "toolplug-heavy", types, modules={"heavy_mod": dedent(HEAVY)})
    return folder


@pytest.fixture(scope="module")
def settings(site: Path) -> dict[str, SettingsSchema]:
    """The settings of every type: those of the further packages from child processes, of the others from this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(site))
        apart = settings_schemas(ASKED_APART)
    here = {
        name: SettingsSchema.model_validate(settings_of(name)) for name in find_installed().types if name not in apart
    }
    assert {name: answer.error for name, answer in here.items() if answer.error} == {}
    return here | apart


@pytest.fixture
def further(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))


@pytest.fixture
def ask_nobody(settings: dict[str, SettingsSchema], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `toolplug schema` find the answers of the packages without asking them again."""

    def answered(
        types: Iterable[str], asked: Callable[[], object], *, pythons: Mapping[str, str]
    ) -> dict[str, SettingsSchema]:
        assert not pythons
        return {name: settings[name] for name in types}

    monkeypatch.setattr("toolplug.cli.schema.settings_schemas", answered)


@pytest.mark.process
@pytest.mark.requirement("C-10-schema", "C-10-schema-child")
@pytest.mark.usefixtures("further", "ask_nobody")
def test_the_schema_takes_right_files_and_refuses_wrong_ones(run: Run) -> None:
    done = run("schema", "--json")
    assert (done.code, "gone: its settings are not known" in done.err) == (0, True)
    taken = done.json
    validator = jsonschema_rs.validator_for(taken)
    right = [
        "{}",
        "providers:",
        "providers: {hello: {enabled: true, greeting: Hi}}",
        "providers: {hello: {settings: {greeting: Hi}}, second: {type: hello, greeting: Hi}}",
        "providers: {hello: {enabled: '${ON:-true}', limits: {timeout: 20s, rate: 60/minute, queue: '${N}'}}}",
        "providers: {hello: {tools: {hello: deny, other: {policy: allow, limits: {timeout: 5}, tenants: [a]}}}}",
        "providers: {heavy: {enabled: true, size: 3, token: x}, hello: {type: heavy, size: 1, token_file: y}}",
        "providers: {heavy: {enabled: false}}",
        "providers: {free: {enabled: true, anything: [1]}, gone: {enabled: true, anything: 1}}",
        "auth: {api_keys: [{key: '${KEY}', subject: a}, {key_file: k, subject: b}, {sha256: '${S}', subject: c}]}",
        "{store: 'memory://', metrics: {namespace: n}, http: {max_body: 1MiB}}",
        (ROOT / "providers.yaml").read_text(),
    ]
    wrong = [
        "nosuch: 1",
        "providers: {hello: {enabld: true}}",
        "providers: {hello: {greeting: ''}}",
        "providers: {hello: {enabled: 1}}",
        "providers: {nosuch: {enabled: true}}",
        "providers: {Hello: {type: hello}}",
        "providers: {second: {type: nosuch}}",
        "providers: {heavy: {enabled: true, size: 0, token: x}}",
        "providers: {heavy: {enabled: true, size: 1}}",
        "providers: {bare: {enabled: true, anything: 1}}",
        "providers: {hello: {limits: {timeout: soon}}}",
        "auth:",
    ]
    assert [text for text in right if not validator.is_valid(yaml.safe_load(text))] == []
    assert [text for text in wrong if validator.is_valid(yaml.safe_load(text))] == []
    assert "not known" in taken["$defs"]["provider.gone"]["description"]


@pytest.mark.process
@pytest.mark.requirement("C-10-schema-alone")
@pytest.mark.usefixtures("further")
def test_no_other_command_imports_what_the_configuration_does_not_name(run: Run, write: Write, site: Path) -> None:
    imported = site / "imported"
    imported.unlink(missing_ok=True)
    write("providers: {heavy: {enabled: false}}")
    lines = ["providers", "doctor", "check", "tools", "call x", "explain x", "diff providers.yaml", "keys new"]
    for line in lines:
        run(*line.split())
        assert not imported.exists(), line
    assert run("check").out.startswith("providers.yaml is valid: 0 providers enabled, 1 disabled")
    assert settings_schemas(["heavy"])["heavy"].error == ""
    assert imported.exists()


@pytest.mark.process
@pytest.mark.usefixtures("ask_nobody")
@pytest.mark.requirement("C-10-schema-child")
def test_the_schema_is_written_beside_the_configuration(run: Run, write: Write, tmp_path: Path) -> None:
    write("providers: {hello: {}}")
    assert run("schema").code == 0
    written = json.loads((tmp_path / "providers.schema.json").read_text())
    assert "provider.hello" in written["$defs"]
    run("schema", "-o", "other.json")
    assert json.loads((tmp_path / "other.json").read_text()) == written
    assert run("schema", "-o", "-").json == written


@pytest.mark.process
@pytest.mark.requirement("C-10-new-provider")
def test_a_new_package_passes_its_own_tests_at_once(run: Run, tmp_path: Path) -> None:
    done = run("new-provider", "unit-prices", "--json")
    assert (done.code, done.json["folder"]) == (0, "toolplug-unit-prices")
    folder = tmp_path / "toolplug-unit-prices"
    assert {str(file.relative_to(tmp_path)) for file in folder.rglob("*") if file.is_file()} == set(done.json["files"])
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env={"PYTHONPATH": str(folder / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert tests.returncode == 0, tests.stdout
    assert "4 passed" in tests.stdout
    again = run("new-provider", "unit_prices", "--json")
    assert (again.code, again.codes) == (1, ["exists"])


PARTS = ("routes", "metrics", "storage", "stub", "prompts")


@pytest.mark.process
@pytest.mark.requirement("I15-4-new-provider-with")
@pytest.mark.parametrize("parts", [*[(part,) for part in PARTS], PARTS], ids="-".join)
def test_a_package_has_the_parts_that_are_asked_for_and_passes_its_tests(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: tuple[str, ...]
) -> None:
    name = f"with_{parts[0]}" if len(parts) == 1 else "with_all"
    done = run("new-provider", name, *(word for part in parts for word in ("--with", part)), "--json")
    folder = tmp_path / done.json["folder"]
    monkeypatch.syspath_prepend(folder / "src")
    monkeypatch.syspath_prepend(folder / "tests")
    tests = [value for key, value in vars(import_module(f"test_{name}")).items() if key.startswith("test_")]
    for test in tests:
        test()
    assert len(tests) == 4 + sum(part in parts for part in ("metrics", "storage", "stub"))
    code = (folder / "src" / f"toolplug_{name}" / "provider.py").read_text()
    marks = {"routes": "@route", "metrics": "Counter(", "storage": "site.store", "stub": "stub=", "prompts": "@prompt"}
    assert {part for part, mark in marks.items() if mark in code} == set(parts)
    assert "# <" not in code
    ruff = Path(sys.executable).with_name("ruff")
    _must(ruff, "check", "--isolated", "--line-length=120", "--select=E,F,I,UP,B", ".", folder=folder)
    _must(ruff, "format", "--isolated", "--line-length=120", "--check", ".", folder=folder)


@pytest.mark.requirement("I15-4-new-provider-with")
def test_parts_are_of_the_template_only(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text(COUNTER)
    done = run("new-provider", "--from", "notes.py", "--with", "stub")
    assert (done.code, "--with is for a package from the template" in done.err) == (2, True)
    unknown = run("new-provider", "notes", "--with", "stubs")
    assert unknown.code == 2
    assert "'routes', 'metrics', 'storage', 'stub', 'prompts'" in unknown.err
    assert not list(tmp_path.glob("toolplug-*"))


@pytest.mark.process
@pytest.mark.requirement("I15-4-new-provider-with")
def test_at_a_terminal_it_asks_for_the_parts(tmp_path: Path) -> None:
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "toolplug.cli.main", "new-provider", "asked"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=end, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        os.write(terminal, b"n\ny\nn\n\ny\n")
        _, said = process.communicate(timeout=60)
    os.close(end)
    os.close(terminal)
    assert process.returncode == 0
    assert "a route over HTTP [Y/n]" in said
    code = (tmp_path / "toolplug-asked" / "src" / "toolplug_asked" / "provider.py").read_text()
    assert ("@route" in code, "Counter(" in code, "site.store" in code, "@prompt" in code) == (False, True, False, True)


NOTES = """
import jiter, helper_of_nobody
from toolplug import FunctionProvider, tool

@tool
def add_note(text: str) -> str:
    'Write a note.'
    return f"written: {text}"
"""
COUNTER = """
from pydantic import BaseModel
from toolplug import FunctionProvider, tool

class Counter(FunctionProvider):
    class Config(BaseModel):
        first: int = 1

    @tool
    async def count(self) -> int:
        'Return the number.'
        return self.config.first
"""


@pytest.mark.requirement("I14-3-new-provider-from")
@pytest.mark.parametrize(
    ("file", "text", "named", "entry"),
    [
        ("notes.py", NOTES.replace(", helper_of_nobody", ""), "notes", "toolplug_notes.provider"),
        ("my-count.py:Counter", COUNTER, "count", "toolplug_count.provider:Counter"),
    ],
)
def test_a_package_of_a_file_has_its_code_and_passes_its_tests(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, named: str, entry: str
) -> None:
    (tmp_path / file.partition(":")[0]).write_text(text)
    done = run("new-provider", *([named] if named == "count" else []), "--from", file, "--json")
    folder = tmp_path / f"toolplug-{named}"
    assert (done.code, done.json["folder"], done.json.get("warnings")) == (0, folder.name, None)
    assert (folder / "src" / f"toolplug_{named}" / "provider.py").read_text() == text
    assert f'{named} = "{entry}"' in (folder / "pyproject.toml").read_text()
    monkeypatch.syspath_prepend(folder / "src")
    monkeypatch.syspath_prepend(folder / "tests")
    [test] = [value for key, value in vars(import_module(f"test_{named}")).items() if key.startswith("test_")]
    test()


@pytest.mark.requirement("I14-3-new-provider-from")
def test_a_package_of_a_file_depends_on_what_the_file_imports(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.py").write_text(NOTES)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "helper_of_nobody.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "lib")
    done = run("new-provider", "--from", "notes.py", "--json")
    assert re.search(r'dependencies = \["toolplug>=[^"]+", "jiter>=0\.\d+"\]', _metadata(tmp_path / "toolplug-notes"))
    assert [warning["message"] for warning in done.json["warnings"]] == [
        "notes.py imports 'helper_of_nobody', which is of no installed package"
    ]


def _metadata(folder: Path) -> str:
    return (folder / "pyproject.toml").read_text()


@pytest.mark.requirement("I14-3-new-provider-from")
def test_settings_that_a_file_needs_are_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "counter.py").write_text(COUNTER.replace("int = 1", "int"))
    done = run("new-provider", "--from", "counter.py", "--json")
    assert [warning["hint"] for warning in done.json["warnings"]] == ["give them as SETTINGS in tests/test_counter.py"]
    assert "its Config needs first" in (tmp_path / "toolplug-counter" / "tests" / "test_counter.py").read_text()


@pytest.mark.requirement("I14-3-new-provider-from")
@pytest.mark.parametrize(
    ("file", "text", "code", "said"),
    [
        ("away.py", None, 1, "away.py: cannot be read"),
        ("empty.py", "x = 1", 1, "empty has no function with @tool, @route or @hookimpl and no FunctionProvider"),
        ("broken.py", "def x(:", 1, "broken.py:1"),
        ("make.py:make", "def make(key, config): ...", 1, "make.py:make is no provider class"),
        ("My File.py", NOTES, 2, "give one as NAME"),
        ("notes.txt", NOTES, 2, "'notes.txt' is no Python file"),
    ],
)
def test_a_file_that_cannot_be_served_becomes_no_package(
    run: Run, tmp_path: Path, file: str, text: str | None, code: int, said: str
) -> None:
    if text is not None:
        (tmp_path / file.partition(":")[0]).write_text(text)
    done = run("new-provider", "--from", file)
    assert (done.code, said in done.err, list(tmp_path.glob("toolplug-*"))) == (code, True, []), done.err


@pytest.mark.requirement("C-10-new-provider")
@pytest.mark.parametrize("name", ["toolplug-wind", "toolplug_wind", "wind"])
def test_the_name_of_a_package_is_that_of_its_type_with_toolplug_before_it(run: Run, tmp_path: Path, name: str) -> None:
    done = run("new-provider", name, "--json")
    assert (done.code, done.json["folder"]) == (0, "toolplug-wind")
    assert "warnings" not in done.json
    metadata = (tmp_path / "toolplug-wind" / "pyproject.toml").read_text()
    assert 'name = "toolplug-wind"' in metadata
    running = Version(version("toolplug"))
    assert f'"toolplug>={running.major}.{running.minor},<{running.major}.{running.minor + 1}"' in metadata
    assert "Apache License" in (tmp_path / "toolplug-wind" / "LICENSE").read_text()


@pytest.mark.requirement("C-10-new-provider")
def test_a_type_that_is_installed_already_is_remarked(run: Run) -> None:
    done = run("new-provider", "hello")
    assert done.code == 0
    assert done.err.startswith("toolplug-hello 0.1.0 is installed and has the provider type 'hello' too")
    assert run("new-provider", "toolplug-3d").code == 2


@pytest.mark.judge
@pytest.mark.timeout(1200)
@pytest.mark.requirement("C-10-new-provider", "I2-done-wheel-listed")
def test_a_new_package_installs_into_a_fresh_environment_and_is_found_there(run: Run, tmp_path: Path) -> None:
    run("new-provider", "weather")
    package = tmp_path / "toolplug-weather"
    scripts = make_environment(tmp_path / "venv", f"{ROOT}[server]", package, "pytest", "httpx2")
    _must(scripts / "python", "-m", "pytest", "-q", folder=package)
    assert "installed-not-enabled" in _must(scripts / "toolplug", "providers", folder=tmp_path)
    (tmp_path / "providers.yaml").write_text("providers: {weather: {enabled: true}}")
    answer = _must(scripts / "toolplug", "call", "weather_greet", "name=Ada", folder=tmp_path)
    assert answer == "Hello, Ada! This is tenant default.\n"


def _must(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.requirement("I38-host-key")
def test_key_rotate_puts_a_new_key_first_and_shows_none_unless_asked(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "providers.yaml"
    file.write_text("store: sqlite:///./kept/state.db\n", "utf-8")
    made = json.loads(run("key", "rotate", "--json").out)
    key = tmp_path / "kept" / "host.key"
    assert made == {"file": str(key), "keys": 1, "announced": True}
    first = key.read_text("utf-8")
    assert json.loads(run("key", "rotate", "--json").out)["keys"] == 2
    assert key.read_text("utf-8").endswith(first)
    shown = json.loads(run("key", "rotate", "--show", "--json").out)["key"]
    file.write_text(f"key: {shown}\n", "utf-8")
    refused = run("key", "rotate")
    assert refused.code == 1
    assert "key: names no file" in refused.err
    assert shown not in refused.err


@pytest.mark.parametrize("options", ["", "?shared=true"])
@pytest.mark.requirement("I38-host-key")
def test_after_a_rotation_no_process_starts_with_the_former_key_alone(run: Run, tmp_path: Path, options: str) -> None:
    file, store = tmp_path / "providers.yaml", f"store: sqlite:///./kept/state.db{options}\n"
    file.write_text(f"{store}key: {{file: ./host.key}}\n", "utf-8")
    with start_blocking_portal() as portal:
        with portal.wrap_async_context_manager(open_host(file)):
            former = (tmp_path / "host.key").read_text("utf-8").strip()
            assert json.loads(run("key", "rotate", "--json").out)["announced"] is True
        file.write_text(f"{store}key: {former}\n", "utf-8")
        with (
            pytest.raises(HostKeyError, match=r"key is not that of this store.*the newest key first"),
            portal.wrap_async_context_manager(open_host(file)),
        ):
            pass


@pytest.mark.requirement("I38-host-key")
def test_a_rotation_that_the_store_cannot_be_told_says_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "providers.yaml").write_text("store: sqlite:///./state.db\n", "utf-8")
    (tmp_path / "state.db").write_text("no database", "utf-8")
    rotated = run("key", "rotate")
    assert rotated.code == 0
    assert "has the former key alone can start" in rotated.out
    assert "is not a SQLite file" in rotated.out


@pytest.mark.requirement("I39-provider-ci")
def test_a_new_package_has_the_ci_of_its_repository(run: Run, tmp_path: Path) -> None:
    assert run("new-provider", "tide").code == 0
    folder = tmp_path / "toolplug-tide"
    workflow = yaml.safe_load((folder / ".github/workflows/ci.yml").read_text())
    assert list(workflow["jobs"]) == ["test", "build", "publish"]
    test, publish = workflow["jobs"]["test"], workflow["jobs"]["publish"]
    assert [step["run"] for step in test["steps"] if "run" in step] == ["pip install . pytest", "python -m pytest"]
    assert test["steps"][1]["with"] == {"python-version": "${{ matrix.python }}"}
    assert "check_provider(" in (folder / "tests" / "test_tide.py").read_text()
    assert (workflow["permissions"], publish["permissions"]) == ({"contents": "read"}, {"id-token": "write"})
    assert publish["if"] == "startsWith(github.ref, 'refs/tags/v')"
