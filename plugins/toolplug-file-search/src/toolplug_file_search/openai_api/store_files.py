"""`/v1/vector_stores/{id}/files…` and `…/file_batches…` in OpenAI's shapes."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from toolplug_file_search.openai_api.answers import (
    Identifier,
    InThread,
    OpenLibrary,
    RequestRefused,
    answering,
    body,
    list_answer,
    page,
    state,
)
from toolplug_file_search.openai_api.vector_stores import AutoChunking, Key, Value, shown_counts, store_id
from toolplug_file_search.storage.library import Attached
from toolplug_file_search.storage.records import Batch, Member

Attributes = Annotated[dict[Key, Value | bool | int | float], Field(max_length=16)]
MAX_BATCH = 2000
MAX_BATCH_BODY = 256 * 1024
"""Bytes of the body of a batch."""
POLL_AFTER = {"openai-poll-after-ms": "200"}
"""How soon OpenAI's clients ask again whether a file was read."""
_UNSUPPORTED = frozenset({"unsupported_file", "not_text"})


class NewMember(BaseModel):
    """The body of `POST /v1/vector_stores/{id}/files`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    file_id: Identifier
    attributes: Attributes | None = None
    chunking_strategy: AutoChunking | None = None


class ChangedMember(BaseModel):
    """The body of `POST /v1/vector_stores/{id}/files/{file_id}`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    attributes: Attributes | None


class NewBatch(BaseModel):
    """The body of `POST /v1/vector_stores/{id}/file_batches`: `file_ids`, or `files` with attributes for each."""

    model_config = ConfigDict(extra="forbid", strict=True)

    file_ids: Annotated[list[Identifier], Field(min_length=1, max_length=MAX_BATCH, fail_fast=True)] | None = None
    files: Annotated[list[NewMember], Field(min_length=1, max_length=MAX_BATCH, fail_fast=True)] | None = None
    attributes: Attributes | None = None
    chunking_strategy: AutoChunking | None = None


class StoreFileRoutes:
    """The handlers; each opens the library of the request's caller and works in a thread."""

    def __init__(self, library: OpenLibrary, in_thread: InThread) -> None:
        self._library = library
        self._in_thread = in_thread

    def routes(self) -> list[Route]:
        store = "/v1/vector_stores/{store_id}"
        members, member = f"{store}/files", f"{store}/files/{{file_id}}"
        batch = f"{store}/file_batches/{{batch_id}}"
        return [
            Route(members, answering(self.attach), methods=["POST"]),
            Route(members, answering(self.list_files), methods=["GET"]),
            Route(member, answering(self.retrieve_file), methods=["GET"]),
            Route(member, answering(self.update_file), methods=["POST"]),
            Route(member, answering(self.detach), methods=["DELETE"]),
            Route(f"{member}/content", answering(self.content), methods=["GET"]),
            Route(f"{store}/file_batches", answering(self.create_batch), methods=["POST"]),
            Route(batch, answering(self.retrieve_batch), methods=["GET"]),
            Route(f"{batch}/cancel", answering(self.cancel_batch), methods=["POST"]),
            Route(f"{batch}/files", answering(self.list_batch), methods=["GET"]),
        ]

    async def attach(self, request: Request) -> Response:
        """Put a file in; it is read in the background, and its status says when it is searchable."""
        attached = _attach(await body(request, NewMember))
        member = await self._in_thread(self._library(request).attach, store_id(request), attached)
        return JSONResponse(_member(member), headers=POLL_AFTER)

    async def list_files(self, request: Request) -> Response:
        library = self._library(request)
        return list_answer(
            await self._in_thread(library.members, store_id(request), page(request), state(request)), _member
        )

    async def retrieve_file(self, request: Request) -> Response:
        member = await self._in_thread(self._library(request).member, store_id(request), _file_id(request))
        return JSONResponse(_member(member), headers=POLL_AFTER)

    async def update_file(self, request: Request) -> Response:
        changed = await body(request, ChangedMember)
        attached = Attached(_file_id(request), changed.attributes or {})
        return JSONResponse(
            _member(await self._in_thread(self._library(request).update_member, store_id(request), attached))
        )

    async def detach(self, request: Request) -> Response:
        await self._in_thread(self._library(request).detach, store_id(request), _file_id(request))
        return JSONResponse({"id": _file_id(request), "object": "vector_store.file.deleted", "deleted": True})

    async def content(self, request: Request) -> Response:
        """The text of a file as it is searched, a passage each, sent while it is read."""
        first = await self._passages(request, 0)
        return StreamingResponse(self._content(request, first), media_type="application/json")

    async def _content(self, request: Request, passages: Sequence[tuple[int, str]]) -> AsyncGenerator[str]:
        separator = '{"object": "vector_store.file_content.page", "has_more": false, "next_page": null, "data": ['
        while passages:
            for _, text in passages:
                yield separator + json.dumps({"type": "text", "text": text})
                separator = ", "
            passages = await self._passages(request, passages[-1][0])
        yield "]}" if separator == ", " else f"{separator}]}}"

    async def _passages(self, request: Request, after: int) -> Sequence[tuple[int, str]]:
        library = self._library(request)
        return await self._in_thread(library.text, store_id(request), _file_id(request), after)

    async def create_batch(self, request: Request) -> Response:
        """Put many files in by one request."""
        new = await body(request, NewBatch, most=MAX_BATCH_BODY)
        if (new.file_ids is None) == (new.files is None):
            raise RequestRefused(400, "invalid_value", "give either file_ids or files", "file_ids")
        if new.files is not None:
            attached = [_attach(each) for each in new.files]
        else:
            attached = [Attached(file_id, new.attributes or {}) for file_id in dict.fromkeys(new.file_ids or ())]
        batch = await self._in_thread(self._library(request).create_batch, store_id(request), attached)
        return JSONResponse(_batch(batch), headers=POLL_AFTER)

    async def retrieve_batch(self, request: Request) -> Response:
        batch = await self._in_thread(self._library(request).batch, store_id(request), _batch_id(request))
        return JSONResponse(_batch(batch), headers=POLL_AFTER)

    async def cancel_batch(self, request: Request) -> Response:
        """Leave out what was not read yet; what was read stays."""
        batch = await self._in_thread(self._library(request).cancel_batch, store_id(request), _batch_id(request))
        return JSONResponse(_batch(batch))

    async def list_batch(self, request: Request) -> Response:
        listed = await self._in_thread(
            self._library(request).members, store_id(request), page(request), state(request), _batch_id(request)
        )
        return list_answer(listed, _member)


def _file_id(request: Request) -> str:
    return str(request.path_params["file_id"])


def _batch_id(request: Request) -> str:
    return str(request.path_params["batch_id"])


def _attach(new: NewMember) -> Attached:
    return Attached(new.file_id, new.attributes or {})


def _member(member: Member) -> dict[str, object]:
    error = None
    if member.status == "failed":
        code = member.error_code if member.error_code == "server_error" else "invalid_file"
        error = {
            "code": "unsupported_file" if member.error_code in _UNSUPPORTED else code,
            "message": member.error,
        }
    return {
        "id": member.file_id,
        "object": "vector_store.file",
        "created_at": member.created_at,
        "usage_bytes": member.bytes,
        "vector_store_id": member.store_id,
        "status": member.status,
        "last_error": error,
        "attributes": dict(member.attributes),
        "chunking_strategy": {"type": "other"},
        **({"left_out": member.left_out} if member.left_out else {}),
    }


def _batch(batch: Batch) -> dict[str, object]:
    status = "cancelled" if batch.cancelled else "in_progress" if batch.counts.in_progress else "completed"
    return {
        "id": batch.id,
        "object": "vector_store.files_batch",
        "created_at": batch.created_at,
        "vector_store_id": batch.store_id,
        "status": status,
        "file_counts": shown_counts(batch.counts),
    }
