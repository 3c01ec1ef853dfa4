"""The tools that skills name, and the callers that lack them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol

from toolplug.catalog import wire_name

MAX_NAMED = 10
"""Callers, or tools, that one line names."""


class NamesTools(Protocol):
    """A skill and the tools in its `allowed-tools`."""

    @property
    def name(self) -> str:
        """The name of the skill."""
        ...

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools as they are written there."""
        ...


def find_lacking(skills: Iterable[NamesTools], callers: Mapping[str, Mapping[str, bool]]) -> Iterator[str]:
    """Yield a line for each tool of this host that a skill names and callers lack, and one for all other tools.

    callers: by caller, whether it can call each tool, by canonical name
    """
    if not callers:
        return
    # A model calls a tool by its wire name, and authors may write either.
    by_name = {
        caller: {**{wire_name(name): can for name, can in tools.items()}, **tools} for caller, tools in callers.items()
    }
    elsewhere: dict[str, None] = {}
    for skill in skills:
        for tool in skill.tools:
            if not any(tool in tools for tools in by_name.values()):
                elsewhere[tool] = None
            elif lacking := [caller for caller, tools in by_name.items() if not tools.get(tool)]:
                yield (
                    f"the skill {skill.name!r} names the tool {tool!r}, which these callers lack: {_join(lacking)};"
                    " `toolplug explain` says why"
                )
    if elsewhere:
        yield f"not tools of this host: {_join(elsewhere)}"


def _join(names: Collection[str]) -> str:
    shown = ", ".join([*names][:MAX_NAMED])
    more = len(names) - MAX_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
