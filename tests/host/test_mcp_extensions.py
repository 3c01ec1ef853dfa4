"""The hook `mcp_extensions`: what a plugin adds to Model Context Protocol for the clients of a host."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import pytest
from httpx2 import ASGITransport, AsyncClient
from tests.mcp.task_client import McpCaller

from toolplug import FunctionProvider, McpExtension, open_host, resource, tool
from toolplug.http import create_app
from toolplug.mcp_extensions import ExtensionRefused, ExtensionRequest

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I39-mcp-extensions")]


class Stamp(McpExtension):
    """Adds its name to what calls return, and refuses one text."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.capabilities = {"of": name}
        self.methods = {f"{name}/count": self.count}

    async def count(self, request: ExtensionRequest) -> dict[str, object]:
        if request.params.get("up_to") is None:
            raise ExtensionRefused(-32602, "up_to: give a number")
        return {"counted": request.params["up_to"], "by": request.principal.subject}

    async def call_tool(self, call: Any) -> Any:
        if call.call.arguments == {"text": self.name}:
            raise ExtensionRefused(-32000, f"{self.name} takes no {self.name}", {"text": self.name})
        result = await call.run(call.context)
        if call.declared is None:
            return result
        return {**result, "content": [*result["content"], {"type": "text", "text": self.name}]}


class Shop(FunctionProvider):
    """Echoes texts."""

    def __init__(self, extensions: Sequence[object]) -> None:
        self._extensions = extensions

    def mcp_extensions(self) -> Sequence[object]:
        return self._extensions

    @resource("shop://hours")
    def hours(self) -> str:
        "The opening hours."
        return "always"

    @tool
    def echo(self, text: str) -> str:
        "Echo a text."
        return text


async def send(extensions: Sequence[object], method: str, declared: Sequence[str] = (), **params: object) -> Any:
    host = open_host({"store": "memory://"}, environ={}, providers=[Shop(extensions)])
    async with host:
        transport = ASGITransport(create_app(host), client=("127.0.0.1", 1))
        async with AsyncClient(transport=transport, base_url="http://localhost") as client:
            caller = McpCaller(client, extensions={name: {} for name in declared})
            return await caller.send(method, **params)


ONE, TWO = Stamp("com.example/one"), Stamp("com.example/two")


async def test_a_host_says_which_extensions_it_has() -> None:
    said = await send([ONE, TWO, Stamp(ONE.name)], "server/discover")
    assert said["capabilities"]["extensions"] == {each.name: {"of": each.name} for each in (ONE, TWO)}


async def test_each_wraps_the_call_and_sees_what_its_client_declares() -> None:
    call = {"name": "echo", "arguments": {"text": "hello"}}
    both = await send([ONE, TWO], "tools/call", [ONE.name, TWO.name], **call)
    assert [each["text"] for each in both["content"]] == ["hello", TWO.name, ONE.name]
    second = await send([ONE, TWO], "tools/call", [TWO.name], **call)
    assert [each["text"] for each in second["content"]] == ["hello", TWO.name]
    refused = await send([ONE, TWO], "tools/call", name="echo", arguments={"text": TWO.name})
    assert (refused["code"], refused["data"]) == (-32000, {"text": TWO.name})


async def test_its_methods_are_for_clients_that_declare_it() -> None:
    counted = await send([ONE], f"{ONE.name}/count", [ONE.name], up_to=3)
    assert (counted["counted"], counted["by"], counted["resultType"]) == (3, "anonymous", "complete")
    wrong = await send([ONE], f"{ONE.name}/count", [ONE.name])
    assert (wrong["code"], wrong["message"]) == (-32602, "up_to: give a number")
    undeclared = await send([ONE], f"{ONE.name}/count", up_to=3)
    assert undeclared["code"] == -32021
    unknown = await send([ONE], "com.example/three/count", [ONE.name])
    assert unknown["code"] == -32601


class Shared(McpExtension):
    """Names the extensions that are joined in it, and what its caller can read."""

    name = "com.example/shared"
    for_all_clients = True

    def __init__(self, *names: str) -> None:
        self.names = names
        self.methods = {f"{self.name}/names": self.list_names}

    def join(self, others: Sequence[McpExtension]) -> McpExtension:
        if "broken" in self.names:
            raise RuntimeError("it cannot be joined")
        return Shared(*self.names, *(name for each in others for name in cast("Shared", each).names))

    async def list_names(self, request: ExtensionRequest) -> dict[str, object]:
        return {"names": self.names, "resources": list(request.offering().resources)}


async def test_extensions_of_one_class_and_name_are_joined_and_others_of_the_name_do_not_count() -> None:
    names = await send([Shared("a"), Stamp(Shared.name), Shared("b"), Shared("c")], f"{Shared.name}/names")
    assert (names["names"], names["resources"]) == (["a", "b", "c"], ["shop://hours"])


async def test_an_extension_that_cannot_be_joined_is_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        names = await send([Shared("broken"), Shared("b")], f"{Shared.name}/names")
    assert names["names"] == ["broken"]
    assert "join()" in caplog.text


async def test_a_plugin_that_returns_something_else_has_none(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        said = await send([ONE, "two"], "tools/call", [ONE.name], name="echo", arguments={"text": "hello"})
    assert [each["text"] for each in said["content"]] == ["hello"]
    assert "mcp_extensions()" in caplog.text
