"""Wrong `toolsets:` and `agents:` sections: every problem at once, with its place and the nearest right thing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.host.conftest import Package

from toolplug.errors import ConfigError
from toolplug.host.file.configuration import Coded, read_configuration
from toolplug.packages.entry_points import find_installed

NOTES = """
    from toolplug import FunctionProvider, tool

    class Notes(FunctionProvider):
        @tool
        async def read(self) -> str:
            return "read"
"""
Write = Callable[[str], Path]


@pytest.fixture(autouse=True)
def notes(package: Package) -> None:
    package("toolplug-notes", {"notes": "notes_mod:Notes"}, notes_mod=NOTES)


def problems(path: Path, **coded: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_configuration(path, {}, find_installed(), Coded(coded))
    return [str(problem).replace(str(path.parent) + "/", "") for problem in caught.value.problems]


@pytest.mark.requirement("C-2-dead-allowlist", "C-2-duplicate-prefix", "C-7-prefix-error", "C-1-prefix")
def test_what_toolsets_and_agents_name_wrongly_is_told_at_once(config: Write) -> None:
    path = config(
        """\
        providers: {notes: {enabled: true}, idle: {type: notes}}
        toolsets:
          web: {prefix: web, from: provider:nots}
          two: {prefix: web, from: provider:notes}
          idle: {prefix: idle, from: provider:idle}
          Bad: {prefix: bad, from: provider:notes}
        agents:
          researcher: {toolsets: [web, webb]}
          a b: {}
        sessions: {default_toolset: tow}
        """
    )
    assert problems(path) == [
        "providers.yaml:3:28: toolsets.web.from: there is no provider 'nots' under providers (nearest: 'notes')",
        "providers.yaml:4:17: toolsets.two.prefix: the prefix 'web' is that of toolset 'web' in line 3; give another"
        " one",
        "providers.yaml:6:3: toolsets.Bad: 'Bad' is no id of one of the toolsets; a lower-case letter, then up to 63 of"
        " a-z 0-9 _ - are allowed",
        "providers.yaml:8:32: agents.researcher.toolsets[1]: there is no toolset 'webb' (nearest: 'web')",
        "providers.yaml:9:3: agents.\"a b\": 'a b' is no id of one of the agents; a letter or digit, then up to 127 of"
        " A-Z a-z 0-9 _ . - are allowed",
        "providers.yaml:10:29: sessions.default_toolset: there is no toolset 'tow' (nearest: 'two')",
    ]


@pytest.mark.requirement("C-7-prefix-error")
def test_the_shape_of_both_sections_is_checked(config: Write) -> None:
    path = config(
        """\
        providers: {notes: {enabled: true}}
        toolsets:
          dotted: {prefix: a.b, from: provider:nots}
          empty: {prefix: "", from: notes}
          none: {from: "provider:", scop: shared}
          own: {prefix: own, from: provider:notes, scope: session}
          again: {prefix: own, from: provider:notes}
        agents:
          researcher: {toolset: [web]}
        """
    )
    assert [line.partition(": ")[2] for line in problems(path)] == [
        "toolsets.dotted.prefix: should be a lower-case letter, then up to 31 of a-z 0-9 _ -, not 'a.b'",
        "toolsets.dotted.from: there is no provider 'nots' under providers (nearest: 'notes')",
        "toolsets.empty.prefix: should be a lower-case letter, then up to 31 of a-z 0-9 _ -, not ''",
        "toolsets.empty.from: should be provider:notes for a provider, or mcp:notes for an MCP server, not 'notes'",
        "toolsets.none.prefix: the key 'prefix' is missing",
        "toolsets.none.from: should be provider: and the key of a provider, mcp: and the id of an MCP server, or the"
        " kind of a plugin's source, a colon and its address, not"
        " 'provider:'",
        "toolsets.none.scop: unknown key 'scop' (nearest: 'scope')",
        "toolsets.own: scope must be shared: a provider runs once, for every session; a toolset that is made for each"
        " session is that of an MCP server, or registered by code, with a factory",
        "toolsets.again.prefix: the prefix 'own' is that of toolset 'own' in line 6; give another one",
        "agents.researcher.toolset: unknown key 'toolset' (nearest: 'toolsets')",
    ]


def test_a_text_of_the_wrong_shape_is_described_in_words_and_by_no_regular_expression(config: Write) -> None:
    path = config(
        """\
        providers: {notes: {enabled: true, mount: handbook, user_auth: {from: notes, header: "X Notes"}}}
        mcp_servers: {clock: {command: clock, prefix: a.b}}
        auth: {api_keys: [{sha256: abc, subject: ada}]}
        metrics: {namespace: a-b}
        """
    )
    found = [line.partition(": ")[2] for line in problems(path)]
    assert len(found) == 6
    assert [line for line in found if "^" in line] == []


@pytest.mark.requirement("C-7-prefix-error", "C-2-dead-allowlist", "C-7-same-id-replaces")
def test_toolsets_of_the_hosts_code_may_be_named_and_their_prefixes_are_taken(config: Write) -> None:
    path = config(
        """\
        providers: {notes: {enabled: true}}
        toolsets:
          fs: {prefix: other, from: provider:notes}
          web: {prefix: disk, from: provider:notes}
        agents: {researcher: {toolsets: [fs, code]}}
        """
    )
    assert problems(path, fs="disk", code="code") == [
        "providers.yaml:4:17: toolsets.web.prefix: the prefix 'disk' is that of toolset 'fs', which the host's code"
        " registered; give another one"
    ]
