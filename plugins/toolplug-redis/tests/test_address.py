"""The URL of a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolplug.errors import StoreMisused
from toolplug_redis.address import Address, read_address
from toolplug_redis.plugin import stores

pytestmark = pytest.mark.requirement("I17-3-redis-url")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://box", Address(host="box")),
        ("redis://box/", Address(host="box")),
        ("redis://[::1]:7000/3", Address(host="::1", port=7000, db=3)),
        ("redis://:p%40ss@box", Address(host="box", password="p@ss")),
        ("redis://me:pass@box?prefix=team-1:", Address(host="box", username="me", password="pass", prefix="team-1:")),
        ("rediss://box/0?ca=ca.pem", Address(host="box", tls=True, ca=Path("conf/ca.pem"))),
    ],
)
def test_a_url_names_server_database_and_keys(url: str, address: Address) -> None:
    assert read_address(url, folder=Path("conf")) == address
    assert "pass" not in repr(address)


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis:///0",
        "redis://me:hunter2@box:port",
        "redis://me:hunter2@box:99999",
        "redis://me:hunter2@[::1",
        "redis://me:hunter2@box/zero",
        "redis://me:hunter2@box/0#part",
        "redis://me:hunter2@box?prefix=",
        "redis://me:hunter2@box?prefix={a}",
        "redis://me:hunter2@box?prefix=a&prefix=b",
        "redis://me:hunter2@box?ca=ca.pem",
        "redis://me:hunter2@box?timeout=1",
    ],
)
def test_any_other_url_is_refused_without_being_shown(url: str) -> None:
    for scheme, opens in stores().items():
        if "ca=" in url and scheme == "rediss":
            continue
        with pytest.raises(StoreMisused) as caught:
            opens(url.replace("redis", scheme, 1), folder=Path())
        assert "hunter2" not in str(caught.value)
        assert "box" not in str(caught.value)
