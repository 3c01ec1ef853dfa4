"""Commands of plugins: loaded when they are named, listed in the help, and harmless when their plugin is broken."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.host.conftest import Package

Write = Callable[..., Path]

GREET = """
import typer
from toolplug import hookimpl, tool

@tool
def greet() -> str:
    "Greet."
    return "hello"

@hookimpl
def commands(app: typer.Typer):
    @app.command("greet")
    def greet(name: str = "you", config: str = typer.Option("", "--config", "-c")):
        "Greet somebody."
        print("hello", name)
"""
CLASS = """
from toolplug import FunctionProvider, StoreError

class Plugin(FunctionProvider):
    @staticmethod
    def commands(app):
        @app.command("bye")
        def bye():
            print("bye")

        @app.command("check")
        def check():
            print("never")

        @app.command("greet")
        def greet():
            print("never")

        @app.command("fail")
        def fail(how: str):
            if how == "store":
                raise StoreError("the file is gone")
            if how == "exit":
                raise SystemExit(7)
            raise ValueError("secret text")
"""


@pytest.fixture
def plugins(package: Package, write: Write) -> None:
    """Two plugins, one of each shape, enabled in this order."""
    package("toolplug-greet", {"greeter": "greet_mod"}, greet_mod=GREET)
    package("acme-class", {"classy": "class_mod:Plugin"}, class_mod=CLASS)
    write("providers: {greeter: {enabled: true}, classy: {enabled: true}}")


@pytest.mark.requirement("C-10-plugin-commands")
def test_a_command_of_a_plugin_runs_like_a_built_in_one(run: Run, plugins: None) -> None:
    assert (run("greet").code, run("greet", "--name", "Ada").out) == (0, "hello Ada\n")
    assert run("bye").out == "bye\n"
    assert "Greet somebody." in run("greet", "--help").out
    wrong = run("greet", "--nam", "Ada")
    assert (wrong.code, "No such option: --nam" in wrong.err) == (2, True)


@pytest.mark.requirement("C-10-plugin-commands")
def test_the_help_lists_them_in_a_group_of_their_own(run: Run, plugins: None) -> None:
    done = run("--help")
    built_in, _, of_plugins = done.out.partition("Commands of plugins")
    assert done.code == 0
    assert re.findall(r"^│ (\w+) ", of_plugins, re.MULTILINE) == ["greet", "bye", "fail"]
    assert "greet" not in built_in


@pytest.mark.requirement("C-10-plugin-commands")
def test_a_name_that_is_taken_is_a_warning(run: Run, plugins: None) -> None:
    done = run("bye")
    assert done.err.splitlines() == [
        "warning: providers.classy: provider 'classy' (acme-class 1.0): its command 'check' is left out: "
        "the name is built in",
        "warning: providers.classy: provider 'classy' (acme-class 1.0): its command 'greet' is left out: "
        "the name is taken by provider 'greeter', which comes first",
    ]
    assert "is valid" in run("check").out
    shown = run("--help")
    assert shown.err == ""
    assert "Missing here: provider 'classy' (acme-class 1.0): its command 'check' is left out" in " ".join(
        shown.out.split()
    )


@pytest.mark.requirement("C-10-plugin-commands")
@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("store", 1, "the file is gone\n"),
        ("value", 1, "the command 'fail' of provider 'classy' (acme-class 1.0) raised ValueError at "),
    ],
)
def test_an_error_of_a_command_is_one_line_and_no_traceback(
    run: Run, plugins: None, how: str, code: int, said: str
) -> None:
    done = run("fail", how)
    line = done.err.splitlines()[-1]
    assert (done.code, done.out) == (code, "")
    assert said.strip() in line
    assert "secret text" not in done.err
    assert "Traceback" not in done.err


def test_an_error_of_a_command_is_json_where_that_is_asked_for(run: Run, package: Package, write: Write) -> None:
    code = """
    from toolplug import FunctionProvider, StoreError

    class Plugin(FunctionProvider):
        @staticmethod
        def commands(app):
            @app.command("fail")
            def fail(json: bool = False):
                raise StoreError("the file is gone")
    """
    package("acme", {"acme": "acme_mod:Plugin"}, acme_mod=code)
    write("providers: {acme: {enabled: true}}")
    done = run("fail", "--json")
    assert (done.code, done.codes) == (1, ["store_error"])


def test_a_command_may_end_the_process_with_a_code_of_its_own(run: Run, plugins: None) -> None:
    with pytest.raises(SystemExit) as ended:
        run("fail", "exit")
    assert ended.value.code == 7


@pytest.mark.parametrize(
    "words", [["-c", "other.yaml"], ["-cother.yaml"], ["--config", "other.yaml"], ["--config=other.yaml"]]
)
def test_the_configuration_is_the_one_that_the_command_line_names(
    run: Run, package: Package, write: Write, words: list[str]
) -> None:
    package("toolplug-greet", {"greeter": "greet_mod"}, greet_mod=GREET)
    write("providers: {}")
    write("providers: {greeter: {enabled: true}}", "other.yaml")
    assert run("greet", *words).out == "hello you\n"
    missing = run("greet")
    assert (missing.code, missing.out) == (2, "")
    assert "No such command 'greet'" in missing.err


def test_without_the_file_the_environment_names_it(
    run: Run, package: Package, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    package("toolplug-greet", {"greeter": "greet_mod"}, greet_mod=GREET)
    write("providers: {greeter: {enabled: true}}", "other.yaml")
    assert run("greet").code == 2
    monkeypatch.setenv("TOOLPLUG_CONFIG", "other.yaml")
    assert run("greet").out == "hello you\n"


def test_only_enabled_plugins_have_commands_and_nothing_is_started(run: Run, package: Package, write: Write) -> None:
    code = f"""{GREET}
@hookimpl
async def start():
    raise RuntimeError("started")
"""
    package("toolplug-greet", {"greeter": "greet_mod"}, greet_mod=code)
    write("providers: {greeter: {enabled: true}}")
    assert run("greet").out == "hello you\n"
    write("providers: {greeter: {enabled: false}}")
    assert run("greet").code == 2


BROKEN = {
    "import": ("raise ValueError('x')", "importing broken_mod raised ValueError"),
    "raises": (
        "def commands(app):\n    raise ValueError('secret text')",
        "`commands` raised ValueError at broken_mod:",
    ),
    "exits": ("def commands(app):\n    raise SystemExit(3)", "`commands` raised SystemExit at broken_mod:"),
    "callback": (
        "def commands(app):\n    app.callback()(lambda: None)",
        "its commands are left out: `app` takes commands only",
    ),
    "async": (
        "def commands(app):\n    @app.command('x')\n    async def x(): ...",
        "the command 'x' is `async def`; write it as `def`",
    ),
    "parameter": (
        "def commands(app):\n    @app.command('x')\n    def x(a: 'Unknown'): ...",
        "its commands are left out: `commands` raised NameError",
    ),
    "nonsense": (
        "def commands(app):\n    app.registered_commands = None",
        "its commands are left out: `commands` raised",
    ),
}


@pytest.mark.requirement("C-10-plugin-commands")
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_plugin_is_one_line_and_costs_its_own_commands_only(
    run: Run, package: Package, write: Write, broken: str
) -> None:
    code, said = BROKEN[broken]
    hook = "from toolplug import hookimpl\n" + code.replace("def commands", "@hookimpl\ndef commands", 1)
    package("acme-broken", {"broken": "broken_mod"}, broken_mod=hook)
    package("toolplug-greet", {"greeter": "greet_mod"}, greet_mod=GREET)
    write("providers: {broken: {enabled: true}, greeter: {enabled: true}}")
    done = run("greet")
    (line,) = done.err.splitlines()
    assert (done.code, done.out) == (0, "hello you\n")
    assert "providers.broken" in line
    assert said in line
    assert "secret text" not in line
    assert (run("--help").code, run("--version").err) == (0, "")


@pytest.mark.parametrize("text", ["providers: [", "providers: {no_such_type: {enabled: true}}", "- 1"])
def test_a_broken_configuration_breaks_no_built_in_command_and_no_help(run: Run, write: Write, text: str) -> None:
    write(text)
    shown = run("--help")
    assert (shown.code, shown.err, shown.out.strip().startswith("Usage: ")) == (0, "", True)
    assert " ".join(shown.out.split()).endswith("as the configuration has errors: `toolplug check` shows them.")
    unknown = run("greet")
    assert (unknown.code, unknown.err.startswith("warning: ")) == (2, True)
    assert "No such command 'greet'" in unknown.err
    assert run("check").code == 1


def test_the_state_folder_of_a_plugin_is_the_one_that_the_host_gives_it(
    run: Run, package: Package, write: Write, tmp_path: Path
) -> None:
    code = """
    from pathlib import Path
    from toolplug import FunctionProvider, state_folder, tool

    class Plugin(FunctionProvider):
        async def start(self, site):
            self.folder = site.state_dir

        @tool
        def where(self) -> str:
            "Where."
            return str(self.folder)

        @staticmethod
        def commands(app):
            @app.command("where")
            def where(key: str = "acme"):
                print(state_folder(key))
    """
    package("acme", {"acme": "acme_mod:Plugin"}, acme_mod=code)
    write("providers: {acme: {enabled: true}}\\nstore: sqlite:///./data/state.db".replace("\\n", "\n"))
    assert Path(run("where").out.strip()).resolve() == Path(run("call", "where").out.strip()).resolve()
    unknown = run("where", "--key", "acmi")
    assert (unknown.code, unknown.err) == (1, "no provider 'acmi' in the configuration (nearest: 'acme')\n")
    write("providers: {acme: {enabled: true}}\nstore: memory://")
    in_memory = run("where")
    assert (in_memory.code, "temporary folder of the process that serves" in in_memory.err) == (1, True)
    write("providers: {acme: {enabled: true}}\nstore: nosuch://x")
    assert (run("where").code, "unknown store" in run("where").err) == (1, True)


def test_the_journal_has_a_command(run: Run, write: Write) -> None:
    write("providers: {journal: {enabled: true}, hello: {enabled: true}}\nstore: sqlite:///./state.db")
    assert (run("journal").out, run("journal", "--json").json) == ("no calls\n", {"calls": []})
    run("call", "hello")
    run("call", "nosuch")
    calls = run("journal", "--json").json["calls"]
    assert [(call["tool"], call["status"]) for call in calls] == [("nosuch", "unknown_tool"), ("hello", "success")]
    assert [line.split()[1:3] for line in run("journal", "--limit", "1").out.splitlines()[1:]] == [
        ["nosuch", "unknown_tool"]
    ]
    assert json.loads(run("journal", "--tool", "hello", "--json").out)["calls"] == calls[1:]


@pytest.mark.requirement("C-10-plugin-tenant")
def test_a_command_of_a_plugin_acts_in_the_tenant_of_the_variable_or_the_file(
    run: Run, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write("providers: {journal: {enabled: true}, hello: {enabled: true}}\nstore: sqlite:///./state.db")
    run("call", "hello", "--tenant", "acme")

    def calls(*options: str) -> int:
        return len(run("journal", "--json", *options).json["calls"])

    assert (calls(), calls("--tenant", "acme")) == (0, 1)
    tenant = file.parent / ".toolplug" / "tenant"
    tenant.parent.mkdir(exist_ok=True)
    tenant.write_text("acme\n", "utf-8")
    assert (calls(), calls("--config", str(file)), calls("--tenant", "default")) == (1, 1, 0)
    monkeypatch.setenv("TOOLPLUG_TENANT", "default")
    assert (calls(), calls("--tenant", "acme")) == (0, 1)


def test_above_the_help_nothing_is_said_of_a_provider_that_is_not_required(
    run: Run, package: Package, write: Write
) -> None:
    package("acme-search", {"search": "search_mod"}, search_mod="import no_such_module")
    write("providers: {search: {enabled: true, required: false}}")
    shown = run("--help")
    assert (shown.code, shown.err) == (0, "")
    unknown = run("search-again")
    assert unknown.code == 2
    assert unknown.err.startswith("warning: ")
    assert "no_such_module" in unknown.err
