"""Operations that APIs have, called by `toolplug call` against a server that answers what it was sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from tests.cli.process import toolplug
from tests.field.conftest import copy_inputs
from tests.http.served import serving_apart

pytestmark = [pytest.mark.judge, pytest.mark.requirement("I2-9-openapi-parts")]

DOCUMENT = "api.json"
FILES = {DOCUMENT}
LINES = '{"a":1}\n{"a":2}\n'

Fields = list[tuple[str, str]]

QUERIES: dict[str, tuple[str, str, Fields]] = {
    "deep_nested": ('{"filters": {"documentId": {"$eq": "d1"}}}', "/search", [("filters[documentId][$eq]", "d1")]),
    "deep_list": ('{"expand": ["a", "b"]}', "/list", [("expand[0]", "a"), ("expand[1]", "b")]),
}
"""Operations → the arguments, the path and the fields of the query."""

BODIES = {
    "body_text_json": ("/a", "text/json"),
    "body_any_type": ("/b", "application/json"),
    "body_json_range": ("/c", "application/json"),
}
"""Operations with a body of JSON → the path and the type that is sent."""

CALLED = {*QUERIES, *BODIES, "form_deep", "path_fragment", "answer_ndjson"}
"""The operations that the tests below call."""


async def echo(request: Request) -> Response:
    """Method, path, query, type and body of a request, a line each."""
    target = (request.method, request.url.path, request.url.query, request.headers.get("content-type", ""))
    return PlainTextResponse("\n".join((*target, (await request.body()).decode())))


async def lines(request: Request) -> Response:
    """JSON documents, a line each."""
    return Response(LINES, media_type="application/x-ndjson")


class Caller:
    """Calls the operations of the document."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def output(self, tool: str, *arguments: str) -> str:
        """What the tool answers."""
        done = toolplug("call", tool, *arguments, "--json", folder=self._folder)
        assert done.code == 0, done
        return done.json["output"]

    def request(self, tool: str, *arguments: str) -> Sequence[str]:
        """The request that the API gets: method, path, query, type and body."""
        return self.output(tool, *arguments).split("\n")


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    folder = copy_inputs("openapi", tmp_path_factory.mktemp("openapi"))
    routes = [Route("/lines", lines), Route("/{path:path}", echo, methods=["GET", "POST"])]
    with serving_apart(Starlette(routes=routes)) as port:
        entry = {"type": "openapi", "enabled": True, "document": DOCUMENT, "base_url": f"http://127.0.0.1:{port}"}
        whole = {"store": "memory://", "providers": {"api": entry}}
        folder.joinpath("providers.yaml").write_text(json.dumps(whole), "utf-8")
        yield Caller(folder)


@pytest.mark.parametrize(
    ("tool", "arguments", "path", "fields"), [(tool, *each) for tool, each in QUERIES.items()], ids=QUERIES
)
def test_nested_values_of_a_query_are_fields_with_brackets(
    caller: Caller, tool: str, arguments: str, path: str, fields: Fields
) -> None:
    method, called, query, _, _ = caller.request(tool, arguments)
    assert (method, called, parse_qsl(query)) == ("GET", path, fields)


def test_nested_values_of_a_form_are_fields_with_brackets(caller: Caller) -> None:
    arguments = '{"amount": 5, "metadata": {"k": "v"}, "items": [{"price": "p1"}]}'
    method, path, _, kind, body = caller.request("form_deep", arguments)
    assert (method, path, kind) == ("POST", "/charges", "application/x-www-form-urlencoded")
    assert parse_qsl(body) == [("amount", "5"), ("metadata[k]", "v"), ("items[0][price]", "p1")]


def test_the_fragment_of_a_path_is_not_sent(caller: Caller) -> None:
    assert caller.request("path_fragment")[:3] == ["POST", "/oauth2/token", ""]


@pytest.mark.parametrize(("tool", "path", "kind"), [(tool, *each) for tool, each in BODIES.items()], ids=BODIES)
def test_a_body_is_sent_as_json_with_a_type_that_is_no_range(caller: Caller, tool: str, path: str, kind: str) -> None:
    assert caller.request(tool, "a=1") == ["POST", path, "", kind, '{"a":"1"}']


def test_an_answer_of_json_lines_is_text(caller: Caller) -> None:
    assert caller.output("answer_ndjson") == LINES
