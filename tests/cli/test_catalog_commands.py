"""`toolplug providers`, `tools`, `explain`, `doctor` and `diff`: what they tell of a configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run

Write = Callable[..., Path]
Package = Callable[..., None]

PAIR = f"""
    from toolplug import FunctionProvider, tool

    class One(FunctionProvider):
        @tool(description="{"x" * 1025}")
        async def shared(self) -> str:
            return "one"

        @tool
        async def own(self) -> str:
            return "own"

    class Two(FunctionProvider):
        @tool
        async def shared(self) -> str:
            return "two"

    class Late(FunctionProvider):
        def tools(self):
            return self.known

    class Broken(FunctionProvider):
        async def start(self, site):
            raise ValueError("no disk")
"""


@pytest.fixture
def pair(package: Package) -> None:
    types = {"one": "pair_mod:One", "two": "pair_mod:Two", "late": "pair_mod:Late", "broken": "pair_mod:Broken"}
    package("toolplug-pair", types, pair_mod=PAIR)
    package("toolplug-gone", {"gone": "no_such_module:X"})


@pytest.mark.requirement("C-10-providers", "C-10-doctor", "C-10-exit-codes", "C-5-state-config-invalid")
def test_every_provider_has_one_state_a_reason_and_a_fix(run: Run, write: Write, pair: None) -> None:
    write(
        "providers: {one: {enabled: true}, two: {enabled: true}, hello: {enabled: true, greting: x},"
        " gone: {enabled: true}, late: {}, broken: {enabled: true}, nosuch: {}}"
    )
    done = run("providers", "--json")
    records = {record["key"]: record for record in done.json["providers"]}
    assert (done.code, sorted(done.codes)) == (1, ["import_failed", "unknown_key", "unknown_provider"])
    assert {
        key: record["state"]
        for key, record in records.items()
        if key
        not in (
            "code_interpreter",
            "code_mode",
            "console",
            "fastmcp",
            "file_search",
            "guard",
            "host",
            "journal",
            "langchain",
            "llama_index",
            "llm",
            "notify",
            "openapi",
            "otel",
            "postgres",
            "postgresql",
            "redis",
            "rediss",
            "skills",
            "tasks",
            "toolsets",
            "web_search",
        )
    } == {
        "one": "active",
        "two": "shadowed",
        "hello": "config-invalid",
        "gone": "import-failed",
        "late": "disabled",
        "broken": "start-failed",
        "nosuch": "config-invalid",
    }
    assert all(record["reason"] and record["fix"] for key, record in records.items() if key not in ("one", "nosuch"))
    assert set(records["one"]) == {
        *("key", "type", "state", "summary", "reason", "fix", "tools", "routes", "hooks", "distribution", "version"),
    }
    assert (records["one"]["tools"], records["one"]["distribution"]) == (["shared", "own"], "toolplug-pair")
    plain = run("providers")
    assert all(f"\n{key}" in plain.out for key in records)
    assert "providers.hello.greting: unknown key 'greting'" in plain.err
    explained = run("explain", "own", "--json")
    assert (explained.code, explained.json["callable"], explained.codes) == (1, True, done.codes)


@pytest.mark.requirement("C-10-providers", "C-10-explain", "C-10-exit-codes")
def test_a_wrong_server_stops_neither_a_host_nor_these_commands(run: Run, write: Write) -> None:
    write("providers: {hello: {enabled: true}}\nmcp_servers: {web: {command: x, url: http://x}}")
    assert [run(*line).code for line in (["providers"], ["explain", "hello"], ["tools"])] == [0, 0, 0]
    assert run("check").code == 1


@pytest.mark.requirement("C-10-providers", "C-10-explain", "C-10-exit-codes")
def test_what_stops_a_host_is_told_also_where_it_stands_among_the_servers(run: Run, write: Write) -> None:
    write("providers: {hello: {enabled: true}}\nmcp_servers: {web: {command: x, command: y}}")
    for line in ("check",), ("providers",), ("explain", "hello"), ("tools",):
        done = run(*line, "--json")
        assert (done.code, done.codes) == (1, ["duplicate_key"]), line


@pytest.mark.requirement("C-10-providers", "I2-done-wheel-listed", "C-10-config")
def test_an_installed_package_is_listed_with_the_yaml_to_paste_also_without_a_configuration(
    run: Run, package: Package
) -> None:
    package("toolplug-rain", {"rain": "rain_mod:Rain"})
    done = run("providers")
    assert done.code == 0
    assert "installed-not-enabled" in done.out
    assert "providers:\n    rain:\n      enabled: true" in done.out.replace("  providers", "providers")


@pytest.mark.requirement("C-10-tools")
def test_tools_are_listed_in_order_and_in_every_dialect(run: Run, write: Write, pair: None) -> None:
    write("providers: {hello: {enabled: true}, one: {enabled: true}}")
    assert [line.split()[0] for line in run("tools").out.splitlines()] == ["TOOL", "hello", "shared", "own"]
    chat = run("tools", "--json").json["tools"]
    assert [tool["function"]["name"] for tool in chat] == ["hello", "shared", "own"]
    assert "input_schema" in run("tools", "--format", "anthropic").json["tools"][0]
    assert "inputSchema" in run("tools", "--format", "mcp").json["tools"][0]
    assert run("tools", "--format", "responses").json["tools"][0]["name"] == "hello"


@pytest.mark.requirement("C-10-explain", "I2-3-explain-effective", "C-10-operator")
def test_every_gate_and_every_knob_names_the_line_that_decided(run: Run, write: Write) -> None:
    write(
        "limits: {timeout: 9s}\n"
        "providers:\n"
        "  hello:\n"
        "    enabled: true\n"
        "    limits: {retries: 2}\n"
        "    tools:\n"
        "      hello:\n"
        "        policy: deny\n"
        "        tenants: [t1]\n"
    )
    done = run("explain", "hello", "--json")
    gates = {gate["gate"]: gate for gate in done.json["gates"]}
    assert (done.code, done.json["callable"]) == (1, False)
    assert list(gates)[:4] == ["switch", "tenants", "policy", "scope"]
    assert (gates["switch"]["verdict"], gates["switch"]["origin"]) == ("passes", "providers.yaml:4")
    assert (gates["tenants"]["verdict"], gates["tenants"]["origin"]) == ("refuses", "providers.yaml:9")
    assert (gates["policy"]["verdict"], gates["policy"]["origin"]) == ("refuses", "providers.yaml:8")
    knobs = {item["name"]: (item["value"], item["origin"]) for item in done.json["settings"]}
    assert knobs["timeout"] == ("9s", "providers.yaml:1")
    assert knobs["retries"] == ("2", "providers.yaml:5")
    assert knobs["drain"] == ("30s", "default")
    inside = run("explain", "hello", "--tenant", "t1", "--json").json
    assert [gate["gate"] for gate in inside["gates"] if gate["verdict"] == "refuses"] == ["policy"]
    assert "providers.yaml:8" in run("explain", "hello").out


@pytest.mark.requirement("C-10-explain")
def test_a_name_that_nobody_lists_is_told_its_nearest_and_where_it_lives(run: Run, write: Write, pair: None) -> None:
    write(
        "providers:\n  hello:\n    enabled: true\n    tools: {hello: disable}\n  one:\n    enabled: true\n  two: {}\n"
    )
    disabled = run("explain", "hello", "--json").json
    assert (disabled["found"], disabled["gates"][0]["gate"], disabled["gates"][0]["origin"]) == (
        *(False, "policy"),
        "providers.yaml:4",
    )
    off = run("explain", "two", "--json").json["gates"][0]
    assert (off["gate"], off["origin"]) == ("provider", "providers.yaml:7")
    assert "is disabled" in off["detail"]
    assert run("explain", "sharedd", "--json").json["nearest"] == ["shared"]
    agent = run("explain", "own", "--agent", "nobody", "--json")
    assert (agent.code, agent.json["gates"][0]["gate"]) == (1, "agent")
    session = run("explain", "own", "--session", "ABCDEFGH", "--json")
    assert (session.code, session.codes) == (1, ["session_not_found"])
    assert run("explain", "own").code == 0


@pytest.mark.requirement("C-10-doctor")
def test_the_doctor_tells_every_error_and_warning(run: Run, write: Write, pair: None) -> None:
    write("providers: {one: {enabled: true}, two: {enabled: true}, broken: {enabled: true}, hello: {enabld: true}}")
    done = run("doctor", "--json")
    assert done.code == 1
    assert done.codes == ["start_failed"]
    warned = {item["code"] for item in done.json["warnings"]}
    assert warned == {"shadowed", "conflict", "long_description", "no_description"}
    assert set(done.json["versions"]) >= {"python", "toolplug", "pydantic"}
    write("providers: {one: {enabled: true, wrong: 1}}")
    assert run("doctor", "--json").codes == ["unknown_key"]
    write("providers: {one: {enabled: true}}")
    warned = run("doctor")
    assert warned.code == 0
    assert "1025 characters" in warned.out
    assert "the tool 'own' has no description" in warned.out
    assert warned.out.endswith("0 errors, 2 warnings\n")


def test_the_doctor_tells_of_packages_that_clash_and_of_a_store_that_cannot_be_opened(
    run: Run, write: Write, package: Package, tmp_path: Path
) -> None:
    package("toolplug-rain-one", {"rain": "rain_one:Rain"})
    package("toolplug-rain-two", {"rain": "rain_two:Rain"})
    none = run("doctor", "--json")
    assert none.code == 0
    assert [item["code"] for item in none.json["warnings"]] == ["no_configuration", "two_distributions"]
    (tmp_path / "state.db").write_bytes(b"no database" * 1000)
    write("store: sqlite:///./state.db")
    assert run("doctor", "--json").codes == ["store_refused"]


@pytest.mark.requirement("C-10-diff", "I2-4-plan-apply")
def test_diff_tells_what_a_reload_would_do_and_starts_nothing(run: Run, write: Write, pair: None) -> None:
    write("providers: {hello: {enabled: true}, one: {enabled: true}, broken: {enabled: true}}")
    other = (
        "providers: {hello: {enabled: true, greeting: Hi}, two: {enabled: true}, broken: {enabled: true},"
        " late: {enabled: true}}\nlimits: {timeout: 5s}\nmetrics: {namespace: other}"
    )
    write(other, "other.yaml")
    assert run("diff", "other.yaml", "--json").json == {
        "providers": {
            "started": ["two", "late"],
            "stopped": ["one"],
            "changed": ["hello", "broken"],
            "kept": [],
            "unknown": ["late"],
        },
        "tools": {
            "added": [],
            "removed": ["own"],
            "modified": ["shared"],
            "replanned": ["hello"],
            "reordered": False,
        },
        "sections": {"changed": ["limits", "metrics"], "restart": ["metrics"]},
    }
    plain = run("diff", "other.yaml").out
    assert "a reload is refused" in plain
    assert "lists its tools only when it runs" in plain
    same = run("diff", "providers.yaml", "--json").json
    assert same["providers"]["kept"] == ["hello", "one", "broken"]
    assert (same["tools"]["added"], same["sections"]["changed"]) == ([], [])


def test_a_provider_that_is_on_and_offers_nothing_is_not_called_off(run: Run, write: Write) -> None:
    write("providers: {}")
    assert run("tools").out.startswith("no tools: no provider is enabled; ")
    write("providers: {hello: {enabled: true, tools: {hello: disable}}}")
    assert run("tools").out.startswith("no tools: the enabled providers have none")
