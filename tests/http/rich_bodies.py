"""Bodies that are right in form and hostile in what is inside: what a schema of the request does not describe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

LARGE = 900_000
LARGE_TOOLS = 7_900_000
"""Bytes of a body, and of one with the tools of a session."""


class Rich(NamedTuple):
    """One body; `route` is the last part of its path."""

    name: str
    route: str
    body: dict[str, Any]


def _names(count: int) -> dict[str, Any]:
    return {f"k{number}": {"type": "string"} for number in range(count)}


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def _schemas() -> dict[str, dict[str, Any]]:
    one = {f"k{number}": {"type": "string", "pattern": f"(a+)+${number}"} for number in range(400)}
    bad = {f"k{number}": {"type": "strin", "minimum": "x", "items": 3} for number in range(400)}
    chain = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(400)}
    hidden = {f"k\u202e{number}": {"description": "\u202e" * 20} for number in range(300)}
    either = [{"type": "string", "maxLength": number} for number in range(400)]
    return {
        "names": {"type": "object", "properties": _names(900)},
        "levels": _deep(20),
        "too many levels": _deep(120),
        "values": {"type": "object", "properties": {"a": {"enum": [f"v{number}" for number in range(900)]}}},
        "alternatives": {"type": "object", "properties": {"a": {"anyOf": either}}},
        "required names": {"type": "object", "required": [f"k{number}" for number in range(900)]},
        "patterns": {"type": "object", "properties": one},
        "references": {"type": "object", "$defs": chain, "properties": {"a": {"$ref": "#/$defs/d0"}}},
        "bad keywords": {"type": "object", "properties": bad},
        "hidden characters": {"type": "object", "properties": hidden},
        "a long text": {"type": "object", "properties": {"a": {"type": "string", "description": " \n" * 15_000}}},
    }


def _function(number: int, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "name": f"t{number}", "parameters": schema}


def _tool(number: int, schema: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": f"t{number}", "description": "Do it.", "inputSchema": schema, **fields}


def _tools() -> Iterator[Rich]:
    plain = {"type": "object"}
    for name, schema in _schemas().items():
        size = len(json.dumps(schema)) + 100
        few, many = min(1000, LARGE // size), min(1000, LARGE_TOOLS // size)
        yield Rich(f"functions of {name}", "responses", _asked(tools=[_function(n, schema) for n in range(few)]))
        form = {"type": "json_schema", "name": "a", "schema": schema}
        yield Rich(f"a form of {name}", "responses", _asked(text={"format": form}))
        tools = [_tool(number, schema) for number in range(many)]
        yield Rich(f"tools of {name}", "register-tools", {"pluginType": "t", "tools": tools})
        tools = [_tool(number, plain, outputSchema=schema) for number in range(many)]
        yield Rich(f"outputs of {name}", "register-tools", {"pluginType": "t", "tools": tools})


def _asked(**fields: Any) -> dict[str, Any]:
    return {"input": "hi", **fields}


def _message(*parts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": part} for part in parts]}


def _inputs() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    yield "4,096 messages", [{"role": "user", "content": f"m{number}" * 20} for number in range(4_096)]
    yield "more messages than are read", [{"role": "user", "content": "m"} for _ in range(20_000)]
    yield "4,096 parts", [_message(*["x"] * 4_096)]
    yield "more parts than are read", [_message(*["x"] * 25_000)]
    yield "8,192 parts", [_message(*["x"] * 1_024)] * 8
    yield "more parts in all than are read", [_message(*["x"] * 900)] * 25
    called = {"type": "function_call", "call_id": "c", "name": "hello", "arguments": '{"a": 1}' * 20}
    output = {"type": "function_call_output", "call_id": "c", "output": "x" * 500}
    yield "calls", [{**each, "call_id": f"c{number}"} for number in range(600) for each in (called, output)]
    yield "equal calls", [called] * 2_000
    yield "outputs of no call", [{**output, "call_id": f"c{number}"} for number in range(1_000)]
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}] * 15}
    yield "reasoning", [{**thought, "id": f"r{number}", "encrypted_content": "a" * 300} for number in range(500)]
    yield "fields that go back", [{**called, "extra_content": {"a": [number] * 50}} for number in range(1_000)]


def _choices() -> Iterator[Rich]:
    functions = [{"type": "function", "name": f"a{number}"} for number in range(1_000)]
    near = [{"type": "function", "name": f"b{number}"} for number in range(1_000)]
    servers = [
        {"type": "mcp", "server_label": f"s{n}", "allowed_tools": [f"t{k}" for k in range(100)]} for n in range(300)
    ]
    for name, allowed in (("their names", functions), ("names like theirs", near)):
        choice = {"type": "allowed_tools", "tools": allowed}
        yield Rich(f"functions and {name}", "responses", _asked(tools=functions, tool_choice=choice))
    yield Rich("servers", "responses", _asked(tools=servers))
    yield Rich("metadata", "responses", _asked(metadata={f"k{number}": "v" * 500 for number in range(1_500)}))


def _results() -> Iterator[Rich]:
    for name, structured in (
        ("rows", [{"a": number} for number in range(60_000)]),
        ("names", {f"k{number}": number for number in range(60_000)}),
        ("nulls", [None] * 250_000),
    ):
        yield Rich(f"a result of {name}", "tool-results", {"id": "x", "output": "x", "structured": structured})
    parts = [{"type": "text", "text": "x"}] * 25_000
    yield Rich("a result of parts", "tool-results", {"id": "x", "content": parts})


def rich_bodies() -> Iterator[Rich]:
    """Tools with hostile schemas, items of every type in great number, choices among many, and large results."""
    yield from _tools()
    for name, items in _inputs():
        yield Rich(f"an input of {name}", "responses", {"input": items})
    yield from _choices()
    yield from _results()
