"""HTTP requests made of the arguments of calls, in the styles of OpenAPI (3.1, section 4.8.12)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import quote

from toolplug import ToolError
from toolplug_openapi.operations import Argument, Body, Endpoint
from toolplug_openapi.settings import Credential, SecurityScheme

_DELIMITERS = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}


@dataclass(slots=True)
class Parts:
    """A request below the base URL; `path`, `query` and `cookies` are encoded."""

    method: str
    path: str
    query: list[str] = field(default_factory=list[str])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cookies: list[str] = field(default_factory=list[str])
    content: bytes | None = None

    def target(self) -> str:
        """Return path and query, encoded."""
        return f"{self.path}?{'&'.join(self.query)}" if self.query else self.path


def request_parts(endpoint: Endpoint, arguments: Mapping[str, object]) -> Parts:
    """Return the request of a call, without credentials. Raises `ToolError` for a value that no request can carry."""
    parts = Parts(endpoint.method, endpoint.path)
    sent: dict[str, object] = {}
    for argument in endpoint.arguments:
        if argument.argument not in arguments:
            continue
        value = arguments[argument.argument]
        if argument.place == "body":
            sent[argument.name] = value
        elif argument.media:
            _put(parts, argument._replace(style="", explode=False), json.dumps(value, ensure_ascii=False))
        elif value is not None or argument.place == "path":
            _put(parts, argument, value)
    body = endpoint.body
    if body is not None and (sent or (body.required and not body.whole)):
        _put_body(parts, body, sent["body"] if body.whole else sent)
    for segment in parts.path.split("/"):
        if segment in (".", ".."):
            raise ToolError(f"{segment!r} cannot be a part of the path; give another value")
    return parts


def _put(parts: Parts, argument: Argument, value: object) -> None:
    if argument.place == "path":
        expanded = _in_path(argument, value)
        if not expanded:
            raise ToolError(f"{argument.argument!r} must not be empty: it is a part of the path")
        parts.path = parts.path.replace(f"{{{argument.name}}}", expanded)
    elif argument.place == "query":
        parts.query += _in_query(argument, value)
    elif argument.place == "header":
        parts.headers[argument.name] = header_text(_joined(value, argument.explode, plain=True), argument.argument)
    else:
        parts.cookies.append(f"{quote(argument.name, safe='')}={_joined(value, False)}")


def _put_body(parts: Parts, body: Body, value: object) -> None:
    parts.headers["Content-Type"] = body.media_type
    if body.kind == "json":
        parts.content = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    elif body.kind == "text":
        parts.content = _text(value).encode()
    else:
        fields = [item for name, inner in (_pairs(value) or {}).items() for item in _exploded(_encoded(name), inner)]
        parts.content = "&".join(fields).encode()


def header_text(text: str, name: str) -> str:
    """Return the text. Raises `ToolError` for characters that a header cannot carry; the error has no value."""
    if not text.isascii() or not text.isprintable():
        raise ToolError(f"{name!r} goes into a header, which carries printable ASCII only")
    return text


def _text(value: object) -> str:
    """Return text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _encoded(value: object) -> str:
    return quote(_text(value), safe="")


def _items(value: object) -> Sequence[object] | None:
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else None


def _pairs(value: object) -> Mapping[str, object] | None:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else None


def _joined(value: object, explode: bool, *, plain: bool = False, delimiter: str = ",", between: str = ",") -> str:
    """Write the style `simple`: `a,b` of a list, `k,v,k2,v2` of an object, or `k=v,k2=v2` where it is exploded."""
    write = _text if plain else _encoded
    if (pairs := _pairs(value)) is not None:
        sign = "=" if explode else between
        return delimiter.join(f"{write(name)}{sign}{write(inner)}" for name, inner in pairs.items())
    items = _items(value)
    return write(value) if items is None else delimiter.join(map(write, items))


def _in_path(argument: Argument, value: object) -> str:
    explode = argument.explode
    if argument.style == "label":
        return f".{_joined(value, explode, delimiter='.' if explode else ',')}"
    if argument.style == "matrix":
        name = quote(argument.name, safe="")
        items, pairs = _items(value), _pairs(value)
        if explode and items is not None:
            return "".join(f";{name}={_encoded(item)}" for item in items)
        if explode and pairs is not None:
            return f";{_joined(value, True, delimiter=';')}"
        return f";{name}={_joined(value, False)}"
    return _joined(value, explode)


def _in_query(argument: Argument, value: object) -> Iterator[str]:
    name = quote(argument.name, safe="[]$")
    pairs = _pairs(value)
    if argument.style == "deepObject" and pairs is not None:
        for key, inner in pairs.items():
            yield from _exploded(f"{name}[{_encoded(key)}]", inner)
    elif argument.explode and pairs is not None:
        yield from (f"{_encoded(key)}={_encoded(inner)}" for key, inner in pairs.items())
    elif argument.explode or argument.style == "deepObject":
        yield from _exploded(name, value)
    elif pairs is None and not _items(value) and _items(value) is not None:
        return
    else:
        delimiter = _DELIMITERS.get(argument.style, ",")
        yield f"{name}={_joined(value, False, delimiter=delimiter, between=delimiter)}"


def _exploded(name: str, value: object) -> Iterator[str]:
    items = _items(value)
    yield from (f"{name}={_encoded(item)}" for item in ([value] if items is None else items))


def add_credential(parts: Parts, scheme: SecurityScheme, credential: Credential, passed: Mapping[str, str]) -> None:
    """Put a credential where its scheme says. Raises `ToolError` where the caller has not sent its own."""
    if credential.value is not None:
        secret = credential.value.get_secret_value()
    else:
        name = credential.forward or ""
        if name not in passed:
            raise ToolError(
                f"this needs a credential of your own: send it as the header X-Toolplug-Credential-{name}",
                metadata={"code": "credential_required", "credential": name},
            )
        secret = passed[name]
    place, target = scheme.target or ("header", "Authorization")
    if scheme.type == "http" and scheme.scheme.lower() == "basic":
        pair = secret if credential.username is None else f"{credential.username}:{secret}"
        secret = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif scheme.type != "apiKey":
        secret = f"Bearer {secret}"
    if place == "header":
        parts.headers[target] = header_text(secret, f"the credential for {target}")
    elif place == "query":
        parts.query.append(f"{quote(target, safe='')}={quote(secret, safe='')}")
    else:
        parts.cookies.append(f"{quote(target, safe='')}={quote(secret, safe='')}")
