"""The routes of all active providers, and the rule that no two share one and none takes a path of the host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from toolplug.crashes import CodeOwner
from toolplug.errors import Problem
from toolplug.execution.limits import SourceSwitch
from toolplug.providers.authoring import BoundRoute
from toolplug.providers.entry import ProviderEntry
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
    """One route of an active provider, below its `mount`. `public` only where author and operator both say so."""

    key: str
    route: BoundRoute
    mount: str
    public: bool
    switch: SourceSwitch
    owner: CodeOwner

    @property
    def path(self) -> str:
        """The whole template; that of `route` is as its author declared it."""
        return self.mount + self.route.path

    @property
    def shown(self) -> str:
        """As records show it."""
        return f"{self.route.method} {self.path}"


def mounted(generation: Generation) -> tuple[MountedRoute, ...]:
    """The routes of one generation."""
    entry = generation.entry
    return tuple(
        MountedRoute(
            entry.key, route, entry.mount, route.public and entry.public_routes, generation.switch, entry.owner
        )
        for route in generation.routes
    )


class DeclaredRoutes(NamedTuple):
    """What one provider declares: method and path of each route, without the mount of its entry."""

    entry: ProviderEntry
    routes: Sequence[tuple[str, str]]


def route_problems(declared: Iterable[DeclaredRoutes]) -> list[Problem]:
    """A problem for every mount and route that is taken, by an earlier provider or by the host; both are named."""
    problems: list[Problem] = []
    mounts: dict[str, ProviderEntry] = {}
    taken: dict[tuple[str, str], ProviderEntry] = {}
    for entry, routes in declared:
        if entry.mount and (first := mounts.setdefault(entry.mount, entry)) is not entry:
            message = f"{entry.owner}: the mount {entry.mount!r} is that of {first.owner}"
            problems.append(entry.problem("mount_taken", message, "choose another path", ("mount",)))
            continue
        for method, declared_path in routes:
            path = entry.mount + declared_path
            shown = f"{entry.owner} declares {method} {path}, which is"
            if reserved(path):
                message, hint = f"{shown} a path of the host itself", "declare another path"
                problems.append(entry.problem("route_taken", message, hint))
            elif (first := taken.setdefault((method, _PARAMETER.sub("{}", path)), entry)) is not entry:
                hint = f"set mount in one of them, such as mount: /{entry.key}, or enable one of them only"
                problems.append(entry.problem("route_taken", f"{shown} a route of {first.owner}", hint))
    return problems


def reserved(path: str) -> bool:
    """Does the path belong to the host."""
    return path in RESERVED or any(path == tree or path.startswith(f"{tree}/") for tree in RESERVED_TREES)
