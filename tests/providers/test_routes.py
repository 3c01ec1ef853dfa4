"""`@route` and `routes()`: which endpoints a provider has and how they answer."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Message, Scope

from toolplug import BoundRoute
from toolplug.errors import InvalidDefinition
from toolplug.providers.answering_routes import AnswerNotJson
from toolplug.providers.authoring import route
from toolplug.providers.provider import FunctionProvider
from toolplug.providers.routes import bound_routes


async def answer(bound: BoundRoute, path: str) -> tuple[int, str, str]:
    """Status, media type and body of one GET."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [],
        "scheme": "http",
        "server": ("localhost", 80),
    }
    app = Starlette(routes=[Route(bound.path, bound.endpoint, methods=[bound.method])])
    await app(scope, receive, send)
    headers = dict(sent[0]["headers"])
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], headers[b"content-type"].decode(), body.decode()


@dataclass
class Note:
    text: str


class Notes(FunctionProvider):
    @route("get", "/v1/notes/{id:int}", scope="notes:read")
    async def one(self, request: Request) -> Response:
        return PlainTextResponse(f"note {request.path_params['id']}")

    @route("GET", "/v1/notes")
    async def every(self, request: Request) -> list[Note]:
        return [Note("é")]

    @route("GET", "/v1/nothing", public=True)
    async def nothing(self, request: Request) -> None: ...

    @route("GET", "/v1/broken")
    async def broken(self, request: Request) -> object:
        return object()


@pytest.mark.requirement("FR-003", "C-12-route")
def test_routes_are_bound_in_the_order_of_definition_with_what_the_author_wrote() -> None:
    assert [bound._replace(endpoint=None) for bound in bound_routes(Notes())] == [  # type: ignore[arg-type]
        ("GET", "/v1/notes/{id:int}", None, False, "notes:read"),
        ("GET", "/v1/notes", None, False, None),
        ("GET", "/v1/nothing", None, True, None),
        ("GET", "/v1/broken", None, False, None),
    ]


@pytest.mark.requirement("C-12-route")
@pytest.mark.anyio
async def test_a_route_answers_with_its_response_or_with_its_json_value() -> None:
    one, every, nothing, broken = bound_routes(Notes())
    assert await answer(one, "/v1/notes/7") == (200, "text/plain; charset=utf-8", "note 7")
    status, media_type, body = await answer(every, "/v1/notes")
    assert (status, media_type, json.loads(body)) == (200, "application/json", [{"text": "é"}])
    assert await answer(nothing, "/v1/nothing") == (200, "application/json", "null")
    with pytest.raises(AnswerNotJson, match=r"^object at /$"):
        await answer(broken, "/v1/broken")


@pytest.mark.requirement("C-12-routes-starlette", "FR-003")
@pytest.mark.anyio
async def test_routes_gives_starlette_routes_of_every_kind_after_the_decorated_ones() -> None:
    class Shelf(HTTPEndpoint):
        async def get(self, request: Request) -> Response:
            return PlainTextResponse(f"shelf {request.path_params['name']}")

    def blocking(request: Request) -> Response:
        return PlainTextResponse("from a thread")

    class Library(FunctionProvider):
        @route("POST", "/v1/books")
        async def add(self, request: Request) -> None: ...

        def routes(self) -> list[Route]:
            return [Route("/v1/shelves/{name}", Shelf), Route("/v1/sync", blocking, methods=["GET", "PUT"])]

    add, shelf, sync_get, sync_put = bound_routes(Library())
    assert (add.method, shelf.method, sync_get.method, sync_put.method) == ("POST", "GET", "GET", "PUT")
    assert (shelf.public, shelf.scope) == (False, None)
    assert await answer(shelf, "/v1/shelves/a") == (200, "text/plain; charset=utf-8", "shelf a")
    assert await answer(sync_get, "/v1/sync") == (200, "text/plain; charset=utf-8", "from a thread")


@pytest.mark.anyio
async def test_routes_gives_bound_routes_with_their_scopes_whose_endpoints_may_return_json() -> None:
    class Feeds(FunctionProvider):
        def routes(self) -> list[BoundRoute]:
            return [
                BoundRoute("GET", "/v1/feeds/own", self.own, scope="feeds:own"),
                BoundRoute("GET", "/v1/feeds/open", self.shown, public=True),
            ]

        async def own(self, request: Request) -> dict[str, str]:
            """Return the feed of the caller."""
            return {"feed": request.url.path}

        async def shown(self, request: Request) -> Response:
            return PlainTextResponse("open")

    own, shown = bound_routes(Feeds())
    assert ((own.scope, own.public), (shown.scope, shown.public)) == (("feeds:own", False), (None, True))
    assert await answer(own, "/v1/feeds/own") == (200, "application/json", '{"feed":"/v1/feeds/own"}')
    assert await answer(shown, "/v1/feeds/open") == (200, "text/plain; charset=utf-8", "open")
    assert own.endpoint.__doc__ == "Return the feed of the caller."


def test_routes_gives_nothing_but_routes() -> None:
    class Mounting(FunctionProvider):
        def routes(self) -> list[BaseRoute]:  # type: ignore[override]
            return [Mount("/all", app=Starlette())]

    with pytest.raises(InvalidDefinition, match="Mounting gives Mount"):
        bound_routes(Mounting())


@pytest.mark.requirement("FR-003")
def test_a_provider_without_routes_is_whole() -> None:
    assert bound_routes(FunctionProvider()) == []


@pytest.mark.parametrize(
    ("method", "path"), [("", "/a"), ("GET ", "/a"), ("GET", "a"), ("GET", "/{a}/{a}"), ("GET", "/{a:colour}")]
)
def test_a_method_or_path_that_cannot_be_served_is_refused(method: str, path: str) -> None:
    with pytest.raises(InvalidDefinition, match="@route"):
        route(method, path)


def test_an_endpoint_that_cannot_take_a_request_is_refused_with_the_right_first_line() -> None:
    right = r"write the route as `async def list_notes\(self, request\)`"
    with pytest.raises(InvalidDefinition, match=right):

        class Synchronous(FunctionProvider):
            @route("GET", "/v1/notes")
            def list_notes(self, request: Request) -> None: ...

    with pytest.raises(InvalidDefinition, match=right):

        class Asking(FunctionProvider):
            @route("GET", "/v1/notes")
            async def list_notes(self, request: Request, limit: int) -> None: ...


def test_two_methods_of_one_route_are_refused_whatever_their_parameters_are_called() -> None:
    with pytest.raises(InvalidDefinition, match="'one' and 'other' are both the route GET /v1/notes"):

        class Provider(FunctionProvider):
            @route("GET", "/v1/notes/{a}")
            async def one(self, request: Request) -> None: ...

            @route("get", "/v1/notes/{b}")
            async def other(self, request: Request) -> None: ...


def test_one_method_may_answer_two_routes() -> None:
    class Provider(FunctionProvider):
        @route("GET", "/v1/notes")
        @route("GET", "/v1/all-notes")
        async def both(self, request: Request) -> None: ...

    assert [bound.path for bound in bound_routes(Provider())] == ["/v1/all-notes", "/v1/notes"]
