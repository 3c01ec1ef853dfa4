"""What a request of the newer era repeats in its headers."""

from __future__ import annotations

import pytest
from tests.mcp.test_transport import MODERN, modern

from toolplug.parts.mcp.sdk.answering import SdkServerEndpoint
from toolplug.parts.mcp.serving.server_endpoint import Client, Message, Reply

pytestmark = pytest.mark.requirement("C-5-mcp")

SAY = modern("tools/call", name="say", arguments={})
MESSAGE = Message(1, "tools/call", SAY["json"]["params"])


@pytest.mark.parametrize("value", ["say", " say", "say \t"])
def test_blanks_around_a_headers_value_are_no_part_of_it(value: str) -> None:
    headers = {**SAY["headers"], "Mcp-Name": value}
    raw = [(name.lower().encode(), text.encode()) for name, text in headers.items()]
    client = SdkServerEndpoint().stateless_client(MESSAGE, raw)
    assert isinstance(client, Client)
    assert client.version == MODERN


def test_another_value_is_another_name() -> None:
    headers = {**SAY["headers"], "Mcp-Name": "s ay"}
    raw = [(name.lower().encode(), text.encode()) for name, text in headers.items()]
    assert isinstance(SdkServerEndpoint().stateless_client(MESSAGE, raw), Reply)
