"""HTTP routes of providers, which must differ from each other and from the host's."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from toolplug import library_types
from toolplug.crashes import CodeOwner
from toolplug.errors import InvalidDefinition, Problem
from toolplug.execution.limiters import SourceSwitch
from toolplug.providers.authoring import RouteMark, marked_methods
from toolplug.providers.entry import ProviderEntry

Endpoint = Callable[[Any], Awaitable[Any]]
"""Takes a Starlette request and returns a response. Starlette is imported once a provider has a route."""

_ANSWERING = "toolplug.providers.answering_routes"


class BoundRoute(NamedTuple):
    """A route of one instance, for `routes()` of a provider whose routes its configuration decides.

    `endpoint` takes a Starlette request and returns a Starlette response or a JSON value. Without `scope` the caller
    needs `tools:call`; `public` needs no credentials, if the operator's `public_routes: true` agrees.

    ```python
    from pydantic import BaseModel
    from starlette.requests import Request

    from toolplug import BoundRoute, FunctionProvider


    class Feeds(FunctionProvider):
        class Config(BaseModel):
            names: list[str]

        def __init__(self, config: Config) -> None:
            self.names = config.names

        def routes(self) -> list[BoundRoute]:
            return [BoundRoute("GET", f"/v1/feeds/{name}", self.show, scope=f"feeds:{name}") for name in self.names]

        async def show(self, request: Request) -> dict[str, str]:
            return {"feed": request.url.path}
    ```
    """

    method: str
    path: str
    endpoint: Endpoint
    public: bool = False
    scope: str | None = None


class GivesRoutes(Protocol):
    """A provider's method that returns bound routes and Starlette's."""

    def routes(self) -> Sequence[object]: ...


def bound_routes(provider: GivesRoutes) -> list[BoundRoute]:
    """Return the `@route` methods of an instance, in the order of definition, then the routes of its `routes()`."""
    marks, given = list(marked_methods(type(provider), RouteMark)), provider.routes()
    if not marks and not given:
        return []
    made = import_module(_ANSWERING)
    bound = [
        BoundRoute(mark.method, mark.path, made.answering(getattr(provider, attribute)), mark.public, mark.scope)
        for attribute, _, mark in marks
    ]
    for item in given:
        if isinstance(item, BoundRoute):
            bound.append(item._replace(endpoint=made.answering(item.endpoint)))
            continue
        if not isinstance(item, library_types.Route):
            gives = f"routes() of {type(provider).__qualname__} gives {item!r}"
            raise InvalidDefinition(f"{gives}, neither a BoundRoute nor a Starlette Route")
        methods = item.methods or {"GET"}
        # Starlette adds HEAD to each GET by itself.
        automatic = {"HEAD"} if "GET" in methods else set[str]()
        bound += [BoundRoute(method, item.path, made.delegating(item.app)) for method in sorted(methods - automatic)]
    return bound


RESERVED = frozenset(
    {"/", "/healthz", "/readyz", "/metrics", "/mcp", "/openapi.json", "/toolplug.js", "/v1/openapi.json"}
)
RESERVED_TREES = (
    "/.well-known/oauth-protected-resource",
    "/api",
    "/connect",
    "/v1/approvals",
    "/v1/chat",
    "/v1/configuration",
    "/v1/connections",
    "/v1/explain",
    "/v1/grants",
    "/v1/models",
    "/v1/providers",
    "/v1/reload",
    "/v1/responses",
    "/v1/tasks",
    "/v1/tool-calls",
    "/v1/tools",
    "/v1/workers",
)
OF_PARTS = frozenset({"/v1/tasks"})
"""Those of them that are for the part of a plugin, whether it is enabled or not; never for routes of a provider."""

PartPaths = Mapping[str, ProviderEntry]
"""The paths of the parts of plugins, each with the entry of its plugin."""

NO_PARTS: PartPaths = MappingProxyType({})

_PARAMETER = re.compile(r"{[^}]*}")


class MountedRoute(NamedTuple):
    """A route of an active provider, below its `mount`. `public` only if author and operator agree."""

    key: str
    route: BoundRoute
    mount: str
    public: bool
    switch: SourceSwitch
    owner: CodeOwner

    @property
    def path(self) -> str:
        """The whole path template; that of `route` is without the mount."""
        return self.mount + self.route.path

    @property
    def label(self) -> str:
        """The route as records show it: `METHOD /path`."""
        return f"{self.route.method} {self.path}"


class DeclaredRoutes(NamedTuple):
    """The declared routes of one provider: method and path of each, without the entry's mount."""

    entry: ProviderEntry
    routes: Sequence[tuple[str, str]]


def route_problems(declared: Iterable[DeclaredRoutes], of_parts: PartPaths = NO_PARTS) -> list[Problem]:
    """Return a problem for each mount and route that an earlier provider, a part or the host has, naming both.

    `of_parts`: the paths of the parts of plugins, each with the entry of its plugin; all that is below them is theirs,
    too. A plugin may have routes below the paths of its own part, as the journal does.
    """
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
            if is_reserved(path):
                message, hint = f"{shown} a path of the host itself", "declare another path"
                problems.append(entry.problem("route_taken", message, hint))
            elif (plugin := _plugin_of(path, of_parts)) is not None and plugin.key != entry.key:
                hint = f"set mount in it, such as mount: /{entry.key}, or enable one of them only"
                problems.append(entry.problem("route_taken", f"{shown} a path of the part of {plugin.owner}", hint))
            # Names of parameters do not tell paths apart: `/notes/{id}` and `/notes/{key}` match the same requests.
            elif (first := taken.setdefault((method, _PARAMETER.sub("{}", path)), entry)) is not entry:
                hint = f"set mount in one of them, such as mount: /{entry.key}, or enable one of them only"
                problems.append(entry.problem("route_taken", f"{shown} a route of {first.owner}", hint))
    return problems


def is_reserved(path: str) -> bool:
    """Return whether the path belongs to the host."""
    return path in RESERVED or any(_is_below(path, tree) for tree in RESERVED_TREES)


def _plugin_of(path: str, of_parts: PartPaths) -> ProviderEntry | None:
    return next((plugin for tree, plugin in of_parts.items() if _is_below(path, tree)), None)


def _is_below(path: str, tree: str) -> bool:
    return path == tree or path.startswith(f"{tree}/")
