"""The providers' routes by path: an exact one before one with parameters, then in the order of declaration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from starlette.convertors import Convertor
from starlette.routing import compile_path

from toolplug.providers.route_table import MountedRoute

_NOTHING: dict[str, object] = {}


class Place(NamedTuple):
    """One path as declared, and what stands there by method; `key` is the provider of the first."""

    key: str
    template: str
    methods: dict[str, MountedRoute]
    pattern: re.Pattern[str]
    convertors: Mapping[str, Convertor[Any]]


class Found(NamedTuple):
    """Where a request goes: `route` is None where the path lacks the method, which `allowed` names then."""

    place: Place
    route: MountedRoute | None
    params: dict[str, object]
    allowed: tuple[str, ...] = ()


class RouteIndex:
    """One reading of the route table. HEAD is answered by what answers GET."""

    def __init__(self, routes: Iterable[MountedRoute]) -> None:
        self._exact: dict[str, Place] = {}
        self._patterns: list[Place] = []
        places: dict[str, Place] = {}
        for item in routes:
            template = item.route.path
            place = places.get(template)
            if place is None:
                pattern, _, convertors = compile_path(template)
                place = places[template] = Place(item.key, template, {}, pattern, convertors)
                if convertors:
                    self._patterns.append(place)
                else:
                    self._exact[template] = place
            place.methods.setdefault(item.route.method, item)

    def find(self, path: str, method: str) -> Found | None:
        """What serves this request; None where no template fits the path."""
        method = "GET" if method == "HEAD" else method
        exact = self._exact.get(path)
        if exact is not None:
            route = exact.methods.get(method)
            if route is not None:
                return Found(exact, route, _NOTHING)
        first: Place | None = None
        allowed: list[str] = []
        for place, params in self._fitting(path):
            route = place.methods.get(method)
            if route is not None:
                return Found(place, route, params)
            first = first or place
            allowed += place.methods
        return None if first is None else Found(first, None, _NOTHING, tuple(dict.fromkeys(allowed)))

    def _fitting(self, path: str) -> Iterator[tuple[Place, dict[str, object]]]:
        exact = self._exact.get(path)
        if exact is not None:
            yield exact, _NOTHING
        for place in self._patterns:
            match = place.pattern.fullmatch(path)
            if match is not None:
                values = match.groupdict()
                yield place, {name: place.convertors[name].convert(value) for name, value in values.items()}
