"""Saved toolsets as documents: built, listed, shown, deleted, exported, imported."""

from __future__ import annotations

from typing import get_args

import orjson

from toolplug.errors import ConfigError, SavedToolsetRefused
from toolplug.host.host import Host
from toolplug.http.caller_catalog import asked_session
from toolplug.http.exchange import JSON, Exchange
from toolplug.http.json_body import read_body, read_json, read_model
from toolplug.http.problem import invalid_request
from toolplug.http.saved.models import AddNotesBody, BuildBody, RemoveNotesBody
from toolplug.toolsets.saved.document import Document, Form, document_text, yaml_fields
from toolplug.toolsets.saved.saved_toolset import Caller
from toolplug.toolsets.saved.shown import ShownToolset

PRIVATE = ((b"cache-control", b"private, no-cache"),)


async def asking(host: Host, exchange: Exchange) -> Caller:
    """Who asks, through the agent and the session of the query. Raises `AccessError` and `StoreError`."""
    session = await asked_session(host, exchange)
    return Caller(exchange.principal, exchange.query().get("agent") or None, session, exchange.request_id)


async def answer_toolset(exchange: Exchange, shown: ShownToolset, *, status: int = 200) -> None:
    """Answer one toolset."""
    await exchange.answer(status, orjson.dumps(shown.fields()), headers=PRIVATE)


async def add_notes(host: Host, exchange: Exchange) -> None:
    """Attach notes to a tool. Raises `HttpProblem` and `SavedToolsetRefused`; then nothing has changed."""
    body = await read_json(exchange, AddNotesBody)
    added = await host.saved_toolsets.add_notes(
        await asking(host, exchange),
        body.tool_ref.reference,
        [note.value for note in body.notes],
        toolset=exchange.params["name"],
        replace_existing=body.if_exists == "replace",
    )
    await exchange.answer(200, orjson.dumps(added.fields()))


async def remove_notes(host: Host, exchange: Exchange) -> None:
    """Take notes off a tool. Raises `HttpProblem` and `SavedToolsetRefused`; then nothing has changed."""
    body = await read_json(exchange, RemoveNotesBody)
    removed = await host.saved_toolsets.remove_notes(
        await asking(host, exchange), exchange.params["name"], body.tool_ref.reference, body.names
    )
    await exchange.answer(200, orjson.dumps(removed.fields()))


async def equip_toolset(host: Host, exchange: Exchange) -> None:
    """Make one toolset the caller's choice. Raises `SavedToolsetRefused`."""
    caller = await asking(host, exchange)
    await answer_toolset(exchange, await host.saved_toolsets.equip(caller, exchange.params["name"]))


async def unequip_toolset(host: Host, exchange: Exchange) -> None:
    """List everything again; the same where nothing was equipped."""
    name = await host.saved_toolsets.unequip(await asking(host, exchange))
    await exchange.answer(200, orjson.dumps({"unequipped": name}))


async def active_toolset(host: Host, exchange: Exchange) -> None:
    """Answer the equipped toolset. Raises `SavedToolsetRefused` where there is none."""
    shown = await host.saved_toolsets.active(await asking(host, exchange))
    if shown is None:
        raise SavedToolsetRefused("no_toolset_equipped", "no toolset is equipped; every tool is listed", "name")
    await answer_toolset(exchange, shown)


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
