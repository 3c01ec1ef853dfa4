"""`toolplug check`, and how every command refuses a wrong configuration."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.done import Done
from tests.cli.process import toolplug
from tests.host.conftest import Package

WRONG = """\
providers:
  hello:
    enabled: true
    greting: Hi
    limits: {timeout: soon}
  nosuch:
    enabled: false
auth: {}
limts: {}
"""


@pytest.mark.requirement("C-10-check", "C-2-all-problems", "H-configuration-all-at-once", "C-10-exit-codes")
def test_every_problem_of_a_file_is_reported_at_once_and_the_exit_code_is_1(tmp_path: Path, run: Run) -> None:
    (tmp_path / "providers.yaml").write_text(WRONG)
    done = run("check")
    places = [line.split(": ")[0] for line in done.out.splitlines()]
    assert done.code == 1
    assert places == [
        "providers.yaml:4:5",
        "providers.yaml:5:23",
        "providers.yaml:6:3",
        "providers.yaml:8:7",
        "providers.yaml:9:1",
    ]
    assert "nearest: 'greeting'" in done.out
    assert done.err == ""


@pytest.mark.requirement("C-10-json-problems")
def test_problems_as_json_have_their_seven_fields_on_stdout(tmp_path: Path, run: Run) -> None:
    (tmp_path / "providers.yaml").write_text(WRONG)
    done = run("check", "--json")
    assert (done.code, done.err) == (1, "")
    assert done.json["problems"][0] == {
        "file": "providers.yaml",
        "line": 4,
        "column": 5,
        "path": "providers.hello.greting",
        "code": "unknown_key",
        "message": "unknown key 'greting'",
        "hint": "nearest: 'greeting'",
    }


@pytest.mark.requirement("C-10-json-problems", "C-10-exit-codes", "C-10-stderr")
@pytest.mark.parametrize(
    "command",
    [
        ("call", "hello"),
        ("tools",),
        ("diff", "providers.yaml"),
        ("serve",),
        ("sessions", "list"),
        ("approvals", "list"),
        ("agents", "list"),
        ("toolsets", "list"),
        ("notes", "list"),
    ],
)
def test_every_command_refuses_a_wrong_file_with_exit_1_and_without_a_traceback(
    tmp_path: Path, run: Run, command: tuple[str, ...]
) -> None:
    (tmp_path / "providers.yaml").write_text(WRONG)
    plain = run(*command)
    assert (plain.code, plain.out, len(plain.err.splitlines())) == (1, "", 5)
    assert len(run(*command, "--json").json["problems"]) == 5


@pytest.mark.requirement(
    "H-configuration-not-utf-8",
    "H-configuration-tabs",
    "H-configuration-duplicate-keys",
    "H-configuration-bombs",
    "H-configuration-deep",
    "H-configuration-tags",
    "H-configuration-several-documents",
    "H-configuration-enabled-text",
    "H-configuration-missing-environment",
)
@pytest.mark.parametrize(
    "text",
    [
        b"providers: \xff",
        b"providers:\n\thello: {}\n",
        b"providers: {}\nproviders: {}\n",
        b"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
        b"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"
        b"f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n",
        b"providers: " + b"[" * 5000,
        b"providers: !!python/object/apply:os.system [true]\n",
        b"providers: {}\n---\nproviders: {}\n",
        b'providers: {hello: {enabled: "false"}}\n',
        b"providers: {hello: {enabled: true, greeting: '${TOOLPLUG_TEST_NOT_SET}'}}\n",
        b"- a list\n",
    ],
    ids=["not-utf-8", "tabs", "twice", "bomb", "deep", "tag", "documents", "text", "environment", "list"],
)
def test_a_hostile_file_is_a_problem_with_its_place(tmp_path: Path, run: Run, text: bytes) -> None:
    (tmp_path / "providers.yaml").write_bytes(text)
    done = run("check", "--json")
    assert done.code == 1
    assert done.json["problems"]
    assert all(problem["file"] == "providers.yaml" and problem["message"] for problem in done.json["problems"])
    assert any(problem["line"] for problem in done.json["problems"])


def test_a_right_file_says_what_is_on(run: Run, write: Callable[..., Path]) -> None:
    write("providers: {hello: {enabled: true}, file_search: {}}")
    assert run("check") == (0, "providers.yaml is valid: 1 provider enabled, 1 disabled\n", "")
    assert run("check", "--json").json == {"problems": []}


@pytest.mark.requirement("C-10-config")
def test_the_file_is_the_one_named_else_the_one_here_else_that_of_the_environment(
    run: Run, write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = run("check", "--json")
    assert (none.code, none.codes) == (1, ["no_configuration"])
    elsewhere = write("providers: {}", "elsewhere.yaml")
    monkeypatch.setenv("TOOLPLUG_CONFIG", str(elsewhere))
    assert str(elsewhere) in run("check").out
    write("providers: {}")
    assert run("check").out.startswith("providers.yaml is valid")
    named = write("providers: {}", "named.yaml")
    for option in ("-c", "--config"):
        assert str(named) in run("check", option, str(named)).out
    missing = run("check", "-c", "missing.yaml", "--json")
    assert (missing.code, missing.codes) == (1, ["unreadable"])


ALERTS = """
    from pydantic import BaseModel

    from toolplug import FunctionProvider, ToolDefinition, route, tool

    class Alerts(FunctionProvider):
        class Config(BaseModel):
            level: int = 1

        @tool
        async def set_alert(self) -> str:
            "Set an alert."
            return "set"

        @route("GET", "/v1/alerts")
        async def alerts(self, request):
            return []

    class Moody(FunctionProvider):
        def tools(self):
            return [ToolDefinition(name="sulk", description="Sulk.", parameters={"type": "object"})]

        async def start(self, site):
            raise OSError("not today")

    class Quiet(Moody):
        async def start(self, site):
            return None

        def routes(self):
            return []
"""


@pytest.fixture
def alerts(package: Package) -> None:
    points = {name.lower(): f"alerts_mod:{name}" for name in ("Alerts", "Moody", "Quiet")}
    package("toolplug-alerts", {**points, "broken": "no_such_mod:Broken"}, alerts_mod=ALERTS)


def problems(done: Done) -> list[str]:
    return [line for line in done.out.splitlines() if line.startswith("providers.yaml:")]


@pytest.mark.usefixtures("alerts")
@pytest.mark.requirement("C-2-check-without-start", "C-2-all-problems")
def test_a_rule_for_no_tool_and_a_route_that_is_taken_are_problems_before_a_start(
    run: Run, write: Callable[..., Path]
) -> None:
    write(
        "providers:\n"
        "  alerts: {enabled: true, tools: {set_allert: ask}}\n"
        "  again: {enabled: true, type: alerts}\n"
        "  off: {enabled: false, type: alerts, tools: {nothing: ask}}\n"
    )
    done = run("check")
    owner = "(toolplug-alerts 1.0)"
    assert (done.code, problems(done)) == (
        1,
        [
            f"providers.yaml:2:35: providers.alerts.tools.set_allert: provider 'alerts' {owner} has no tool"
            " 'set_allert' (nearest: 'set_alert')",
            f"providers.yaml:3:3: providers.again: provider 'again' {owner} declares GET /v1/alerts, which is a route"
            f" of provider 'alerts' {owner} (set mount in one of them, such as mount: /again, or enable one of them"
            " only)",
        ],
    )
    found = run("doctor", "--json")
    assert (found.codes, found.err) == (["config_invalid", "route_taken"], "")


@pytest.mark.usefixtures("alerts")
@pytest.mark.requirement("C-2-all-problems")
@pytest.mark.parametrize("head", ["enabled: 7", "enabled: yes", "enabled: 7, type: alerts"])
def test_a_wrong_switch_hides_no_other_problem_of_its_entry(run: Run, write: Callable[..., Path], head: str) -> None:
    write(f"providers:\n  alerts: {{{head}, level: high, limits: {{rate: often}}, tools: {{nothing: ask}}}}\n")
    done = run("check", "--json")
    assert {problem["path"] for problem in done.json["problems"]} == {
        "providers.alerts.enabled",
        "providers.alerts.level",
        "providers.alerts.limits.rate",
        "providers.alerts.tools.nothing",
    }


@pytest.mark.requirement("C-2-all-problems", "C-2-known-packages")
def test_an_unknown_type_hides_no_rule_and_suggests_only_packages_of_this_project(
    run: Run, write: Callable[..., Path]
) -> None:
    write(
        "providers:\n"
        "  browser: {enabled: true, limits: {rate: often}}\n"
        "  image_generation: {enabled: false, limits: {rate: often}}\n"
        "  strange: {type: 7, enabled: true, required: perhaps}\n"
    )
    done = run("check", "--json")
    assert [(problem["path"], problem["code"]) for problem in done.json["problems"]] == [
        ("providers.browser", "unknown_provider"),
        ("providers.browser.limits.rate", "wrong_value"),
        ("providers.image_generation", "unknown_provider"),
        ("providers.strange.type", "wrong_value"),
        ("providers.strange.required", "wrong_value"),
    ]
    assert "pip install" not in done.out
    projects = (Path(__file__).parents[2] / "plugins").glob("*/pyproject.toml")
    # An engine runs the workers of an entry, and is no type of one.
    shipped = {project.parent.name for project in projects if '"toolplug.engines"' not in project.read_text("utf-8")}
    known = tomllib.loads(files("toolplug.host.file").joinpath("known_packages.toml").read_text("utf-8"))["packages"]
    assert shipped == set(known.values())


@pytest.mark.usefixtures("alerts")
@pytest.mark.requirement("C-2-check-without-start", "C-10-check-start")
def test_what_only_a_start_can_tell_is_listed_and_a_start_tells_it(run: Run, write: Callable[..., Path]) -> None:
    write("providers: {alerts: {enabled: true}, moody: {enabled: true}, quiet: {enabled: true, tools: {laugh: deny}}}")
    done = run("check")
    listed = "not checked: tools of moody\nnot checked: tools of quiet\nnot checked: routes of quiet\n"
    assert done == (0, f"providers.yaml is valid: 3 providers enabled\n{listed}", "")
    assert run("check", "--json").json == {
        "problems": [],
        "not_checked": ["tools of moody", "tools of quiet", "routes of quiet"],
    }
    started = run("check", "--start", "--json")
    assert (started.code, started.codes) == (1, ["start_failed", "config_invalid"])
    [crash] = started.err.splitlines()
    assert "start() of provider 'moody' (toolplug-alerts 1.0) raised OSError at" in crash
    places = [(problem["line"], problem["column"], problem["path"]) for problem in started.json["problems"]]
    assert places == [(1, 38, "providers.moody"), (1, 93, "providers.quiet.tools.laugh")]
    write("providers: {alerts: {enabled: true}, quiet: {enabled: true}}")
    assert run("check", "--start") == (0, "providers.yaml is valid: 2 providers enabled\n", "")


@pytest.mark.usefixtures("alerts")
@pytest.mark.requirement("C-2-required-false", "C-10-check-start")
def test_a_package_that_may_fail_is_a_warning(run: Run, write: Callable[..., Path]) -> None:
    write(
        "providers: {alerts: {enabled: true, required: false, tools: {laugh: deny}},"
        " broken: {enabled: true, required: false}, moody: {enabled: true, required: false}}"
    )
    done = run("check", "--json")
    assert (done.code, done.json["problems"]) == (0, [])
    assert [warning["code"] for warning in done.json["warnings"]] == ["config_invalid", "import_failed"]
    text = run("check")
    assert text.out.startswith("providers.yaml is valid: 2 providers enabled, 1 failed\n")
    assert "warning: providers.yaml:1:77: providers.broken: " in text.err
    assert "importing no_such_mod raised ModuleNotFoundError" in text.err
    started = run("check", "--start", "--json")
    warned = [warning["code"] for warning in started.json["warnings"]]
    assert (started.code, warned) == (0, ["config_invalid", "import_failed", "start_failed"])
    assert all(warning["line"] for warning in started.json["warnings"])


@pytest.mark.slow
@pytest.mark.requirement("H-configuration-bombs")
@pytest.mark.parametrize(
    ("section", "entry"),
    [
        ("providers", "unknown{}: &anchor{}"),
        ("auth", "key{}: {}"),
        ("mcp_servers", "server{}: {{comand: x{}}}"),
        ("toolsets", "set{}: {{prefix: p{}}}"),
    ],
)
def test_a_file_of_thousands_of_faults_is_left_at_a_hundred(
    run: Run, write: Callable[..., Path], section: str, entry: str
) -> None:
    lines = [f"  {entry.format(index, index)}" for index in range(1_000)]
    write("\n".join([f"{section}:", *lines]))
    done = run("check")
    assert (done.code, done.err, len(problems(done))) == (1, "check stopped at 100 problems\n", 100)


@pytest.mark.process
@pytest.mark.requirement("C-10-check")
def test_metadata_of_a_foreign_package_that_cannot_be_read_is_a_line_and_stops_nothing(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    write("providers: {hello: {enabled: true}}")
    broken = tmp_path / "site" / "unrelated-1.0.dist-info"
    broken.mkdir(parents=True)
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: unrelated\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text("[console_scripts]\nno equals sign here\n")
    done = toolplug("call", "hello", "name=Ada", folder=tmp_path, site=tmp_path / "site")
    assert (done.code, done.out) == (0, "Hello, Ada!\n")
    assert done.err.count("\n") == 1
    assert "unrelated-1.0.dist-info/entry_points.txt: cannot be read" in done.err


def test_an_unknown_type_is_told_with_the_package_that_cannot_be_read(
    tmp_path: Path, run: Run, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("providers: {odd: {enabled: true}}")
    broken = tmp_path / "site" / "toolplug_odd-1.0.dist-info"
    broken.mkdir(parents=True)
    (broken / "METADATA").write_bytes(b"\xff\xfe no name")
    (broken / "entry_points.txt").write_text("[toolplug.providers]\nodd = odd:Odd\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert run("check", "--json").codes == ["unknown_provider", "metadata_unreadable"]


@pytest.mark.requirement("C-10-check-extras")
def test_servers_without_the_extra_that_they_need_are_a_problem_before_any_start(
    run: Run, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write("mcp_servers:\n  files: {command: x}\n  off: {command: x, enabled: false}\n")
    assert run("check").code == 0
    monkeypatch.setitem(sys.modules, "mcp", None)
    done = run("check")
    where = "providers.yaml:2:10: mcp_servers.files"
    assert (done.code, done.out) == (1, f"{where}: MCP needs the extra (pip install 'toolplug[mcp]')\n")
    assert where in run("doctor").out


@pytest.mark.requirement("C-10-check")
def test_a_command_line_in_place_of_a_command_is_a_warning_with_its_line_and_how_to_write_it(
    run: Run, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOCK_KEY", "sesame open wide")
    write(
        "mcp_servers:\n"
        '  clock: {command: "no-such-runner mcp-server-time --key ${CLOCK_KEY}"}\n'
        "  shell: {command: /bin/sh serve.sh}\n"
        "  mine: {command: /opt/My Tools/serve}\n"
        "  off: {command: no-such-runner, enabled: false}\n"
        "  here: {command: sh}\n"
    )
    done = run("check", "--json")
    assert done.code == 0
    assert "sesame" not in done.out
    assert [(item["line"], item["message"], item["hint"]) for item in done.json["warnings"]] == [
        (
            2,
            "there is no command 'no-such-runner mcp-server-time --key ***'",
            'no shell reads it; write: command: no-such-runner, args: ["mcp-server-time", "--key", "***"]',
        ),
        (
            3,
            "there is no command '/bin/sh serve.sh'",
            'no shell reads it; write: command: /bin/sh, args: ["serve.sh"]',
        ),
        (4, "there is no command '/opt/My Tools/serve'", "install it, or write its whole path"),
    ]
    assert "warning: providers.yaml:2:" in run("check").err


def test_servers_in_the_words_of_desktop_clients_are_said_to_have_a_command(
    run: Run, write: Callable[..., Path]
) -> None:
    write('mcpServers: {"files": {"command": "npx"}}')
    [problem] = run("check", "--json").json["problems"]
    assert problem["hint"].endswith("toolplug discover --import FILE reads the file of a desktop client")
    assert "--import" in run("discover", "--help").out


@pytest.mark.requirement("C-10-check")
@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("http: {port: 9090}\n", "toolplug serve --port PORT sets it"),
        ("http: {host: 0.0.0.0}\n", "toolplug serve --host ADDRESS sets it"),
        ("port: 9090\n", "toolplug serve --port PORT sets it"),
        ("logging: {level: debug}\n", "toolplug serve --log-level and --log-format set it"),
        ("log_level: debug\n", "toolplug serve --log-level LEVEL sets it"),
        ("server: {port: 9090}\n", "toolplug serve --host and --port set the address; the rest is under 'http'"),
    ],
)
def test_a_setting_of_the_process_is_said_to_be_an_option(
    run: Run, write: Callable[..., Path], text: str, option: str
) -> None:
    write(text)
    assert [problem["hint"] for problem in run("check", "--json").json["problems"]] == [option]
    words = re.findall(r"--[a-z-]+", option)
    assert set(words) <= set(re.findall(r"--[a-z-]+", run("serve", "--help").out))


@pytest.mark.requirement("C-10-check")
@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("cmd", "here it is command"),
        ("serverUrl", "here it is url"),
        ("type", "leave it out: a command is started, and a url is asked by Streamable HTTP"),
    ],
)
def test_a_key_of_another_mcp_client_is_said_to_be_another_here(
    run: Run, write: Callable[..., Path], key: str, hint: str
) -> None:
    write(f"mcp_servers: {{files: {{command: uvx, {key}: x}}}}\n")
    assert [problem["hint"] for problem in run("check", "--json").json["problems"]] == [hint]
