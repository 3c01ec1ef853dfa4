"""providers.yaml: what it means, and every problem at once with its place."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.host.conftest import Package

from toolplug import CallContext, Principal, ToolCall, open_host
from toolplug.errors import ConfigError
from toolplug.providers.entry import ProviderState

pytestmark = pytest.mark.anyio

NOTES = """
    from pydantic import BaseModel, ConfigDict, SecretStr
    from toolplug import FunctionProvider, tool

    class Notes(FunctionProvider):
        class Config(BaseModel):
            limit: int = 100
            token: SecretStr | None = None

        @tool
        async def read(self) -> str:
            return f"{self.key} {self.config.limit}"

        @tool(timeout="2s")
        async def write(self) -> str:
            return "written"

    class Open(FunctionProvider):
        class Config(BaseModel):
            model_config = ConfigDict(extra="allow")

        @tool
        async def known(self) -> object:
            return self.config.model_extra

    def made(key, config):
        provider = Open()
        provider.config = Open.Config(key=key, **config)
        return provider
"""
POINTS = {"notes": "notes_mod:Notes", "open_notes": "notes_mod:Open", "made": "notes_mod:made"}
ME = Principal(scopes=frozenset({"tools:call"}))
Write = Callable[[str], Path]


@pytest.fixture
def notes(package: Package) -> None:
    package("toolplug-notes", POINTS, notes_mod=NOTES)


async def problems(path: Path, **environ: str) -> list[str]:
    """What the host says of a wrong file, without the directory that it stands in."""
    with pytest.raises(ConfigError) as caught:
        async with open_host(path, environ=environ):
            raise AssertionError("it must not start")
    return [str(problem).replace(str(path.parent) + "/", "") for problem in caught.value.problems]


@pytest.mark.usefixtures("notes")
@pytest.mark.requirement("FR-014", "FR-016", "C-12-config", "C-2-own-keys", "C-12-entry-point", "REG-config-schema")
@pytest.mark.requirement("C-1-second-instance")
async def test_an_entry_names_its_type_and_holds_the_providers_own_settings(config: Write) -> None:
    path = config(
        """
        providers:
          notes: {enabled: true, limit: 3}
          more: {enabled: true, type: notes, settings: {limit: 7}}
          made: {enabled: true, settings: {enabled: 1, colour: red}}
        """
    )
    async with open_host(path, environ={}) as host:
        assert list(host.registry.catalog) == ["read", "write", "known"]
        read = await host.registry.execute(ToolCall("1", "read"), CallContext())
        made = await host.registry.execute(ToolCall("2", "known"), CallContext())
        assert read.output == "notes 3"
        assert made.structured == {"key": "made", "enabled": 1, "colour": "red"}
        states = [(record.key, record.type, record.state, record.distribution) for record in host.records()][:3]
    assert states == [
        ("notes", "notes", ProviderState.ACTIVE, "toolplug-notes"),
        ("more", "notes", ProviderState.SHADOWED, "toolplug-notes"),
        ("made", "made", ProviderState.ACTIVE, "toolplug-notes"),
    ]


@pytest.mark.usefixtures("notes")
@pytest.mark.requirement("C-12-config-open")
async def test_a_config_that_allows_other_keys_gets_them(config: Write) -> None:
    path = config("providers: {open_notes: {enabled: true, anything: [1, 2]}}")
    async with open_host(path, environ={}) as host:
        known = await host.registry.execute(ToolCall("1", "known"), CallContext())
    assert known.structured == {"anything": [1, 2]}


@pytest.mark.usefixtures("notes")
@pytest.mark.requirement("C-2-reserved-keys", "C-2-settings")
async def test_reserved_keys_are_the_hosts_unless_they_stand_under_settings(config: Write) -> None:
    reserved = "enabled: true, type: open_notes, required: true, offer: always, public_routes: false, limits: {}"
    path = config(
        f"""
        providers:
          flat: {{{reserved}, tools: {{known: allow}}, own: 1}}
          nested: {{enabled: true, type: open_notes, settings: {{{reserved}, tools: 5, settings: x, own: 2}}}}
        """
    )
    async with open_host(path, environ={}) as host:
        running = host.registry.running()
        assert [(entry.key, entry.type) for entry in (item.entry for item in running.values())] == [
            ("flat", "open_notes"),
            ("nested", "open_notes"),
        ]
        assert {key: item.provider.config.model_extra for key, item in running.items()} == {
            "flat": {"own": 1},
            "nested": {
                "enabled": True,
                "type": "open_notes",
                "required": True,
                "offer": "always",
                "public_routes": False,
                "limits": {},
                "tools": 5,
                "settings": "x",
                "own": 2,
            },
        }


@pytest.mark.requirement("C-1-provider-key")
@pytest.mark.parametrize("key", ["a", "a_9", "z" + "0" * 63])
async def test_a_key_of_small_letters_digits_and_lines_is_one(config: Write, key: str) -> None:
    async with open_host(config(f"providers: {{{key}: {{enabled: true, type: hello}}}}"), environ={}) as host:
        assert list(host.registry.running()) == [key]


@pytest.mark.requirement("C-1-provider-key")
@pytest.mark.parametrize("key", ["", "9a", "_a", "A", "a-b", "a.b", "a\n", "\na", "\u00e9", "z" * 65])
async def test_any_other_key_stops_the_start(config: Write, key: str) -> None:
    (problem,) = await problems(config(f"providers: {{{json.dumps(key)}: {{enabled: true, type: hello}}}}"))
    assert f"{key!r} is no provider key" in problem


@pytest.mark.requirement("H-trust-named-only")
async def test_a_package_that_no_entry_names_is_not_imported_whatever_it_would_do(
    package: Package, config: Write
) -> None:
    package("toolplug-stray", {"stray": "stray_mod:Stray"}, stray_mod="raise SystemExit('imported')")
    async with open_host(config("providers: {hello: {enabled: true}}"), environ={}) as host:
        states = {record.key: record.state for record in host.records()}
        assert (states["hello"], states["stray"]) == (ProviderState.ACTIVE, ProviderState.INSTALLED_NOT_ENABLED)
        assert "stray_mod" not in sys.modules


@pytest.mark.usefixtures("notes")
@pytest.mark.requirement("FR-015", "C-2-enabled-default", "C-2-disabled-rest", "REG-US1-3")
async def test_a_provider_that_is_not_enabled_is_not_even_imported(config: Write) -> None:
    path = config(
        """
        providers:
          notes: {limit: nonsense, token: "${UNSET}", tools: 5}
          made: {enabled: false}
        """
    )
    async with open_host(path, environ={}) as host:
        assert len(host.registry.catalog) == 0
        states = {record.key: record.state for record in host.records()}
        assert (states["notes"], states["made"]) == (ProviderState.DISABLED, ProviderState.DISABLED)
        assert states["hello"] is ProviderState.INSTALLED_NOT_ENABLED
        assert "notes_mod" not in sys.modules


@pytest.mark.usefixtures("notes")
@pytest.mark.requirement("C-2-problem-place", "C-2-unknown-type", "C-2-unknown-key", "C-2-wrong-value", "FR-017")
@pytest.mark.requirement(
    "C-2-known-packages",
    "C-2-settings-and-flat",
    "C-2-store-url",
    "C-3-policy-ask",
    "C-2-later-parts",
)
async def test_every_problem_is_told_at_once_with_its_place_and_the_nearest_right_thing(config: Write) -> None:
    path = config(
        """\
        providers:
          notes:
            enabled: true
            limt: 5
            limits: {timeout: soon, retrys: 1}
            tools: {read: ask}
          nots: {enabled: false}
          made: {enabled: "false"}
          file_serch: {enabled: true}
          open_notes: {enabled: true, colour: red, settings: {}}
          Bad-Key: {}
        store: sqlit://localhost
        limits: {rate: 5/week}
        responses: {max_turns: 3}
        metricss: {}
        """
    )
    assert await problems(path) == [
        "providers.yaml:4:5: providers.notes.limt: unknown key 'limt' (nearest: 'limit')",
        "providers.yaml:5:23: providers.notes.limits.timeout: should be a duration such as 500ms, 20s, 5m or 1h, or a"
        " number of seconds, not 'soon'",
        "providers.yaml:5:29: providers.notes.limits.retrys: unknown key 'retrys' (nearest: 'retries')",
        "providers.yaml:7:3: providers.nots: unknown provider type 'nots' (nearest: 'notes')",
        "providers.yaml:8:19: providers.made.enabled: should be true or false (without quotes), not 'false'",
        "providers.yaml:9:3: providers.file_serch: unknown provider type 'file_serch' (nearest: 'file_search')",
        "providers.yaml:10:44: providers.open_notes.settings: settings and the keys 'colour' next to it mean the same;"
        " keep one of them",
        "providers.yaml:11:3: providers.Bad-Key: 'Bad-Key' is no provider key; a lower-case letter, then up to 63 of"
        " a-z 0-9 _ are allowed",
        "providers.yaml:12:8: store: unknown store scheme 'sqlit' (nearest: 'sqlite')",
        "providers.yaml:13:16: limits.rate: should be a rate such as 5/second, 60/minute or 1000/hour, not '5/week'",
        "providers.yaml:14:1: responses.backend: the key 'backend' is missing",
        "providers.yaml:15:1: metricss: unknown key 'metricss' (nearest: 'metrics')",
    ]


@pytest.mark.requirement("C-3-conflict-type", "H-package-two-distributions")
async def test_two_distributions_of_one_type_are_both_named(package: Package, config: Write) -> None:
    package("toolplug-notes", {"notes": "notes_mod:Notes"}, notes_mod=NOTES)
    package("other-notes", {"notes": "other:Notes"})
    path = config("providers: {notes: {enabled: true}}")
    assert await problems(path) == [
        "providers.yaml:1:20: providers.notes: provider type 'notes' comes from other-notes 1.0 and toolplug-notes 1.0"
        " (uninstall one of them)"
    ]


@pytest.mark.usefixtures("notes")
@pytest.mark.requirement("C-2-specific-wins", "C-2-limits-global", "C-2-limits-per-tool", "C-12-tool-timeout")
async def test_the_most_specific_timeout_wins_and_says_where_it_came_from(config: Write) -> None:
    path = config(
        """\
        limits: {timeout: 30s}
        providers:
          notes:
            enabled: true
            tools:
              read: {limits: {timeout: 5s}}
          more:
            enabled: true
            type: open_notes
        """
    )
    async with open_host(path, environ={}) as host:
        catalog = host.registry.catalog
        found = {name: (tool.plan.timeout_s, str(tool.plan.settings[1].origin)) for name, tool in catalog.items()}
    assert {name: (seconds, origin.rpartition("/")[2]) for name, (seconds, origin) in found.items()} == {
        "read": (5.0, "providers.yaml:6"),
        "write": (2.0, "the tool's own timeout="),
        "known": (30.0, "providers.yaml:1"),
    }


@pytest.mark.usefixtures("notes")
@pytest.mark.requirement(
    "C-2-tenants", "C-3-unknown-tenant", "C-3-policy-deny", "C-3-policy-disable", "C-3-policy-forms"
)
async def test_rules_of_a_tool_hide_refuse_and_disable(config: Write) -> None:
    path = config(
        """
        providers:
          notes: {enabled: true, tools: {read: {tenants: [org-1]}, write: deny}}
          open_notes: {enabled: true, tools: {known: disable}}
        """
    )
    org = Principal(tenant="org-1", scopes=ME.scopes)
    async with open_host(path, environ={}) as host:
        mine, theirs = host.executor_for(ME), host.executor_for(org)
        assert (list(mine.catalog), list(theirs.catalog)) == (["write"], ["read", "write"])
        hidden = await mine.execute(ToolCall("1", "read"), CallContext(principal=ME))
        kept = await host.registry.execute(ToolCall("1", "read"), CallContext(principal=ME))
        assert hidden == kept
        assert (hidden.status, hidden.output) == ("unknown_tool", 'no builtin provider handles tool "read"')
        assert (await theirs.execute(ToolCall("1", "read"), CallContext(principal=org))).output == "notes 100"
        refused = await mine.execute(ToolCall("1", "write"), CallContext(principal=ME))
        assert refused.output == 'tool "write" is not allowed: policy: its policy is deny'
        gone = await mine.execute(ToolCall("1", "known"), CallContext(principal=ME))
        assert gone.status == "unknown_tool"


@pytest.mark.usefixtures("notes")
@pytest.mark.requirement("C-2-unknown-key")
async def test_a_rule_for_a_tool_that_does_not_exist_is_a_problem(config: Write) -> None:
    path = config("providers: {notes: {enabled: true, tools: {reed: deny}}}")
    (problem,) = await problems(path)
    assert problem == (
        "providers.yaml:1:44: providers.notes.tools.reed: provider 'notes' (toolplug-notes 1.0) has no tool 'reed'"
        " (nearest: 'read')"
    )


@pytest.mark.usefixtures("notes")
@pytest.mark.requirement("C-5-state-config-invalid", "C-2-required-false")
async def test_a_provider_that_may_fail_and_has_a_rule_for_no_tool_of_it_is_config_invalid(config: Write) -> None:
    path = config("providers: {notes: {enabled: true, required: false, tools: {reed: deny}}}")
    async with open_host(path, environ={}) as host:
        record = host.records()[0]
        assert (record.state, record.tools, record.fix) == (ProviderState.CONFIG_INVALID, (), "nearest: 'read'")
        assert record.reason == "provider 'notes' (toolplug-notes 1.0) has no tool 'reed'"
        assert (list(host.registry.catalog), await host.ready()) == ([], ())


@pytest.mark.usefixtures("notes")
@pytest.mark.requirement("C-2-required-true")
async def test_wrong_settings_stop_the_start_also_where_the_provider_may_fail(config: Write) -> None:
    path = config("providers: {notes: {enabled: true, required: false, limit: many}}")
    assert await problems(path) == ["providers.yaml:1:60: providers.notes.limit: should be a whole number, not 'many'"]


@pytest.mark.requirement("H-provider-raises")
@pytest.mark.parametrize("raised", ["RuntimeError", "SystemExit", "KeyError"])
async def test_settings_whose_validator_fails_are_a_problem_that_keeps_their_secrets(
    package: Package, config: Write, raised: str
) -> None:
    code = f"""
        from pydantic import BaseModel, field_validator
        from toolplug import FunctionProvider

        class Odd(FunctionProvider):
            class Config(BaseModel):
                word: str

                @field_validator("word")
                @classmethod
                def _refuse(cls, word):
                    raise {raised}(word)
    """
    package("toolplug-odd", {"odd": "odd_mod:Odd"}, odd_mod=code)
    path = config('providers: {odd: {enabled: true, word: "${WORD}"}}')
    (problem,) = await problems(path, WORD="hunter2")
    assert problem.startswith("providers.yaml:1:13: providers.odd: the Config of toolplug-odd 1.0 raised " + raised)
    assert "hunter2" not in problem


@pytest.mark.requirement("H-package-import-error", "H-package-system-exit", "H-package-missing-attribute")
@pytest.mark.requirement("C-2-required-false")
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ImportError('no numpy')", "importing bad_mod raised ImportError: no numpy"),
        ("raise SystemExit(1)", "importing bad_mod raised SystemExit: 1"),
        ("Nots = 1", "bad_mod has no 'Notes'"),
        (
            "Notes = 5",
            "bad_mod:Notes is no plugin: write a FunctionProvider subclass, a function or class of (key, config)",
        ),
    ],
)
async def test_a_package_that_cannot_be_imported_is_fatal_only_if_it_is_enabled_and_required(
    package: Package, config: Write, code: str, said: str
) -> None:
    package("toolplug-bad", {"bad": "bad_mod:Notes"}, bad_mod=code)
    (problem,) = await problems(config("providers: {bad: {enabled: true}}"))
    assert problem.startswith(f"providers.yaml:1:13: providers.bad: toolplug-bad 1.0 (bad): {said}")
    assert problem.endswith("(reinstall or update toolplug-bad, or remove its entry)")
    async with open_host(config("providers: {bad: {enabled: false}}"), environ={}) as host:
        assert host.records()[0].state is ProviderState.DISABLED
    async with open_host(config("providers: {bad: {enabled: true, required: false}}"), environ={}) as host:
        failed = host.records()[0]
        assert (failed.state, await host.ready()) == (ProviderState.IMPORT_FAILED, ())
        assert failed.reason.startswith(f"toolplug-bad 1.0 (bad): {said}")


@pytest.mark.requirement("C-12-open-host-settings", "C-12-open-host-lazy", "C-2-namespace")
async def test_a_mapping_does_as_well_and_a_host_may_be_entered_again() -> None:
    host = open_host(
        {"providers": {"hello": {"enabled": True}}, "store": "memory://", "metrics": {"namespace": "acme"}}
    )
    for _ in range(2):
        assert not host.entered
        async with host:
            await host.registry.execute(ToolCall("1", "hello"), CallContext())
            labels = {"provider": "hello", "tool_name": "hello", "status": "success"}
            assert host.metrics.get_sample_value("acme_builtin_tool_executions_total", labels) == 1
    with pytest.raises(RuntimeError, match="not entered"):
        host.registry  # noqa: B018


@pytest.mark.usefixtures("notes")
@pytest.mark.requirement("C-2-secrets-hidden")
async def test_no_secret_stands_in_a_problem_or_a_record(config: Write) -> None:
    path = config("providers: {notes: {enabled: true, token: '${TOKEN}', limit: '${TOKEN}'}}")
    (problem,) = await problems(path, TOKEN="hunter2hunter2")
    assert "hunter2" not in problem
    assert problem.startswith("providers.yaml:1:62: providers.notes.limit: should be a whole number")


@pytest.mark.usefixtures("notes")
@pytest.mark.requirement("C-2-limit-drain", "C-2-limit-queue")
async def test_a_limit_that_could_not_act_where_it_stands_is_refused(config: Write) -> None:
    path = config(
        """\
        limits: {queue: 3}
        providers:
          notes:
            enabled: true
            tools: {read: {limits: {drain: 1s}}, write: {limits: {queue: 1}}}
        """
    )
    assert await problems(path) == [
        "providers.yaml:1:9: limits: queue needs max_concurrency, whose places calls wait for",
        "providers.yaml:5:19: providers.notes.tools.read: limits.drain is for all tools together; set it"
        " under the limits of the whole entry",
        "providers.yaml:5:49: providers.notes.tools.write: queue needs max_concurrency, whose places calls wait for",
    ]


@pytest.mark.usefixtures("notes")
@pytest.mark.requirement("I17-4-config")
async def test_a_scope_that_counts_no_call_is_refused(config: Write) -> None:
    path = config(
        """\
        limits: {scope: cluster}
        toolsets: {web: {prefix: web, from: "provider:notes", limits: {rate: 1/second, without_store: share}}}
        providers:
          notes:
            enabled: true
            limits: {rate: 1/second, scope: everywhere}
            tools: {read: {limits: {rate: 1/second, scope: process, without_store: share}}}
        """
    )
    assert await problems(path) == [
        "providers.yaml:1:9: limits: scope needs rate or max_concurrency here, whose calls it counts",
        "providers.yaml:2:63: toolsets.web.limits: without_store needs scope: cluster; else no store counts",
        "providers.yaml:6:37: providers.notes.limits.scope: should be 'process' or 'cluster', not 'everywhere'",
        "providers.yaml:7:28: providers.notes.tools.read.limits: without_store needs scope: cluster; else no store"
        " counts",
    ]


@pytest.mark.requirement("C-5-origin", "C-5-hosts-other")
async def test_hosts_and_origins_that_no_browser_sends_are_refused(config: Write) -> None:
    path = config(
        """\
        http:
          allowed_hosts: [tools.example.org, "tools.example.org:8443", "[::1]:80", "::1", "*.example.org", "http://tools"]
          allowed_origins:
            - https://app.example.org
            - http://localhost:8000/
            - http://[::1]:8000
            - chrome-extension://abcdefgh
            - "null"
            - "*"
            - localhost:8000
            - https://app.example.org/page
        """
    )
    origin = "should be an origin as browsers send it, such as https://app.example.org, without path and wildcards"
    host = "should be a host name as in the Host header, such as tools.example.org, without wildcards"
    assert await problems(path) == [
        f"providers.yaml:2:83: http.allowed_hosts[4]: {host}, not '*.example.org'",
        f"providers.yaml:2:100: http.allowed_hosts[5]: {host}, not 'http://tools'",
        f"providers.yaml:9:7: http.allowed_origins[5]: {origin}, not '*'",
        f"providers.yaml:10:7: http.allowed_origins[6]: {origin}, not 'localhost:8000'",
        f"providers.yaml:11:7: http.allowed_origins[7]: {origin}, not 'https://app.example.org/page'",
    ]


@pytest.mark.requirement("C-5-edge-settings", "C-5-peer")
async def test_wrong_limits_of_the_edge_are_refused_with_their_place(config: Write) -> None:
    path = config(
        """\
        http:
          edge:
            head_bytes: 5GB
            head_s: 0
            idle_s: [1]
            connections: 0
            streams: 5
          trusted_proxies: [10.0.0.5, 10.1.0.0/16, "fd00::/8", proxy.example.org, 10.1.0.1/16]
        """
    )
    proxy = "should be an address or a network, such as 10.0.0.5 or 10.1.0.0/16"
    assert await problems(path) == [
        "providers.yaml:3:17: http.edge.head_bytes: should be a size such as 200KiB or 1MiB, or a whole number of"
        " bytes, not '5GB'",
        "providers.yaml:4:13: http.edge.head_s: should be greater than 0, not 0",
        "providers.yaml:5:13: http.edge.idle_s: should be a duration such as 500ms, 20s, 5m or 1h, or a number of"
        " seconds, not a list",
        "providers.yaml:6:18: http.edge.connections: should be at least 1, not 0",
        "providers.yaml:7:5: http.edge.streams: unknown key 'streams' (nearest: 'streams_per_key')",
        f"providers.yaml:8:56: http.trusted_proxies[3]: {proxy}, not 'proxy.example.org'",
        f"providers.yaml:8:75: http.trusted_proxies[4]: {proxy}, not '10.1.0.1/16'",
    ]
