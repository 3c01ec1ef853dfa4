"""Every list and every free mapping of a request body has a maximum of items, in the description of the whole API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.http.conftest import client_of

from toolplug import open_host
from toolplug.http import create_app

pytestmark = pytest.mark.anyio

PLUGINS = ("console", "toolsets", "hello")


def unbounded(schema: Any, schemas: dict[str, Any], at: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """The places of lists without `maxItems` and of free mappings without `maxProperties`."""
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in seen:
            yield from unbounded(schemas[name], schemas, name, seen | {name})
        return
    if schema.get("type") == "array":
        if "maxItems" not in schema:
            yield at
        yield from unbounded(schema.get("items"), schemas, f"{at}[]", seen)
    if schema.get("type") == "object":
        if schema.get("additionalProperties", True) is not False and "maxProperties" not in schema:
            yield at
        yield from unbounded(schema.get("additionalProperties"), schemas, f"{at}{{}}", seen)
    for name, part in schema.get("properties", {}).items():
        yield from unbounded(part, schemas, f"{at}.{name}", seen)
    for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for part in schema.get(word, ()):
            yield from unbounded(part, schemas, at, seen)


@pytest.mark.requirement("SEC-too-many-items")
async def test_every_list_and_mapping_of_a_request_has_a_maximum() -> None:
    settings = {
        "store": "memory://",
        "providers": {name: {"enabled": True, "required": False} for name in PLUGINS},
        "responses": {"backend": {"base_url": "http://127.0.0.1:9/v1", "api_key": "x", "model": "m"}},
    }
    async with open_host(settings, environ={}) as host, client_of(create_app(host)) as client:
        description = (await client.get("/v1/openapi.json")).json()
    bodies = {
        f"{method.upper()} {path}": content["schema"]
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
        for content in operation.get("requestBody", {}).get("content", {}).values()
        if "schema" in content
    }
    schemas = description["components"]["schemas"]
    found = {place for name, schema in bodies.items() for place in unbounded(schema, schemas, name)}
    assert len(bodies) > 15
    assert sorted(found) == []
