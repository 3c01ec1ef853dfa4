"""A provider that uses what it is granted."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from toolplug import CallContext, FunctionProvider, Principal, ProviderContext, ToolCall, ToolDefinition, hookimpl, tool


class Granted(FunctionProvider):
    """Has a tool for each kind of grant."""

    async def start(self, site: ProviderContext) -> None:
        self.site = site

    @tool
    def read(self, path: str) -> str:
        """Return a text."""
        return Path(path).read_text("utf-8")

    @tool
    def write(self, path: str, text: str) -> int:
        """Write a text."""
        return Path(path).write_text(text, "utf-8")

    @tool
    def replace_by_link(self, path: str, target: str) -> str:
        """Put a link in the place of a folder."""
        Path(path).rename(f"{path}.away")
        Path(path).symlink_to(target)
        return os.readlink(path)

    @tool
    def variables(self) -> dict[str, str]:
        """Return the environment."""
        return dict(os.environ)

    @tool
    def leave(self) -> None:
        """End this process."""
        os._exit(5)

    @tool
    def connect(self, target: str) -> str:
        """Say what the proxy answers to CONNECT, and the first bytes of the host."""
        place = os.environ["HTTPS_PROXY"].removeprefix("http://")
        host, _, port = place.partition(":")
        with socket.create_connection((host, int(port)), 10) as there:
            there.settimeout(10)
            there.sendall(f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n".encode())
            answer = b""
            with_body = b"x"
            while with_body:
                with_body = there.recv(999)
                answer += with_body
            return answer.decode()

    @tool
    def fetch_plain(self, url: str) -> str:
        """Open a URL as urllib does."""
        try:
            return build_opener(ProxyHandler()).open(url, timeout=10).read().decode()
        except HTTPError as error:
            return f"{error.code} {error.read().decode()}"

    @tool
    def ignore_the_proxy(self) -> str:
        """Connect to an address as a client that knows no proxy."""
        with socket.create_connection(("192.0.2.1", 443), 5):
            return "connected"

    @tool
    async def records_of(self, tenant: str, context: CallContext) -> list[str]:
        """Return the keys of a tenant's records, and write one to its own."""
        await self.site.store(context.principal).commit("own", b"1")
        return await self.site.store(Principal("x", tenant)).keys()

    @tool
    def state(self) -> str:
        """Write to the folder of its own, and return its content."""
        (self.site.state_dir / str(time.time_ns())).touch()
        return str(len(list(self.site.state_dir.iterdir())))


class Listening(FunctionProvider):
    """Sees the calls of all providers."""

    @tool
    def seen(self) -> int:
        """Return 1."""
        return 1

    @hookimpl
    async def before_call(self, call: ToolCall, context: CallContext, tool: ToolDefinition) -> str | None:
        """Refuse what is called `one`."""
        return "not with me" if call.name == "one" else None

    async def diagnose(self) -> Sequence[str]:
        """Return a text."""
        return ["all is well here"]
