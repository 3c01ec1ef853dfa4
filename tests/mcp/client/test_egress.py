"""Where requests to a server may go: to addresses that were checked, and to no other ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.mcp.client.conftest import nobody
from tests.mcp.client.hostile_http import HostileHttp
from tests.mcp.client.serving import serving

from toolplug.net.egress import Egress
from toolplug.parts.mcp.client.connection import ConnectionFailed
from toolplug.parts.mcp.client.server_config import Endpoint
from toolplug.parts.mcp.sdk.client import connector

pytestmark = [pytest.mark.anyio, pytest.mark.mcp]


class Names:
    """A resolver whose every answer is counted, and may change."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return [self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]]


@pytest.fixture
def server() -> HostileHttp:
    return HostileHttp()


@pytest.fixture
async def port(server: HostileHttp) -> AsyncIterator[int]:
    async with serving(server) as port:
        yield port


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433"])
@pytest.mark.requirement("C-2-egress")
async def test_a_url_from_elsewhere_must_be_public(tmp_path: Path, server: HostileHttp, port: int, host: str) -> None:
    connect = connector(Egress(), tmp_path)
    with pytest.raises(ConnectionFailed, match="which is not public"):
        async with connect(Endpoint(url=f"http://{host}:{port}/sane"), nobody):
            pass
    assert server.seen == []


@pytest.mark.requirement("C-2-operator-url")
async def test_a_url_of_the_operators_file_is_allowed_as_written(tmp_path: Path, port: int) -> None:
    connect = connector(Egress(), tmp_path)
    async with connect(Endpoint(url=f"http://127.0.0.1:{port}/sane", trusted=True), nobody) as connection:
        assert len(await connection.tools()) == 2


@pytest.mark.requirement("C-2-operator-url")
async def test_a_trusted_host_is_known_by_the_name_that_is_resolved(tmp_path: Path, port: int) -> None:
    connect = connector(Egress(), tmp_path, Names("127.0.0.1").resolve)
    async with connect(Endpoint(url=f"http://Ö.example:{port}/sane", trusted=True), nobody) as connection:
        assert len(await connection.tools()) == 2


@pytest.mark.parametrize("allow", ["loopback", "127.0.0.0/8", "a.example", "*.example"])
@pytest.mark.requirement("C-2-egress")
async def test_what_the_operator_lists_is_reached(tmp_path: Path, port: int, allow: str) -> None:
    names = Names("127.0.0.1")
    connect = connector(Egress((allow,)), tmp_path, names.resolve)
    async with connect(Endpoint(url=f"http://a.example:{port}/sane"), nobody) as connection:
        assert len(await connection.tools()) == 2


@pytest.mark.requirement("H-trust-urls")
async def test_a_host_is_resolved_once_and_connected_to_where_it_was_checked(
    tmp_path: Path, server: HostileHttp, port: int
) -> None:
    names = Names("127.0.0.1", "10.0.0.1")
    connect = connector(Egress(("loopback",)), tmp_path, names.resolve)
    async with connect(Endpoint(url=f"http://a.example:{port}/sane"), nobody) as connection:
        for _ in range(3):
            await connection.tools()
    assert names.asked == [("a.example", port)]
    assert {headers["host"] for headers in server.headers} == {f"a.example:{port}"}


@pytest.mark.requirement("H-trust-urls")
async def test_a_host_that_turns_inward_is_refused_at_the_next_connection(tmp_path: Path, port: int) -> None:
    names = Names("127.0.0.1", "10.0.0.1")
    connect = connector(Egress(("loopback",)), tmp_path, names.resolve)
    endpoint = Endpoint(url=f"http://a.example:{port}/sane")
    async with connect(endpoint, nobody):
        pass
    with pytest.raises(ConnectionFailed, match=r"'a\.example' has an address which is not public"):
        async with connect(endpoint, nobody):
            pass
