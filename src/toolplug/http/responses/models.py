"""What goes over the wire under `/v1/responses` as pydantic models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from toolplug.responses.builder import Status

Json = dict[str, object]


class ResponseAnswer(BaseModel, extra="allow"):
    """A response; the fields that are not named here say what was asked for."""

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
