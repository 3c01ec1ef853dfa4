"""Problems of providers.yaml side by side: none of them hides another, and an empty section is one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.host.conftest import Package

from toolplug.errors import ConfigError
from toolplug.host.file.configuration import read_configuration
from toolplug.packages.entry_points import find_installed

NOTES = """
    from pydantic import BaseModel
    from toolplug import FunctionProvider

    class Notes(FunctionProvider):
        class Config(BaseModel):
            limit: int = 100

    class Clock(FunctionProvider):
        pass

    def made(key, config):
        raise AssertionError("its settings are wrong")
"""
POINTS = {"notes": "notes_mod:Notes", "clock": "notes_mod:Clock", "made": "notes_mod:made"}
Write = Callable[[str], Path]


@pytest.fixture(autouse=True)
def notes(package: Package) -> None:
    package("toolplug-notes", POINTS, notes_mod=NOTES)


def problems(path: Path, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_configuration(path, environ, find_installed())
    return [str(problem).replace(f"{path.parent}/", "") for problem in caught.value.problems]


@pytest.mark.requirement("C-2-all-problems", "C-2-duplicate-key", "C-2-dead-allowlist", "C-2-duplicate-prefix")
def test_no_kind_of_problem_hides_another(config: Write) -> None:
    path = config(
        """\
        providers:
          notes: {enabled: true, limt: 5}
          nots: {enabled: true}
          notes: {}
        http: {max_body: 5GB}
        toolsets:
          web: {prefix: web, from: provider:notes}
          two: {prefix: web, from: provider:notes}
          bad: {prefix: 5, from: provider:notes}
        agents: {researcher: {toolsets: [web, bad, wbe]}}
        """
    )
    assert problems(path) == [
        "providers.yaml:2:26: providers.notes.limt: unknown key 'limt' (nearest: 'limit')",
        "providers.yaml:3:3: providers.nots: unknown provider type 'nots' (nearest: 'notes')",
        "providers.yaml:4:3: providers.notes: duplicate key 'notes' (lines 2 and 4) (keep one of them)",
        "providers.yaml:5:18: http.max_body: should be a size such as 200KiB or 1MiB, or a whole number of bytes, not"
        " '5GB'",
        "providers.yaml:8:17: toolsets.two.prefix: the prefix 'web' is that of toolset 'web' in line 7; give another"
        " one",
        "providers.yaml:9:17: toolsets.bad.prefix: should be text, not 5 (write it in quotes)",
        "providers.yaml:10:44: agents.researcher.toolsets[2]: there is no toolset 'wbe' (nearest: 'web')",
    ]


@pytest.mark.requirement("C-2-settings", "C-2-unknown-key")
def test_a_reserved_key_under_settings_is_the_providers_own_and_so_is_the_nearest_one(config: Write) -> None:
    path = config("providers: {notes: {enabled: true, settings: {limits: {}}}}")
    assert problems(path) == [
        "providers.yaml:1:47: providers.notes.settings.limits: unknown key 'limits' (nearest: 'limit')"
    ]


@pytest.mark.requirement("C-2-problem-place", "C-2-unknown-key", "C-2-wrong-value")
def test_each_key_for_a_provider_without_settings_is_told_where_it_stands(config: Write) -> None:
    path = config(
        """\
        providers:
          clock: {enabled: true, public_route: true, settings2: 5}
          more: {enabled: true, type: clock, settings: {limits: {}}}
          made: {enabled: true, settings: 5}
        """
    )
    assert problems(path) == [
        "providers.yaml:2:26: providers.clock.public_route: unknown key 'public_route'; toolplug-notes 1.0 takes no"
        " settings (nearest: 'public_routes')",
        "providers.yaml:2:46: providers.clock.settings2: unknown key 'settings2'; toolplug-notes 1.0 takes no settings"
        " (nearest: 'settings')",
        "providers.yaml:3:49: providers.more.settings.limits: unknown key 'limits'; toolplug-notes 1.0 takes no"
        " settings",
        "providers.yaml:4:35: providers.made.settings: should be a mapping of settings",
    ]


@pytest.mark.requirement("C-2-all-problems", "C-2-dead-allowlist")
def test_a_fault_of_a_section_hides_none_of_what_is_found_across_sections(config: Write) -> None:
    path = config(
        """\
        sessions: {ttl: soon, default_toolset: nix}
        auth:
          api_keys:
            - {key: "${KEY}", subject: a, scope: [tools:call]}
            - {key: "${KEY}", subject: b, agents: [ghost]}
            - {key: "${KEY}", subject: c, scopes: [tools:cal]}
        agents: {researcher: {toolsets: [nix]}}
        """
    )
    assert problems(path, KEY="hunter2") == [
        "providers.yaml:1:17: sessions.ttl: should be a duration such as 500ms, 20s, 5m or 1h, or a number of seconds,"
        " not 'soon'",
        "providers.yaml:1:40: sessions.default_toolset: there is no toolset 'nix'",
        "providers.yaml:3:3: auth: api_keys[1] and api_keys[2] are the same key; a key has one holder",
        "providers.yaml:4:35: auth.api_keys[0].scope: unknown key 'scope' (nearest: 'scopes')",
        "providers.yaml:5:44: auth.api_keys[1].agents[0]: there is no agent 'ghost' under agents (known: 'researcher')",
        "providers.yaml:6:44: auth.api_keys[2].scopes[0]: neither the host nor a route of an enabled provider asks for"
        " the scope 'tools:cal' (nearest: 'tools:call')",
        "providers.yaml:7:34: agents.researcher.toolsets[0]: there is no toolset 'nix'",
    ]


@pytest.mark.requirement("C-2-wrong-value", "C-2-secrets-hidden")
def test_a_key_with_two_holders_is_refused_and_not_shown(config: Write) -> None:
    path = config(
        'auth: {api_keys: [{key: "${KEY}", subject: a}, {key: other, subject: b}, {key_file: k, subject: c}]}'
    )
    (path.parent / "k").write_text("hunter2\n")
    assert problems(path, KEY="hunter2") == [
        "providers.yaml:1:7: auth: api_keys[0] and api_keys[2] are the same key; a key has one holder"
    ]


@pytest.mark.requirement("C-5-auth-empty")
@pytest.mark.parametrize("auth", ["", "null", "${AUTH}", "{}", "[]", "{api_keys: []}", "{basic: {}}"])
def test_auth_that_is_there_and_lets_nobody_in_stops_the_start(config: Write, auth: str) -> None:
    (problem,) = problems(config(f"auth: {auth}"), AUTH="")
    assert problem.startswith("providers.yaml:1:")
    assert " auth" in problem
