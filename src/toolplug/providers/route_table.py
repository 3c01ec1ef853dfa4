"""The routes of all active providers, and the rule that no two share one and none takes a path of the host."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from toolplug.crashes import CodeOwner
from toolplug.errors import Problem
from toolplug.execution.limits import SourceSwitch
from toolplug.providers.authoring import BoundRoute
from toolplug.providers.generation import Generation

RESERVED = frozenset({"/", "/healthz", "/readyz", "/metrics", "/mcp", "/openapi.json", "/toolplug.js"})
RESERVED_TREES = (
    "/api",
    "/v1/approvals",
    "/v1/explain",
    "/v1/providers",
    "/v1/reload",
    "/v1/responses",
    "/v1/tool-calls",
    "/v1/tools",
)

_PARAMETER = re.compile(r"{[^}]*}")


class MountedRoute(NamedTuple):
    """One route of an active provider. `public` only where both the author and the operator say so."""

    key: str
    route: BoundRoute
    public: bool
    switch: SourceSwitch
    owner: CodeOwner

    @property
    def shown(self) -> str:
        """As records and problems show it."""
        return f"{self.route.method} {self.route.path}"


def mounted(generation: Generation) -> tuple[MountedRoute, ...]:
    """The routes of one generation."""
    entry = generation.entry
    return tuple(
        MountedRoute(entry.key, route, route.public and entry.public_routes, generation.switch, entry.owner)
        for route in generation.routes
    )


def route_problems(generations: Iterable[Generation]) -> list[Problem]:
    """A problem for every route that is taken already, by an earlier provider or by the host; both are named."""
    problems: list[Problem] = []
    taken: dict[tuple[str, str], Generation] = {}
    for generation in generations:
        for item in mounted(generation):
            path = item.route.path
            if reserved(path):
                problems.append(_problem(generation, item, "a path of the host itself", "declare another path"))
                continue
            first = taken.setdefault((item.route.method, _PARAMETER.sub("{}", path)), generation)
            if first is not generation:
                problems.append(
                    _problem(generation, item, f"a route of {first.entry.owner}", "enable one of them only")
                )
    return problems


def reserved(path: str) -> bool:
    """Does the path belong to the host."""
    return path in RESERVED or any(path == tree or path.startswith(f"{tree}/") for tree in RESERVED_TREES)


def _problem(generation: Generation, item: MountedRoute, whose: str, hint: str) -> Problem:
    entry = generation.entry
    return entry.problem("route_taken", f"{entry.owner} declares {item.shown}, which is {whose}", hint)
