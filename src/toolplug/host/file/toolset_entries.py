"""The `toolsets:` and `agents:` sections with the place of each entry, checked against what they name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from toolplug.config.document import Document, has_reference
from toolplug.config.nearest import name_hint
from toolplug.config.yaml_tree import KeyPath, value_of
from toolplug.errors import Problem
from toolplug.host.file.settings import MCP, PROVIDER, HostSettings, ToolsetSettings, split_source
from toolplug.toolsets.registered import Allowlist
from toolplug.toolsets.toolset import TOOLSET_ID

AGENT_ID = r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,127}$"
AGENT_RULE = "a letter or digit, then up to 127 of A-Z a-z 0-9 _ . -"

_TOOLSET = re.compile(TOOLSET_ID)
_AGENT = re.compile(AGENT_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsetEntries:
    """The toolsets of the file by id in its order, their places as `file:line`, and the allowlists of agents."""

    toolsets: Mapping[str, ToolsetSettings]
    places: Mapping[str, str]
    agents: Mapping[str, Allowlist]

    @classmethod
    def read(
        cls,
        document: Document,
        settings: HostSettings,
        providers: Collection[str],
        servers: Collection[str],
        coded: Mapping[str, str],
        problems: list[Problem],
    ) -> ToolsetEntries:
        """Return the entries of the settings; problems are added to `problems`.

        `providers` and `servers` are the keys and ids that a toolset may name. `coded` maps the ids of toolsets that
        the host's code registered to their prefixes: agents may name them, and they replace those of the file.
        """
        unusable = {**_wrong_names(document, settings), **_doubled_prefixes(document, settings, coded)}
        problems += unusable.values()
        problems += _wrong_sources(document, settings, {PROVIDER: providers, MCP: servers})
        problems += _dead_entries(document, settings, coded)
        toolsets = {name: item for name, item in settings.toolsets.items() if ("toolsets", name) not in unusable}
        agents = {
            name: Allowlist(agent.toolsets, _place(document, "agents", name, "toolsets"))
            for name, agent in settings.agents.items()
        }
        places = {name: _place(document, "toolsets", name) for name in toolsets}
        return cls(toolsets=toolsets, places=places, agents=agents)


def _place(document: Document, *path: str) -> str:
    return document.place(path)


def prefixes_of(document: Document, settings: HostSettings, coded: Mapping[str, str]) -> dict[str, str]:
    """Return the prefixes of all toolsets, of the file or the host's code, with their owners as text for messages."""
    coded_ones = {prefix: f"toolset {name!r}, which the host's code registered" for name, prefix in coded.items()}
    return coded_ones | {
        item.prefix: f"toolset {name!r} in line {document.position_of(('toolsets', name, 'prefix')).line}"
        for name, item in settings.toolsets.items()
        if name not in coded
    }


def is_agent_id(text: str) -> bool:
    """Return whether the text is a valid agent id."""
    return bool(_AGENT.fullmatch(text))


_Faults = dict[tuple[str, str], Problem]
"""The problem of an entry, by its section and key."""


def _wrong_names(document: Document, settings: HostSettings) -> _Faults:
    rules: list[tuple[str, Collection[str], Callable[[str], object], str]] = [
        ("toolsets", settings.toolsets, _TOOLSET.fullmatch, "a lower-case letter, then up to 63 of a-z 0-9 _ -"),
        ("agents", settings.agents, _AGENT.fullmatch, AGENT_RULE),
    ]
    found: _Faults = {}
    for section, names, fits, rule in rules:
        for name in names:
            if not fits(name):
                path = (section, name)
                message = f"{name!r} is no id of one of the {section}; {rule} are allowed"
                found[path] = document.problem(path, code="wrong_key", message=message, at_key=True)
    return found


def _texts(document: Document, key: str, of_valid: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield a text of each toolset: of one that is left out for another fault, as the file has it."""
    for name in dict.fromkeys((*document.keys(("toolsets",)), *of_valid)):
        if name in of_valid:
            yield name, of_valid[name]
            continue
        with suppress(KeyError):
            written = value_of(document.node(("toolsets", name, key)))
            if isinstance(written, str) and not has_reference(written):
                yield name, written


_WHAT = {PROVIDER: ("provider", "providers"), MCP: ("MCP server", "mcp_servers")}


def _wrong_sources(
    document: Document, settings: HostSettings, known: Mapping[str, Collection[str]]
) -> Iterator[Problem]:
    for name, source in _texts(document, "from", {name: item.source for name, item in settings.toolsets.items()}):
        kind, key = split_source(source) or ("", source)
        if kind in known and key not in known[kind]:
            one, section = _WHAT[kind]
            message = f"there is no {one} {key!r} under {section}"
            hint = name_hint(key, known[kind])
            path: KeyPath = ("toolsets", name, "from")
            yield document.problem(path, code=f"unknown_{one.split()[-1]}", message=message, hint=hint)


def _doubled_prefixes(document: Document, settings: HostSettings, coded: Mapping[str, str]) -> _Faults:
    found: _Faults = {}
    taken = {prefix: f"{name!r}, which the host's code registered" for name, prefix in coded.items()}
    for name, prefix in _texts(document, "prefix", {name: item.prefix for name, item in settings.toolsets.items()}):
        if name in coded:
            continue
        path: KeyPath = ("toolsets", name, "prefix")
        if prefix in taken:
            message = f"the prefix {prefix!r} is that of toolset {taken[prefix]}; give another one"
            found["toolsets", name] = document.problem(path, code="duplicate_prefix", message=message)
        else:
            taken[prefix] = f"{name!r} in line {document.position_of(path).line}"
    return found


def _dead_entries(document: Document, settings: HostSettings, coded: Mapping[str, str]) -> Iterator[Problem]:
    named: dict[KeyPath, str] = {
        ("agents", agent, "toolsets", index): name
        for agent, allowed in settings.agents.items()
        for index, name in enumerate(allowed.toolsets)
    }
    return unknown_toolsets(document, named, coded)


def unknown_toolsets(document: Document, named: Mapping[KeyPath, str], coded: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a problem for each id, by its place in the file, that neither the file nor the host's code has."""
    known = (*document.keys(("toolsets",)), *coded)
    for path, name in named.items():
        if name not in known:
            message = f"there is no toolset {name!r}"
            yield document.problem(path, code="unknown_toolset", message=message, hint=name_hint(name, known))
