"""HTTP requests made of the arguments of calls, in the styles of OpenAPI (3.1, section 4.8.12)."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import NamedTuple, cast
from urllib.parse import quote, unquote_to_bytes

from toolplug import ToolError, ToolUnavailable
from toolplug_openapi.arguments import Argument, Body, Encoding
from toolplug_openapi.operations import Operation
from toolplug_openapi.settings import Credential, SecurityScheme

MAX_ADDRESS = 64 * 1024
"""Characters in path, query, headers and cookies: `httpx2` refuses longer URLs, and servers take 8 to 32 KiB."""
_VALUE = 64
"""Characters for which a value of its own counts, since each is encoded by itself."""

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
        if not self.query:
            return self.path
        return f"{self.path}{'&' if '?' in self.path else '?'}{'&'.join(self.query)}"


def request_parts(operation: Operation, arguments: Mapping[str, object]) -> Parts:
    """Return the request of a call, without credentials. Raises `ToolError` for a value that no request can carry."""
    address = [arguments.get(each.argument) for each in operation.arguments if each.place != "body"]
    if is_larger(address, MAX_ADDRESS):
        raise ToolError(
            f"the arguments outside the body are larger than a request's address and headers may be, {MAX_ADDRESS:,} "
            f"characters, of which each value takes {_VALUE} or more; give fewer"
        )
    parts = Parts(operation.method, operation.path)
    sent: dict[str, object] = {}
    for argument in operation.arguments:
        if argument.argument not in arguments:
            continue
        value = arguments[argument.argument]
        if argument.place == "body":
            sent[argument.name] = value
        elif argument.media:
            _put(parts, argument._replace(style="", explode=False), json.dumps(value, ensure_ascii=False))
        elif value is not None or argument.place == "path":
            _put(parts, argument, value)
    body = operation.body
    if body is not None and (sent or (body.required and not body.whole)):
        _put_body(parts, body, sent["body"] if body.whole else sent)
    for segment in parts.path.partition("?")[0].split("/"):
        if segment in (".", ".."):
            raise ToolError(f"{segment!r} cannot be a part of the path; give another value")
    return parts


def is_larger(values: Sequence[object], most: int) -> bool:
    """Return whether values have more characters than this; stops counting there."""
    found, waiting = 0, [*values]
    while waiting and found <= most:
        value = waiting.pop()
        found += _VALUE + (len(value) if isinstance(value, str) else 0)
        if (pairs := _pairs(value)) is not None:
            found += len(pairs) * _VALUE
            if found <= most:
                found += sum(map(len, pairs))
                waiting += pairs.values()
        elif (items := _items(value)) is not None:
            found += len(items) * _VALUE
            if found <= most:
                waiting += items
    return found > most


def _put(parts: Parts, argument: Argument, value: object) -> None:
    if argument.place == "path":
        expanded = _in_path(argument, value)
        if not expanded:
            raise ToolError(f"{argument.argument!r} must not be empty: it is a part of the path")
        parts.path = parts.path.replace(f"{{{argument.name}}}", expanded)
    elif argument.place == "query":
        parts.query += _in_query(argument, value)
    elif argument.place == "header":
        parts.headers[argument.name] = header_text(_join(value, argument.explode, plain=True), argument.argument)
    else:
        parts.cookies.append(f"{quote(argument.name, safe='')}={_join(value, False)}")


def _put_body(parts: Parts, body: Body, value: object) -> None:
    parts.headers["Content-Type"] = body.media_type
    if body.kind == "json":
        parts.content = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    elif body.kind == "text":
        sent = _file("body", value)
        parts.content = sent.content
        if sent.media_type and body.media_type == "application/octet-stream":
            parts.headers["Content-Type"] = sent.media_type
    elif body.kind == "form":
        pairs = (_pairs(value) or {}).items()
        fields = [each for name, inner in pairs for each in _form_fields(name, inner, body.encodings.get(name))]
        parts.content = "&".join(fields).encode()
    else:
        boundary = token_hex(16)
        parts.headers["Content-Type"] = f"multipart/form-data; boundary={boundary}"
        parts.content = b"".join(_multipart(boundary, _pairs(value) or {}, body.encodings))


def _form_fields(name: str, value: object, encoding: Encoding | None) -> Iterator[str]:
    """Yield a property of a form as OpenAPI says: in its style, else lists as several fields, objects as JSON."""
    if encoding is not None and encoding.style:
        yield from _in_query(Argument(name, name, "body", encoding.style, encoding.explode), value)
    elif encoding is not None and "json" in encoding.media_type:
        yield f"{_encode(name)}={quote(json.dumps(value, ensure_ascii=False), safe='')}"
    else:
        yield from _explode(_encode(name), value)


class _File(NamedTuple):
    content: bytes
    media_type: str


def _file(name: str, value: object) -> _File:
    """Return the content of a file: that of a `data:` URL, else the text. Raises `ToolError` for a broken URL."""
    text = _text(value)
    head, comma, data = text.partition(",")
    if not head.startswith("data:") or not comma or not head.isascii() or not head.isprintable():
        return _File(text.encode(), "")
    media_type, _, coding = head.removeprefix("data:").rpartition(";")
    if coding != "base64":
        return _File(unquote_to_bytes(data), head.removeprefix("data:"))
    try:
        return _File(base64.b64decode(data, validate=True), media_type)
    except binascii.Error:
        raise ToolError(f"{name!r} begins as a data: URL, but what follows is no base64") from None


def _multipart(boundary: str, fields: Mapping[str, object], encodings: Mapping[str, Encoding]) -> Iterator[bytes]:
    """Yield the parts of a multipart/form-data body (RFC 7578): one a field, and one an item of a list."""
    for name, value in fields.items():
        encoding = encodings.get(name, Encoding())
        items = _items(value)
        for item in [value] if items is None else items:
            media_type, content, file_name = encoding.media_type, _text(item).encode(), ""
            if encoding.file:
                content, found = _file(name, item)
                media_type = encoding.media_type or found or "text/plain"
                file_name = (
                    f'; filename="{_quote_name(name)}{mimetypes.guess_extension(media_type.partition(";")[0]) or ""}"'
                )
            elif not media_type and not isinstance(item, str):
                media_type = "application/json"
            head = f'--{boundary}\r\nContent-Disposition: form-data; name="{_quote_name(name)}"{file_name}\r\n'
            if media_type:
                head += f"Content-Type: {media_type}\r\n"
            yield b"%s\r\n%s\r\n" % (head.encode(), content)
    yield f"--{boundary}--\r\n".encode()


def _quote_name(name: str) -> str:
    """Return a name as browsers write it in a part's head (HTML, section 4.10.22.8)."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def header_text(text: str, name: str) -> str:
    """Return the text. Raises `ToolError` for characters that a header cannot carry; the error has no value."""
    if not text.isascii() or not text.isprintable():
        raise ToolError(f"{name!r} goes into a header, which carries printable ASCII only")
    return text


def _text(value: object) -> str:
    """Return text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _encode(value: object) -> str:
    return quote(_text(value), safe="")


def _items(value: object) -> Sequence[object] | None:
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else None


def _pairs(value: object) -> Mapping[str, object] | None:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else None


def _join(value: object, explode: bool, *, plain: bool = False, delimiter: str = ",", between: str = ",") -> str:
    """Write the style `simple`: `a,b` of a list, `k,v,k2,v2` of an object, or `k=v,k2=v2` where it is exploded."""
    write = _text if plain else _encode
    if (pairs := _pairs(value)) is not None:
        sign = "=" if explode else between
        return delimiter.join(f"{write(name)}{sign}{write(inner)}" for name, inner in pairs.items())
    items = _items(value)
    return write(value) if items is None else delimiter.join(map(write, items))


def _in_path(argument: Argument, value: object) -> str:
    explode = argument.explode
    if argument.style == "label":
        return f".{_join(value, explode, delimiter='.' if explode else ',')}"
    if argument.style == "matrix":
        name = quote(argument.name, safe="")
        items, pairs = _items(value), _pairs(value)
        if explode and items is not None:
            return "".join(f";{name}={_encode(item)}" for item in items)
        if explode and pairs is not None:
            return f";{_join(value, True, delimiter=';')}"
        return f";{name}={_join(value, False)}"
    return _join(value, explode)


def _in_query(argument: Argument, value: object) -> Iterator[str]:
    name = quote(argument.name, safe="[]$")
    pairs = _pairs(value)
    if argument.style == "deepObject":
        yield from _in_brackets(name, value)
    elif argument.explode and pairs is not None:
        yield from (f"{_encode(key)}={_encode(inner)}" for key, inner in pairs.items())
    elif argument.explode:
        yield from _explode(name, value)
    elif pairs is None and not _items(value) and _items(value) is not None:
        return
    else:
        delimiter = _DELIMITERS.get(argument.style, ",")
        yield f"{name}={_join(value, False, delimiter=delimiter, between=delimiter)}"


def _in_brackets(name: str, value: object) -> Iterator[str]:
    """Yield the style deepObject. OpenAPI defines one level of it; APIs that nest take `a[b][c]=` and `a[0][b]=`."""
    items, pairs = _items(value), _pairs(value)
    if pairs is not None:
        for key, inner in pairs.items():
            yield from _in_brackets(f"{name}[{_encode(key)}]", inner)
    elif items is not None:
        for at, inner in enumerate(items):
            yield from _in_brackets(f"{name}[{at}]", inner)
    else:
        yield f"{name}={_encode(value)}"


def _explode(name: str, value: object) -> Iterator[str]:
    items = _items(value)
    yield from (f"{name}={_encode(item)}" for item in ([value] if items is None else items))


def add_credential(parts: Parts, scheme: SecurityScheme, credential: Credential, passed: Mapping[str, str]) -> None:
    """Put a credential where its scheme says. Raises `ToolUnavailable` where the caller has not sent its own."""
    if credential.value is not None:
        secret = credential.value.get_secret_value()
    else:
        name = credential.forward or ""
        if name not in passed:
            header = f"X-Toolplug-Credential-{name}"
            raise ToolUnavailable(
                f"it needs a credential of your own: send it as the header {header}",
                code="credential_needed",
                metadata={"credential": {"header": header}},
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
