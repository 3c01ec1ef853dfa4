"""Another host's own `/openapi.json`: exactly the tools of the key, their calls, and nothing that administers it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from tests.host.conftest import Package, package
from tests.http.served import served

from toolplug import open_host
from toolplug.http import create_app

__all__ = ["package"]

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I32-no-administration")]

KEY = {"Authorization": "Bearer clerk-key"}
KEYS = [
    {"key": "clerk-key", "subject": "clerk", "tenant": "t1", "scopes": ["tools:read", "tools:call", "approvals:write"]},
    {"key": "agent-key", "subject": "a", "tenant": "t1", "scopes": ["tools:read", "tools:call"], "agents": ["shop"]},
]
SHOP = """
    from __future__ import annotations

    from pydantic import BaseModel

    from toolplug import FunctionProvider, tool


    class Node(BaseModel):
        '''A part of an order, with those inside it.'''

        name: str
        inner: list[Node] = []


    class Order(BaseModel):
        '''What is ordered.'''

        parts: dict[str, Node]


    class Shop(FunctionProvider):
        '''Takes orders.'''

        @tool
        async def order(self, order: Order, note: str = "") -> dict[str, object]:
            '''Take an order.'''
            return {"names": [part.inner[0].name for part in order.parts.values()], "note": note}

        @tool
        async def count(self, n: int) -> int:
            '''Count on.'''
            return n + 1

        @tool
        async def danger(self) -> str:
            '''Delete every order.'''
            return "deleted"

        @tool
        async def hidden(self) -> str:
            '''Be for another tenant.'''
            return "?"
"""


@pytest.fixture
def url(package: Package) -> Iterator[str]:
    """A served host with keys and a policy."""
    package("toolplug-shop", {"shop": "shop_mod:Shop"}, shop_mod=SHOP)
    rules = {"danger": "ask", "hidden": {"tenants": ["t2"]}}
    whole: dict[str, Any] = {
        "store": "memory://",
        "providers": {"shop": {"enabled": True, "tools": rules}},
        "auth": {"api_keys": KEYS},
        "toolsets": {"shop": {"prefix": "s", "from": "provider:shop"}},
        "agents": {"shop": {"toolsets": ["shop"]}},
    }
    host = open_host(whole, environ={})
    with served(host, create_app(host)) as port:
        yield f"http://127.0.0.1:{port}"


def entry(url: str, key: str = "clerk-key") -> dict[str, Any]:
    """The settings of the importing provider."""
    return {
        "document": url,
        "document_headers": {"Authorization": f"Bearer {key}"},
        "credentials": {"bearer": {"value": key}},
    }


async def test_exactly_the_tools_of_the_key_come_out_and_their_calls_work(url: str, serve: Any) -> None:
    async with serve(**entry(f"{url}/openapi.json")) as tools:
        assert tools.names() == ["order", "count", "danger"]
        assert {name.rpartition(".")[2] for name in tools.schema("order")["$defs"]} == {"Order", "Node"}
        parts = {"a": {"name": "box", "inner": [{"name": "pen"}]}}
        ordered = await tools.call("order", {"order": {"parts": parts}, "note": "now"})
        assert (ordered.status, ordered.structured) == ("success", {"names": ["pen"], "note": "now"})
        wrong = await tools.call("order", {"order": {"parts": {"a": {"inner": []}}}})
        assert wrong.status == "invalid_arguments", "the definitions came along"
        assert (await tools.call("count", {"n": 1})).structured == {"output": "2"}


async def test_a_tool_that_a_person_must_approve_is_refused_in_words_and_cannot_approve_itself(
    url: str, serve: Any
) -> None:
    async with serve(**entry(f"{url}/openapi.json")) as tools:
        refused = await tools.call("danger")
        assert refused.status == "tool_error"
        assert "403" in refused.output
        assert "a person must approve this call first" in refused.output
        assert not [name for name in tools.names() if "approv" in name or "provider" in name or "reload" in name]


@pytest.mark.parametrize(
    ("path", "key"), [("/openapi.json?agent=shop", "clerk-key"), ("/v1/tools/openapi.json", "agent-key")]
)
async def test_the_calls_of_an_agents_document_are_that_agents(url: str, serve: Any, path: str, key: str) -> None:
    async with serve(**entry(url + path, key)) as tools:
        assert tools.names() == ["s__order", "s__count", "s__danger"]
        assert (await tools.call("s__count", {"n": 1})).structured == {"output": "2"}


async def test_a_document_that_needs_a_key_says_where_it_goes(url: str, serve: Any) -> None:
    with pytest.raises(Exception, match="HTTP 401; set document_headers"):
        async with serve(document=f"{url}/openapi.json"):
            pass
    assert httpx2.get(f"{url}/v1/openapi.json").status_code == 200
