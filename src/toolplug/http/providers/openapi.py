"""The providers' routes in the OpenAPI document: paths, parameters and scopes; their bodies are their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPMethod

from starlette.convertors import FloatConvertor, IntegerConvertor, UUIDConvertor
from starlette.routing import compile_path

from toolplug.http.scopes import CALL
from toolplug.providers.route_table import MountedRoute

JsonObject = Mapping[str, object]

_DESCRIBABLE = {method.value for method in HTTPMethod} - {"CONNECT"}
_PARAMETER = re.compile(r"{[^}]*}")
_UNSAFE = re.compile(r"[^A-Za-z0-9]+")


def provider_paths(mounted: Iterable[MountedRoute], security: Sequence[JsonObject]) -> dict[str, dict[str, object]]:
    """Operations by path and method.

    Two templates that differ in the names of their parameters only are one path to OpenAPI: the first one's.
    """
    paths: dict[str, dict[str, object]] = {}
    shapes: dict[str, str] = {}
    for item in mounted:
        method = item.route.method
        if method in _DESCRIBABLE:
            _, path, _ = compile_path(item.route.path)
            path = shapes.setdefault(_PARAMETER.sub("{}", path), path)
            paths.setdefault(path, {})[method.lower()] = _operation(item, path, security)
    return paths


def _operation(item: MountedRoute, path: str, security: Sequence[JsonObject]) -> JsonObject:
    route = item.route
    scope = route.scope or CALL
    operation: dict[str, object] = {
        "operationId": f"{item.key}_{route.method.lower()}_{_UNSAFE.sub('_', path).strip('_')}",
        "summary": item.shown,
        "tags": [item.key],
        "security": [] if item.public else security,
        "responses": {"default": {"description": "The provider's own answer"}},
    }
    if not item.public:
        operation["description"] = f"Needs the scope `{scope}`."
    parameters = _parameters(route.path, path)
    if parameters:
        operation["parameters"] = parameters
    return operation


def _parameters(template: str, path: str) -> list[JsonObject]:
    _, _, convertors = compile_path(template)
    names = [name[1:-1] for name in _PARAMETER.findall(path)]
    return [
        {"name": name, "in": "path", "required": True, "schema": _schema(convertor)}
        for name, convertor in zip(names, convertors.values(), strict=True)
    ]


def _schema(convertor: object) -> JsonObject:
    if isinstance(convertor, IntegerConvertor):
        return {"type": "integer", "minimum": 0}
    if isinstance(convertor, FloatConvertor):
        return {"type": "number", "minimum": 0}
    if isinstance(convertor, UUIDConvertor):
        return {"type": "string", "format": "uuid"}
    return {"type": "string"}
