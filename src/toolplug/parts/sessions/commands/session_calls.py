"""Calls a tool of a session over HTTP, with its progress. Needs the extra `client`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from httpx2 import Client
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from toolplug.catalog.call import ToolStatus
from toolplug.cli.arguments import arguments_from
from toolplug.cli.host_answers import host_client, post_for_events, refusal
from toolplug.cli.output import print_json, print_progress, print_result
from toolplug.config.nearest import name_hint
from toolplug.errors import HostUnreachable
from toolplug.http.tools import CallAnswer

_ANSWER_S = 330.0  # a call may take five minutes

Schemas = Mapping[str, Mapping[str, object]]


class _OfferedTool(BaseModel):
    name: str
    schema_: dict[str, object] = Field(alias="inputSchema")
    meta: dict[str, object] = Field({}, alias="_meta")

    @property
    def canonical(self) -> str:
        return str(self.meta.get("toolplug/name", self.name))


class _Tools(BaseModel):
    tools: list[_OfferedTool]


class _ShownProgress(BaseModel):
    progress: float
    total: float | None = None
    message: str | None = None


def call(url: str, key: str | None, code: str, tool: str, words: Sequence[str], *, as_json: bool) -> int:
    """Call the tool, print its result and return the exit code. Raises `HostError` and `typer.BadParameter`."""
    with host_client(url, _headers(key), _ANSWER_S) as client:
        schemas = _schemas(client, code)
        answer = _answer(client, code, tool, arguments_from(words, schemas.get(tool, {})))
    if as_json:
        print_json(answer)
    else:
        hint = name_hint(tool, schemas) if answer["status"] is ToolStatus.UNKNOWN_TOOL else ""
        print_result(answer["output"], answer["status"] if answer["is_error"] else None, hint)
    return int(answer["is_error"])


def prompt(url: str, key: str | None, code: str, *, markdown: bool) -> str:
    """Return the session in words, as the host has it. Raises `HostError` and `typer.BadParameter`."""
    with host_client(url, _headers(key), _ANSWER_S) as client:
        kind = "text/markdown" if markdown else "text/plain"
        response = client.get(f"/api/sessions/{code}/prompt", headers={"Accept": kind})
        if not response.is_success:
            raise refusal(response)
        return response.text


def _headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def _schemas(client: Client, code: str) -> Schemas:
    """Return the parameter schemas of the tools that the session lists, by each of their names."""
    response = client.get("/v1/tools", params={"format": "mcp", "session": code})
    if not response.is_success:
        raise refusal(response)
    try:
        listed = _Tools.model_validate_json(response.content).tools
    except ValidationError:
        raise HostUnreachable(f"what answers at {response.url} is no toolplug host") from None
    return {tool.name: tool.schema_ for tool in listed} | {tool.canonical: tool.schema_ for tool in listed}


def _answer(client: Client, code: str, tool: str, arguments: Mapping[str, object]) -> CallAnswer:
    body = {"id": "cli", "tool": tool, "arguments": arguments}
    with post_for_events(client, f"/api/sessions/{code}/tool-calls", body) as events:
        for sent in events:
            if sent.event == "progress":
                progress = _ShownProgress.model_validate_json(sent.data)
                print_progress(progress.progress, progress.total, progress.message)
            elif sent.event == "result":
                return TypeAdapter(CallAnswer).validate_json(sent.data)
    raise HostUnreachable(f"the host at {client.base_url} closed the connection before the result")
