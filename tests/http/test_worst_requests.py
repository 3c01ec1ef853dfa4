"""A hunt for the request that holds the loop longest: every route and hosted tool, with bodies up to the limit."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from httpx2 import AsyncClient
from tests.cpu_cost import longest_callback, unit_ms
from tests.figures import FIGURE
from tests.http.conftest import client_of
from tests.http.rich_bodies import rich_bodies

from toolplug import open_host
from toolplug.http import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.judge, pytest.mark.timeout(600)]

HELD = 17.0
"""Units of CPU that one callback may take on a quiet machine, which is 50 ms there."""
SHARED_CORE = 4
"""What other processes do to the caches doubles it, twice; what has no bound takes ten times as long and more."""
MEMORY_MIB = 64
WORST = 10
BYTES = 1024 * 1024 - 4096
LARGE_BYTES = 8 * 1024 * 1024 - 4096
PLUGIN_BYTES = (BYTES, 124 * 1024, 60 * 1024)
"""Routes of plugins may refuse what is larger than they need."""
LARGE = ("register-tools", "update-tools")
IN_PATHS = {"code": "ABCDEFGH", "name": "mine", "id": "mine", "key": "hello", "agent": "default"}

PARTS: dict[str, dict[str, Any]] = {
    "host": {},
    "toolsets": {"toolsets": {"enabled": True}},
    "console": {"console": {"enabled": True}},
    "file_search": {"file_search": {"enabled": True}},
    "code_interpreter": {"code_interpreter": {"enabled": True, "required": False}},
    "web_search": {"web_search": {"enabled": True, "backend": "searxng", "url": "http://127.0.0.1:9"}},
    "openapi": {"openapi": {"enabled": True, "document": "items.json", "base_url": "http://127.0.0.1:9"}},
}

_FORM = {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}, "more": {"type": "object"}}
ITEMS = {
    "openapi": "3.1.0",
    "info": {"title": "Items", "version": "1"},
    "paths": {
        "/items": {
            "get": {
                "operationId": "find_items",
                "parameters": [
                    {"name": name, "in": "query", "schema": schema, "style": style}
                    for name, schema, style in (
                        ("names", {"type": "array"}, "form"),
                        ("filter", {"type": "object"}, "deepObject"),
                    )
                ],
                "responses": {"200": {"description": "found"}},
            },
            **{
                method: {
                    "operationId": f"{method}_item",
                    "requestBody": {"content": {kind: {"schema": {"type": "object", "properties": _FORM}}}},
                    "responses": {"200": {"description": "done"}},
                }
                for method, kind in (
                    ("post", "application/json"),
                    ("put", "application/x-www-form-urlencoded"),
                    ("patch", "multipart/form-data"),
                )
            },
        }
    },
}
"""A document with each way in which arguments become a request."""


class Request(NamedTuple):
    """One request of the hunt."""

    name: str
    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]


class Found(NamedTuple):
    """What one request cost."""

    units: float
    mib: float
    name: str
    status: int


def array(items: Iterable[str]) -> str:
    return f"[{','.join(items)}]"


def mapping(count: int) -> str:
    return f"{{{','.join(f'{chr(34)}k{number}{chr(34)}:{number}' for number in range(count))}}}"


@cache
def values(size: int) -> tuple[tuple[str, str], ...]:
    """JSON texts of up to this many bytes, by what is hostile in them."""
    return (
        ("wide", mapping(size // 16)),
        ("as wide as is read", mapping(min(65_000, size // 16))),
        ("deep", "[" * 150 + "1" + "]" * 150),
        ("deeper than is read", '{"a":' * (size // 6) + "1" + "}" * (size // 6)),
        ("long", json.dumps("x" * (size - 2))),
        ("long of escapes", f'"{chr(92)}u0061"'.replace("u0061", "u0061" + (chr(92) + "u0061") * (size // 6 - 2))),
        ("long of lines", json.dumps(" \n" * (size // 3))),
        ("long of hidden characters", json.dumps("\u202e" * (size // 4), ensure_ascii=False)),
        ("long words", json.dumps(" ".join(["w" * 5000] * (size // 5001)))),
        ("numbers", array(["1"] * (size // 2 - 1))),
        ("long numbers", array(["9" * 4300] * (size // 4301))),
        ("as many numbers as are read", array(["1"] * min(262_000, size // 2 - 1))),
        ("empty objects", array(["{}"] * min(65_000, size // 3 - 1))),
        ("repeated texts", array(['"same"'] * min(130_000, size // 7 - 1))),
        ("near-duplicates", array(f'"name-{number:06}"' for number in range(min(130_000, size // 14 - 1)))),
        ("one doubled at the end", array([*(f'"n{number}"' for number in range(900)), '"n0"'])),
        ("one bad at the end", array([*['{"type":"text"}'] * 900, "1"])),
        ("objects", array(['{"name":"a","type":"mcp","text":"b"}'] * min(20_000, size // 40))),
    )


def filled(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    """A plausible value of a schema: the least that it needs."""
    if "$ref" in schema:
        return filled(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return filled(schema[word][0], schemas)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    kind = schema.get("type")
    if kind == "object":
        return {
            name: filled(schema["properties"][name], schemas)
            for name in schema.get("required", ())
            if name in schema.get("properties", {})
        }
    if kind == "array":
        return []
    return {"string": "mine", "integer": 1, "number": 1, "boolean": True}.get(kind or "")


def resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    return schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


UNREAD = {"wide", "deeper than is read", "numbers"}
"""The reader of bodies refuses these wherever they stand: the bodies that are hostile as a whole have them."""


def fitting(inner: Mapping[str, Any], size: int) -> Iterator[tuple[str, str]]:
    """The hostile values for a field; of a wrong type one is enough, since the type is looked at first."""
    kinds = {inner.get("type"), *(each.get("type", "object") for each in inner.get("anyOf", ()))}
    for name, text in values(size):
        if name in UNREAD:
            continue
        if kinds <= {"string", "null"} and not (name.startswith("long ") or name in ("long", "as wide as is read")):
            continue
        if kinds <= {"integer", "number", "boolean", "null"} and name != "long numbers":
            continue
        yield name, text


def bodies(
    schema: Mapping[str, Any], schemas: Mapping[str, Any], size: int, *, lists: bool = True
) -> Iterator[tuple[str, bytes]]:
    """Bodies that are hostile as a whole, those that are no objects if asked, then with one field hostile."""
    yield from ((name, text.encode()) for name, text in values(size) if lists or text.startswith("{"))
    base = filled(schema, schemas)
    if not isinstance(base, dict):
        return
    for field, inner in resolved(schema, schemas).get("properties", {}).items():
        rest = json.dumps({name: value for name, value in base.items() if name != field})[1:-1]
        head = f"{rest}, " if rest else ""
        for name, text in fitting(resolved(inner, schemas), size - 1024):
            yield f"{field}: {name}", f'{{{head}"{field}": {text}}}'.encode()
        for nested, part in resolved(inner, schemas).get("properties", {}).items():
            for name, text in fitting(resolved(part, schemas), size - 1024):
                yield f"{field}.{nested}: {name}", f'{{{head}"{field}": {{"{nested}": {text}}}}}'.encode()
        for name, text in many(inner, schemas, size - 1024):
            yield f"{field}: {name}", f'{{{head}"{field}": {text}}}'.encode()


def many(schema: Mapping[str, Any], schemas: Mapping[str, Any], size: int) -> Iterator[tuple[str, str]]:
    """Lists of plausible items, as many as are allowed, alone and with one of their fields as large as fits."""
    for part in alternatives(schema, schemas):
        if part.get("type") != "array" or "items" not in part:
            continue
        for kind in alternatives(part["items"], schemas):
            item = filled(kind, schemas)
            shown = json.dumps(item)[:60]
            most = min(part.get("maxItems", 1000), 1000)
            yield f"many {shown}", array(distinct(item, number) for number in range(min(most, size // 100)))
            if not isinstance(item, dict):
                continue
            for field, inner in kind.get("properties", {}).items():
                for name, text in LARGE_FIELDS if resolved(inner, schemas).get("type") != "string" else LARGE_TEXTS:
                    whole = json.dumps({name: value for name, value in item.items() if name != field})[1:-1]
                    one = f'{{{whole}{", " if whole else ""}"{field}": {text(size - 1024)}}}'
                    yield f"one {shown}, {field}: {name}", f"[{one}]"


LARGE_FIELDS: tuple[tuple[str, Callable[[int], str]], ...] = (
    ("as wide as is read", lambda size: mapping(min(60_000, size // 16))),
    ("objects", lambda size: array(['{"type":"text","text":"b"}'] * min(30_000, size // 30))),
    ("near-duplicates", lambda size: array(f'"name-{number:06}"' for number in range(min(120_000, size // 14)))),
)
LARGE_TEXTS: tuple[tuple[str, Callable[[int], str]], ...] = (
    ("long of lines", lambda size: json.dumps(" \n" * (size // 3))),
    ("long of hidden characters", lambda size: json.dumps("\u202e" * (size // 4), ensure_ascii=False)),
)


def alternatives(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schema itself, or each of those that it may be."""
    schema = resolved(schema, schemas)
    parts = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if not parts:
        yield schema
    for part in parts:
        yield from alternatives(part, schemas)


def distinct(item: object, number: int) -> str:
    """An item with names of its own."""
    return json.dumps(item).replace('"mine"', f'"mine-{number}"')


async def requests_of(client: AsyncClient, *, own: bool) -> Iterator[Request]:
    """The requests to all routes of the host (`own`), else to those of plugins and to every hosted tool."""
    description = (await client.get("/v1/openapi.json")).json()
    session = (await client.post("/api/sessions", json={})).json()
    tools = (await client.get("/v1/tools", params={"format": "mcp"})).json()["tools"]
    as_json = {"Content-Type": "application/json"}

    def made() -> Iterator[Request]:
        schemas = description["components"]["schemas"]
        operations = [
            (path, method, operation)
            for path, methods in description["paths"].items()
            for method, operation in methods.items()
        ]
        read: set[tuple[str, int]] = set()
        for path, method, operation in sorted(operations, key=lambda each: each[1] == "delete"):  # the session lives
            is_own = operation["tags"] == ["toolplug"]
            streams = any("text/event-stream" in each.get("content", {}) for each in operation["responses"].values())
            reads = method in {"get", "head", "delete"}
            if is_own != own or (reads and (streams or not own)):
                continue
            given = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            place = re.sub(
                "{([^}]*)}", lambda found: IN_PATHS.get(found[1], "x"), path.replace("{code}", session["code"])
            )
            headers = as_json
            if operation["security"] == [{"pluginToken": []}]:
                headers = {**as_json, "Authorization": f"Bearer {session['pluginToken']}"}
            sizes = PLUGIN_BYTES if not own else (LARGE_BYTES if path.endswith(LARGE) else BYTES,)
            if given is None and reads:
                yield Request(f"{method} {path}", method, place, b"", {})
                continue
            for size in sizes:
                # What is no object is refused by the reader of bodies, before the route: once for a family of routes.
                family = ("/".join(path.split("/")[:3]), size)
                lists, _ = family not in read, read.add(family)
                for name, body in bodies(given or {}, schemas, size, lists=lists):
                    yield Request(f"{method} {path}: {name}", method, place, body, headers)
            for rich in rich_bodies() if own and method == "post" else ():
                if path.endswith(f"/{rich.route}"):
                    body = json.dumps(rich.body, ensure_ascii=False).encode()
                    yield Request(f"{method} {path}: {rich.name}", method, place, body, headers)
        for tool in () if own else tools:
            for name, body in bodies(tool["inputSchema"], tool["inputSchema"].get("$defs", {}), BYTES - 256):
                content = b'{"name": %s, "arguments": %s, "timeoutMs": 2000}' % (
                    json.dumps(tool["name"]).encode(),
                    body,
                )
                yield Request(f"tool {tool['name']}: {name}", "post", "/v1/tool-calls", content, as_json)

    return made()


async def cost(client: AsyncClient, request: Request, known_unit_ms: float) -> Found:
    """Send it, three times if it seems dear: another process may have disturbed it."""
    least, mib, status = inf, inf, 0
    for _ in range(3):
        before = resident_mib()
        with longest_callback(known_unit_ms) as longest:
            answer = await client.request(
                request.method, request.path, content=request.body, headers=dict(request.headers)
            )
        least, status = min(least, longest.units), answer.status_code
        mib = min(mib, resident_mib() - before)
        if least <= HELD and mib <= MEMORY_MIB:
            break
    return Found(least, mib, request.name, status)


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1024**2


@pytest.mark.requirement("SEC-worst-request")
@pytest.mark.parametrize("part", [pytest.param("host", marks=pytest.mark.long(150)), *list(PARTS)[1:]])
async def test_no_request_holds_the_loop_or_keeps_memory(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    settings = {
        "store": f"sqlite:///{tmp_path}/state.db",
        "providers": {"hello": {"enabled": True}, **PARTS[part]},
        "sessions": {"max_updates_per_minute": 100_000},
        "responses": {"backend": {"base_url": "http://127.0.0.1:9/v1", "api_key": "none", "model": "m"}},
        "egress": {"allow": ["loopback"]},
    }
    (tmp_path / "items.json").write_text(json.dumps(ITEMS))
    monkeypatch.chdir(tmp_path)
    async with open_host(settings, environ={}) as host, client_of(create_app(host)) as client:
        gc.collect()
        gc.freeze()  # a host has a tenth of what a test run has in memory, which the collector would look through
        unit = unit_ms()
        found = [await cost(client, request, unit) for request in await requests_of(client, own=part == "host")]
    slowest = sorted(found, reverse=True)[:WORST]
    largest = sorted(found, key=lambda each: each.mib, reverse=True)[:WORST]
    record_property(FIGURE, f"{part}: {len(found)} requests")
    for each in slowest:
        record_property(
            FIGURE, f"{part}: {each.units:.1f} units of CPU in one callback, status {each.status}: {each.name}"
        )
    for each in largest[:3]:
        record_property(FIGURE, f"{part}: {each.mib:.0f} MiB after {each.name}")
    assert {each.status for each in found} & {200, 201, 400, 422}
    assert [each for each in found if each.status == 500] == []
    assert slowest[0].units <= HELD * SHARED_CORE, slowest[0]
    assert largest[0].mib <= MEMORY_MIB, largest[0]
