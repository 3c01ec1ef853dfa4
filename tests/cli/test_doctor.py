"""`toolplug doctor`: what it warns an operator and an author of, each thing once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.host.conftest import Package
from tests.kept_port import kept_port

Write = Callable[..., Path]

TOOLS = """
    from typing import Annotated, Any

    from prometheus_client import Counter
    from pydantic import BaseModel, Field

    from toolplug import FunctionProvider, tool

    class Place(BaseModel):
        "Where something is."
        name: str

    class Poor(FunctionProvider):
        def collectors(self):
            return [
                Counter("antwort_builtin_tool_executions", "Mine", registry=None),
                Counter("antwort_sessions_lost", "Mine", registry=None),
                Counter("poor_calls", "Mine", registry=None),
            ]

        @tool
        async def set_alert(self, above, note: str) -> str:
            return "set"

        @tool
        async def set_allert(this, at: Place) -> str:
            "Set an alert."
            return "set"

    class Rich(FunctionProvider):
        @tool
        async def get_alert(
            self, name: Annotated[str, Field(description="which")], at: Place, kind: Annotated[Any, "any"] = None
        ) -> str:
            '''Return the rule of an alert.

            Args:
                kind: of any kind
            '''
            return "it"

        @tool
        async def equip(self) -> str:
            "Put on the armour."
            return ""

        @tool
        async def unequip(self) -> str:
            "Take off."
            return ""
"""


@pytest.fixture
def tools(package: Package) -> None:
    package("toolplug-lint", {"poor": "lint_mod:Poor", "rich": "lint_mod:Rich"}, lint_mod=TOOLS)


def warned(run: Run, *options: str) -> list[tuple[str, str]]:
    done = run("doctor", "--json", *options)
    assert (done.code, done.json["problems"], done.err) == (0, [], "")
    return [(item["path"], item["code"]) for item in done.json["warnings"]]


@pytest.mark.usefixtures("tools")
@pytest.mark.requirement("C-10-doctor-lint")
def test_tools_that_a_model_cannot_understand_are_warned_of(run: Run, write: Write) -> None:
    write("providers: {poor: {enabled: true}}")
    of_tools = [
        ("providers.poor.tools.set_allert", "no_self"),
        ("providers.poor.tools.set_alert", "no_description"),
        ("providers.poor.tools.set_alert", "no_parameter_type"),
        ("providers.poor.tools.set_alert", "no_parameter_description"),
        ("", "near_names"),
    ]
    assert warned(run) == [*of_tools, ("providers.poor", "metric_clash"), ("providers.poor", "metric_clash")]
    assert warned(run, "--tools") == of_tools
    shown = run("doctor").out
    assert "the first parameter of the tool 'set_allert' is 'this'" in shown
    assert "parameters of the tool 'set_alert' have no type: 'above' (annotate them)" in shown
    assert "parameters of the tool 'set_alert' have no description: 'above', 'note'" in shown
    assert "its metric 'antwort_builtin_tool_executions' is left out: names that begin with 'antwort_builtin_'" in shown


DIAGNOSED = """
    import sys
    from pydantic import BaseModel, SecretStr
    from toolplug import FunctionProvider

    class Config(BaseModel):
        key: SecretStr

    class Down(FunctionProvider):
        Config = Config

        async def diagnose(self):
            return [f"http://x/?key={self.config.key.get_secret_value()} does not answer; start it"]

    class Exits(FunctionProvider):
        async def diagnose(self):
            sys.exit(3)

    class Wrong(FunctionProvider):
        async def diagnose(self):
            return "it is down"
"""


@pytest.mark.requirement("C-10-doctor-diagnose")
def test_what_providers_say_of_themselves_is_warned_of_and_their_failures_too(
    run: Run, write: Write, package: Package
) -> None:
    types = {name: f"diagnosed_mod:{name.title()}" for name in ("down", "exits", "wrong")}
    package("toolplug-diagnosed", types, diagnosed_mod=DIAGNOSED)
    write(
        "providers: {down: {enabled: true, key: s3cret-key}, exits: {enabled: true}, wrong: {enabled: true},"
        " hello: {enabled: true}}"
    )
    done = run("doctor", "--json")
    assert done.code == 0
    assert [(item["path"], item["code"], item["message"]) for item in done.json["warnings"]] == [
        ("providers.down", "provider_warning", "http://x/?key=*** does not answer; start it"),
        (
            "providers.exits",
            "diagnose_failed",
            "provider 'exits' (toolplug-diagnosed 1.0): diagnose() raised SystemExit: 3",
        ),
        (
            "providers.wrong",
            "diagnose_failed",
            "provider 'wrong' (toolplug-diagnosed 1.0): diagnose() raised InvalidDefinition: it returned str, not a "
            "list of texts",
        ),
    ]
    assert "warning: providers.down: http://x/?key=*** does not answer; start it" in run("doctor").out


@pytest.mark.usefixtures("tools")
@pytest.mark.requirement("C-10-doctor-lint")
def test_what_is_described_is_not_warned_of_and_each_tool_shows_its_cost(run: Run, write: Write) -> None:
    write("providers: {rich: {enabled: true, tools: {unequip: allow}}}")
    assert warned(run) == [("providers.rich.tools.get_alert", "no_parameter_type")]
    costs = run("doctor", "--tools", "--json").json["tools"]
    assert [(item["name"], item["provider"]) for item in costs] == [
        ("get_alert", "rich"),
        ("equip", "rich"),
        ("unequip", "rich"),
    ]
    assert costs[0]["characters"] > costs[1]["characters"] > 0
    assert costs[0]["tokens"] == -(-costs[0]["characters"] // 4)
    assert run("doctor", "--tools").out.startswith("TOOL       PROVIDER  CHARACTERS  TOKENS\nget_alert  rich")


DEEP = """
    from __future__ import annotations
    from pydantic import BaseModel
    from toolplug import FunctionProvider, tool

    class Tree(BaseModel):
        "A tree."
        left: Tree | None = None

    class Pattern(FunctionProvider):
        @tool
        async def get_user(self) -> str:
            "Gets the users."
            return ""

        @tool
        async def grow(self, tree: Tree) -> str:
            "Grow a tree by one leaf."
            return ""

        @tool
        async def fold(self, deep: NESTED) -> str:
            \"\"\"Fold a list of lists.

            Args:
                deep: A list.
            \"\"\"
            return ""
"""


@pytest.mark.requirement("I15-4-lint")
def test_vague_descriptions_and_schemas_over_the_limits_of_strict_mode_are_warned_of(
    run: Run, write: Write, package: Package
) -> None:
    for levels in (9, 10):
        nested = "list[" * levels + "int" + "]" * levels
        package(
            f"toolplug-deep{levels}",
            {f"deep{levels}": f"deep{levels}_mod:Pattern"},
            **{f"deep{levels}_mod": DEEP.replace("NESTED", nested)},
        )
    write("providers: {deep9: {enabled: true}}")
    assert warned(run, "--tools") == [("providers.deep9.tools.get_user", "vague_description")]
    write("providers: {deep10: {enabled: true}}")
    assert warned(run, "--tools")[1:] == [("providers.deep10.tools.fold", "too_deep")]
    said = run("doctor", "--tools").out
    assert "the description of the tool 'get_user' says no more than its name: 'Gets the users.'" in said
    assert "the schema of the tool 'fold' has 11 levels and 1 properties; strict mode takes 10 and 5,000" in said


@pytest.mark.process
@pytest.mark.requirement("C-10-doctor-lint")
def test_settings_that_surprise_are_warned_of(run: Run, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALICE_KEY", "a-long-enough-key")
    with kept_port() as port:
        write(
            "auth:\n"
            "  api_keys:\n"
            '    - {key: "${ALICE_KEY}", subject: alice}\n'
            "    - {key: in-the-open-for-all, subject: bob}\n"
            f"    - {{sha256: {'0' * 64}, subject: carol}}\n"
            "  jwt:\n"
            "    algorithms: [RS256]\n"
            f"    jwks_url: http://127.0.0.1:{port}/keys\n"
            "    issuer: a\n"
            "    audience: b\n"
            "mcp_servers:\n"
            "  clock: {command: pyhton3}\n"
            "  off: {command: pyhton3, enabled: false}\n"
            "  here: {command: ./serve.sh}\n"
            "  shell: {command: sh}\n"
        )
        done = run("doctor", "--json")
    assert done.code == 0
    assert "in-the-open" not in done.out
    assert [(item["line"], item["path"], item["code"]) for item in done.json["warnings"]] == [
        (4, "auth.api_keys[1].key", "plain_secret"),
        (12, "mcp_servers.clock.command", "command_not_found"),
        (14, "mcp_servers.here.command", "command_not_found"),
        (0, "auth.jwt.jwks_url", "key_set_down"),
    ]


@pytest.mark.requirement("C-10-doctor")
def test_each_finding_is_printed_once(run: Run, write: Write, package: Package) -> None:
    package("toolplug-lint", {"poor": "lint_mod:Poor", "rich": "lint_mod:Rich"}, lint_mod=TOOLS)
    write(
        "providers:\n  one: {type: rich, enabled: true}\n  two: {type: rich, enabled: true, tools: {nothing: deny}}\n"
    )
    done = run("doctor")
    assert (done.code, done.err) == (1, "")
    assert done.out.count("has no tool 'nothing'") == 1
    write("providers:\n  one: {type: rich, enabled: true}\n  two: {type: rich, enabled: true}\n")
    done = run("doctor")
    assert done.err == ""
    assert done.out.count("its tool 'equip' is not listed") == 1
    assert "the tool 'equip' of provider 'two' is not listed" in run("tools").err


@pytest.mark.requirement("C-10-doctor")
def test_a_store_that_cannot_be_opened_hides_no_other_finding(run: Run, write: Write) -> None:
    write("store: redsi://h/0\nauth: {api_keys: [{key: long-enough-for-a-key, subject: bob, agents: [nobody]}]}\n")
    done = run("doctor", "--json")
    assert done.code == 1
    assert [(item["path"], item["code"]) for item in done.json["problems"]] == [
        ("store", "store_url"),
        ("auth.api_keys[0].agents[0]", "unknown_agent"),
    ]
    assert done.json["problems"][0]["hint"] == "nearest: 'redis' (pip install toolplug-redis)"
    assert [item["code"] for item in done.json["warnings"]] == ["plain_secret"]
