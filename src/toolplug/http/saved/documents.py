"""Saved toolsets as documents: built, listed, shown, deleted, exported, imported."""

from __future__ import annotations

from typing import get_args

import orjson

from toolplug.errors import ConfigError
from toolplug.host.host import Host
from toolplug.http.doors.body import read_body
from toolplug.http.exchange import JSON, Exchange
from toolplug.http.json_body import read_json, read_model
from toolplug.http.problem import invalid_request
from toolplug.http.saved.asking import PRIVATE, answer_toolset, asking
from toolplug.http.saved.models import BuildBody
from toolplug.toolsets.saved.document import Document
from toolplug.toolsets.saved.document_text import Form, document_text, yaml_fields

FORMS: tuple[str, ...] = get_args(Form)

_YAML = b"application/yaml"
_YAML_TYPES = frozenset({_YAML, b"application/x-yaml", b"text/yaml", b"text/x-yaml"})


async def list_toolsets(host: Host, exchange: Exchange) -> None:
    """Answer the caller's toolsets."""
    lines = await host.saved_toolsets.saved(await asking(host, exchange))
    await exchange.answer(200, orjson.dumps({"toolsets": [line.fields() for line in lines]}), headers=PRIVATE)


async def build_toolset(host: Host, exchange: Exchange) -> None:
    """Save a new toolset. Raises `HttpProblem` and `SavedToolsetRefused`."""
    body = await read_json(exchange, BuildBody)
    shown = await host.saved_toolsets.build(
        await asking(host, exchange),
        body.name,
        [tool.reference for tool in body.tools],
        description=body.description or "",
    )
    await answer_toolset(exchange, shown, status=201)


async def show_toolset(host: Host, exchange: Exchange) -> None:
    """Answer one toolset. Raises `SavedToolsetRefused`."""
    caller = await asking(host, exchange)
    await answer_toolset(exchange, await host.saved_toolsets.show(caller, exchange.params["name"]))


async def delete_toolset(host: Host, exchange: Exchange) -> None:
    """Delete one toolset. Raises `SavedToolsetRefused`."""
    await host.saved_toolsets.delete(await asking(host, exchange), exchange.params["name"])
    await exchange.answer_done()


async def export_toolset(host: Host, exchange: Exchange) -> None:
    """Answer one toolset as its document. Raises `HttpProblem` and `SavedToolsetRefused`."""
    form = exchange.query().get("format", "json")
    if form not in FORMS:
        raise invalid_request(f"there is no format {form[:40]!r}; there are {', '.join(FORMS)}", "format")
    document = await host.saved_toolsets.document(await asking(host, exchange), exchange.params["name"])
    is_yaml = form == "yaml"
    text = document_text(document, "yaml" if is_yaml else "json")
    await exchange.answer(200, text, content_type=_YAML if is_yaml else JSON, headers=PRIVATE)


async def import_toolset(host: Host, exchange: Exchange) -> None:
    """Save a new toolset from its document. Raises `HttpProblem` and `SavedToolsetRefused`."""
    document = await _document(exchange)
    shown = await host.saved_toolsets.import_document(await asking(host, exchange), document)
    await answer_toolset(exchange, shown, status=201)


async def _document(exchange: Exchange) -> Document:
    """The body, in JSON or YAML as its Content-Type says."""
    given = exchange.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if given not in _YAML_TYPES:
        return await read_json(exchange, Document)
    text = await read_body(exchange.receive, exchange.max_body)
    try:
        fields = yaml_fields(text, file="body")
    except ConfigError as error:
        raise invalid_request(str(error.problems[0])) from None
    return read_model(orjson.dumps(fields), Document)
