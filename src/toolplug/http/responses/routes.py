"""The Responses API as rows of the host's table of routes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from toolplug.http.responses.create import create_response
from toolplug.http.responses.stored import cancel_response, delete_response, list_input_items, read_response
from toolplug.http.routing import CALL, HostRoute, Parameter
from toolplug.responses.builder import Status
from toolplug.responses.request import ResponseRequest

Json = dict[str, object]


class ResponseAnswer(BaseModel):
    """A response; the fields that are not named here say what was asked for."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Status
    incomplete_details: Json | None
    error: Json | None
    model: str
    previous_response_id: str | None
    output: list[Json]
    tools: Annotated[list[Json], Field(description="as the client sent them")]
    usage: Json | None
    metadata: dict[str, str]


class DeletedAnswer(BaseModel):
    """A response that is there no more."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class ItemList(BaseModel):
    """A page of items."""

    object: Literal["list"]
    data: list[Json]
    first_id: str | None
    last_id: str | None
    has_more: bool


_ALL = "/v1/responses"
_ONE = "/v1/responses/{id}"
_AGENT = Parameter("X-Toolplug-Agent", "whose tools: an agent's; metadata.toolplug_agent says the same", place="header")
_SESSION = Parameter(
    "X-Toolplug-Session", "whose tools: those of this session as well; metadata.toolplug_session", place="header"
)
_STRICT = Parameter(
    "X-Toolplug-Strict",
    "refuse a built-in tool that no provider declares; metadata.toolplug_strict",
    ("true", "false"),
    place="header",
)
_INCLUDE = Parameter("include", "what is left out otherwise, such as a search's results; may stand several times")
_STREAM = Parameter("stream", "its events instead; of a response with background and stream", ("true", "false"))
_STARTING_AFTER = Parameter("starting_after", "with stream: only the events after that sequence_number")
_ORDER = Parameter("order", "desc when absent: the newest first", ("asc", "desc"))
_LIMIT = Parameter("limit", "how many at most; 20 when absent")
_AFTER = Parameter("after", "the id of the last item of the page before")

RESPONSE_ROUTES = (
    HostRoute(
        "POST",
        _ALL,
        CALL,
        create_response,
        "A model's response, with the caller's tools",
        ResponseAnswer,
        ResponseRequest,
        (_AGENT, _SESSION, _STRICT),
        errors=(400, 404, 410, 413, 415, 429, 502, 503),
        content_types=("application/json", "text/event-stream"),
    ),
    HostRoute(
        "GET",
        _ONE,
        CALL,
        read_response,
        "A stored response",
        ResponseAnswer,
        parameters=(_INCLUDE, _STREAM, _STARTING_AFTER),
        errors=(400, 404, 503),
        content_types=("application/json", "text/event-stream"),
    ),
    HostRoute("DELETE", _ONE, CALL, delete_response, "Forget a response", DeletedAnswer, errors=(404, 503)),
    HostRoute(
        "POST",
        f"{_ONE}/cancel",
        CALL,
        cancel_response,
        "Stop a response in the background",
        ResponseAnswer,
        errors=(404, 409, 503),
    ),
    HostRoute(
        "GET",
        f"{_ONE}/input_items",
        CALL,
        list_input_items,
        "What a response was made from",
        ItemList,
        parameters=(_ORDER, _LIMIT, _AFTER),
        errors=(400, 404, 503),
    ),
)
