"""Results of servers that an extension completes, such as a task, which is asked for until it has ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, encode_header_value
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolplug.catalog.call import Ask, Report
from toolplug.mcp_extensions import ExtensionRefused, Fields, McpExtension
from toolplug.parts.mcp.client.connection import BadAnswer, ServerRefused
from toolplug.parts.mcp.sdk.askers import answers_by_key, required_input
from toolplug.parts.mcp.sdk.readable_results import readable_call


def told_extensions(extensions: Sequence[McpExtension], version: str) -> Sequence[McpExtension]:
    """Return those of which a server of this version is told: what completes no result is of no use to it."""
    if version not in MODERN_PROTOCOL_VERSIONS:
        return ()
    return [each for each in extensions if each.result_types and each.since <= version]


class _RawAnswer(Protocol):
    root: dict[str, object]


class ServerOfCall:
    """The server of one call, for the extension that completes its result. Implements `ExtensionServer`."""

    def __init__(
        self,
        send: Callable[[str, Mapping[str, object]], Awaitable[_RawAnswer]],
        report: Report,
        ask: Ask,
        sending: Callable[[Mapping[str, str]], AbstractContextManager[None]],
        headers: Mapping[str, str],
    ) -> None:
        self._send = send
        self._ask = ask
        self._sending = sending
        self._headers = headers
        self.report: Report = report

    async def request(self, method: str, params: Fields, name: str = "") -> Fields:
        """Send a request with the headers of the caller, and return its result."""
        named = {MCP_NAME_HEADER: encode_header_value(name)} if name else {}
        # Those of the call as well: a request about a task is made as the caller who has it.
        with self._sending({**self._headers, **named}):
            try:
                return (await self._send(method, params)).root
            except ServerRefused as refused:
                raise ExtensionRefused(refused.code, str(refused)) from None

    async def ask(self, requests: Fields) -> Fields:
        """Ask the user of the call, one question after the other. Raises `CannotAsk`."""
        questions = required_input({"resultType": "input_required", "inputRequests": requests}).questions
        return answers_by_key({key: await self._ask(item.text, item.schema) for key, item in questions.items()})


async def finish_result(extension: McpExtension, result: Fields, server: ServerOfCall) -> dict[str, Any]:
    """Return the complete result of `tools/call`. Raises `ServerRefused`, `BadAnswer` and what ends the call."""
    try:
        whole = readable_call(dict(await extension.finish(result, server)))
        types.CallToolResult.model_validate(whole, by_name=False)
    except ExtensionRefused as error:
        raise ServerRefused(error.code, str(error)) from None
    except (MCPError, ValidationError):
        raise BadAnswer("the result of its task cannot be read") from None
    return whole
