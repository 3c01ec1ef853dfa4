"""`GET /v1/openapi.json`: the host's routes and the providers', as OpenAPI 3.1."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPMethod, HTTPStatus
from importlib.metadata import version

import orjson
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode
from starlette.convertors import FloatConvertor, IntegerConvertor, UUIDConvertor
from starlette.responses import Response
from starlette.routing import compile_path

from toolplug.catalog.call import CODE_PATTERN
from toolplug.host.file.settings import PROVIDER_KEY
from toolplug.http.bodies.request_body import OrjsonResponse
from toolplug.http.errors import ErrorAnswer
from toolplug.http.requests import HostRequest
from toolplug.http.routing import CALL, EVENTS, Audience, HostRoute, Parameter, answers, route
from toolplug.providers.routes import MountedRoute
from toolplug.runtime.threads import in_own_thread
from toolplug.toolsets.saved.saved_toolset import TOOLSET_NAME

JsonObject = Mapping[str, object]

_DESCRIBABLE = {method.value for method in HTTPMethod} - {"CONNECT"}
_PARAMETER = re.compile(r"{[^}]*}")
_UNSAFE = re.compile(r"[^A-Za-z0-9]+")


def provider_paths(mounted: Iterable[MountedRoute], security: Sequence[JsonObject]) -> dict[str, dict[str, object]]:
    """Return the OpenAPI operations of the providers' routes, by path and lower-case method.

    Two templates that differ in the names of their parameters only are one path to OpenAPI: the first one's.
    """
    paths: dict[str, dict[str, object]] = {}
    shapes: dict[str, str] = {}
    for item in mounted:
        method = item.route.method
        if method in _DESCRIBABLE:
            _, path, _ = compile_path(item.path)
            # `/notes/{id}` and `/notes/{key}` are one path to OpenAPI.
            path = shapes.setdefault(_PARAMETER.sub("{}", path), path)
            paths.setdefault(path, {})[method.lower()] = _provider_operation(item, path, security)
    return paths


def _provider_operation(item: MountedRoute, path: str, security: Sequence[JsonObject]) -> JsonObject:
    route = item.route
    scope = route.scope or CALL
    operation: dict[str, object] = {
        "operationId": f"{item.key}_{route.method.lower()}_{_UNSAFE.sub('_', path).strip('_')}",
        "summary": item.label,
        "tags": [item.key],
        "security": [] if item.public else security,
        "responses": {"default": {"description": "The provider's own answer"}},
    }
    if not item.public:
        operation["description"] = f"Needs the scope `{scope}`."
    parameters = _parameters(item.path, path)
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


_REF = "#/components/schemas/{model}"
_TAG = "toolplug"
_SECURITY: Sequence[JsonObject] = ({"bearer": []}, {"apiKey": []})
_PLUGIN: Sequence[JsonObject] = ({"pluginToken": []},)
_AUDIENCES: Mapping[Audience, tuple[Sequence[JsonObject], str]] = {
    "callers": (_SECURITY, "Needs the scope `{scope}`."),
    "plugin": (_PLUGIN, "For the session's plugin."),
    "either": ((*_SECURITY, *_PLUGIN), "For the session's plugin; a caller needs the scope `{scope}`."),
}
_SCHEMES: JsonObject = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "an API key, or a JSON Web Token"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "pluginToken": {"type": "http", "scheme": "bearer", "description": "the token that creating a session gave"},
}


class Description:
    """The route of the document, which is built again when the providers' routes or the parts have changed.

    `described` returns the host's other routes, once they are asked for: it imports the handlers of all parts.
    """

    def __init__(self, described: Callable[[], Iterable[HostRoute]] = tuple) -> None:
        self.route: HostRoute = route("GET", "/v1/openapi.json", None, "This description")(answers()(self.answer))
        self._described = described
        self._written: tuple[tuple[MountedRoute, ...], object, str, bytes] | None = None

    async def answer(self, request: HostRequest) -> Response:
        """Return the document as a response; its paths begin at `http.public_url`, else where it is mounted."""
        host = request.state["host"]
        root = host.settings.http.public_url or str(request.scope.get("root_path", ""))
        mounted, parts = host.registry.routes, host.parts
        # The document is made once: anybody may ask for it.
        written = self._written
        if written is None or written[0] is not mounted or written[1] is not parts or written[2] != root:
            text = orjson.dumps(document((*await in_own_thread(self._described), self.route), mounted, root))
            written = self._written = (mounted, parts, root, text)
        return OrjsonResponse(written[3])


def document(routes: Sequence[HostRoute], mounted: Iterable[MountedRoute], root: str) -> JsonObject:
    """Return the whole description; `root` is the URL, or the prefix, before its paths."""
    paths: dict[str, dict[str, object]] = {}
    for item in routes:
        paths.setdefault(item.path.replace(":path}", "}"), {})[item.method.lower()] = _operation(item)
    for path, operations in provider_paths(mounted, _SECURITY).items():
        paths.setdefault(path, {}).update(operations)
    return {
        "openapi": "3.1.0",
        "info": {"title": "toolplug", "version": version("toolplug"), "description": "Tools that a model can call."},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {"schemas": _schemas(routes), "securitySchemes": _SCHEMES},
    }


def _operation(route: HostRoute) -> JsonObject:
    security, description = _AUDIENCES[route.audience]
    operation: dict[str, object] = {
        "operationId": route.operation,
        "summary": route.summary,
        "tags": [_TAG],
        "security": [] if route.is_open else security,
        "responses": _responses(route),
    }
    if not route.is_open:
        operation["description"] = description.format(scope=route.scope)
    parameters = [*_path_parameters(route), *(_parameter(item) for item in route.parameters if item.place != "path")]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {
            "required": route.body_required,
            "content": {"application/json": {"schema": _ref(route.body)}},
        }
    return operation


_PATTERNS: Mapping[tuple[str, str], str] = {
    ("/api/sessions", "code"): CODE_PATTERN,
    ("/api/toolsets", "name"): TOOLSET_NAME,
    ("/v1/providers", "key"): PROVIDER_KEY,
}
"""The patterns of path parameters, by the first segments of the path and their name; a route can give others."""


def _path_parameters(route: HostRoute) -> list[JsonObject]:
    first = "/".join(route.path.split("/")[:3])
    given = {item.name: item.pattern for item in route.parameters if item.place == "path"}
    parameters: list[JsonObject] = []
    for name in re.findall(r"{([^:}]*)", route.path):
        pattern = given.get(name, _PATTERNS.get((first, name)))
        schema = {"type": "string", **({} if pattern is None else {"pattern": pattern})}
        parameters.append({"name": name, "in": "path", "required": True, "schema": schema})
    return parameters


def _responses(route: HostRoute) -> JsonObject:
    answered = route.answered
    status = answered.status
    responses: dict[str, object] = {str(status): _response(status, answered.model, answered.content_types)}
    for status, model in answered.others.items():
        responses[str(status)] = _response(status, model, ("application/json",))
    for status in sorted(_errors(route)):
        responses[str(status)] = _response(status, ErrorAnswer, ("application/json",))
    responses["default"] = {**_response(400, ErrorAnswer, ("application/json",)), "description": "Any other error"}
    return responses


def _errors(route: HostRoute) -> set[int]:
    """Return the statuses of the route's own errors, and of those of its credentials, body and session."""
    errors = {*route.answered.errors, *(() if route.is_open else (401, 403)), *((400, 413, 415) if route.body else ())}
    if "{code}" in route.path:
        errors |= {400, 404, 410}
    return errors - route.answered.others.keys()


def _response(status: int, model: type | None, content_types: Sequence[str]) -> dict[str, object]:
    described: dict[str, object] = {"description": HTTPStatus(status).phrase}
    content: dict[str, object] = {
        kind: _content(kind, model) for kind in content_types if model is not None or kind != "application/json"
    }
    return {**described, "content": content} if content else described


def _content(kind: str, model: type | None) -> JsonObject:
    """Describe a body of this media type; an event stream has no schema."""
    if kind in EVENTS:
        return {}
    return {"schema": _ref(model) if model is not None and kind in _FORMS else {"type": "string"}}


_FORMS = frozenset({"application/json", "application/yaml"})


def _parameter(parameter: Parameter) -> JsonObject:
    schema: dict[str, object] = {"type": "string"}
    if parameter.pattern:
        schema["pattern"] = parameter.pattern
    if parameter.choices:
        schema["enum"] = parameter.choices
    return {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "required": parameter.required,
        "schema": schema,
    }


def _schemas(routes: Iterable[HostRoute]) -> JsonObject:
    models = {
        model
        for route in routes
        for model in (route.body, route.answered.model, *route.answered.others.values())
        if model
    }
    # Sorted, as a set has no order: the document must come out byte-equal for the same routes.
    named = sorted((*models, ErrorAnswer), key=lambda model: model.__name__)
    inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[object]]] = [
        (model.__name__, "validation", TypeAdapter(model)) for model in named
    ]
    _, schemas = TypeAdapter.json_schemas(inputs, ref_template=_REF)
    return schemas["$defs"]


def _ref(model: type) -> JsonObject:
    return {"$ref": _REF.format(model=model.__name__)}
