"""`/v1/vector_stores…` in OpenAI's shapes (https://platform.openai.com/docs/api-reference/vector-stores)."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolplug_file_search.answers import OpenLibrary, answering, body, list_answer, page
from toolplug_file_search.records import Attribute, Member, VectorStore

Key = Annotated[str, Field(max_length=64)]
Value = Annotated[str, Field(max_length=512)]


class AutoChunking(BaseModel):
    """The only strategy: how files are cut is the operator's decision."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["auto"]


class NewStore(BaseModel):
    """The body of `POST /v1/vector_stores`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(max_length=255)] = ""
    metadata: Annotated[dict[Key, Value], Field(max_length=16)] | None = None
    file_ids: Annotated[list[str], Field(max_length=500)] = []
    chunking_strategy: AutoChunking | None = None


class NewMember(BaseModel):
    """The body of `POST /v1/vector_stores/{id}/files`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    file_id: str
    attributes: Annotated[dict[Key, Value | bool | int | float], Field(max_length=16)] | None = None
    chunking_strategy: AutoChunking | None = None


class VectorStoreRoutes:
    """The handlers; each opens the library of the request's caller and works in a thread."""

    def __init__(self, library: OpenLibrary) -> None:
        self._library = library

    def routes(self) -> list[Route]:
        stores, store = "/v1/vector_stores", "/v1/vector_stores/{store_id}"
        members, member = f"{store}/files", f"{store}/files/{{file_id}}"
        return [
            Route(stores, answering(self.create), methods=["POST"]),
            Route(stores, answering(self.list), methods=["GET"]),
            Route(store, answering(self.retrieve), methods=["GET"]),
            Route(store, answering(self.delete), methods=["DELETE"]),
            Route(members, answering(self.attach), methods=["POST"]),
            Route(members, answering(self.list_files), methods=["GET"]),
            Route(member, answering(self.retrieve_file), methods=["GET"]),
            Route(member, answering(self.detach), methods=["DELETE"]),
        ]

    async def create(self, request: Request) -> Response:
        """Make one; the files that it names are searchable when it answers."""
        new = await body(request, NewStore)
        made = await to_thread(self._library(request).create_store, new.name, new.metadata or {}, new.file_ids)
        return JSONResponse(_store(made))

    async def list(self, request: Request) -> Response:
        return list_answer(await to_thread(self._library(request).stores, page(request)), _store)

    async def retrieve(self, request: Request) -> Response:
        return JSONResponse(_store(await to_thread(self._library(request).store, _store_id(request))))

    async def delete(self, request: Request) -> Response:
        await to_thread(self._library(request).delete_store, _store_id(request))
        return JSONResponse({"id": _store_id(request), "object": "vector_store.deleted", "deleted": True})

    async def attach(self, request: Request) -> Response:
        """Put a file in; it is searchable when this answers, so the status is `completed` at once."""
        new = await body(request, NewMember)
        attributes: Mapping[str, Attribute] = new.attributes or {}
        member = await to_thread(self._library(request).attach, _store_id(request), new.file_id, attributes)
        return JSONResponse(_member(member))

    async def list_files(self, request: Request) -> Response:
        listed = await to_thread(self._library(request).members, _store_id(request), page(request))
        return list_answer(listed, _member)

    async def retrieve_file(self, request: Request) -> Response:
        member = await to_thread(self._library(request).member, _store_id(request), _file_id(request))
        return JSONResponse(_member(member))

    async def detach(self, request: Request) -> Response:
        await to_thread(self._library(request).detach, _store_id(request), _file_id(request))
        return JSONResponse({"id": _file_id(request), "object": "vector_store.file.deleted", "deleted": True})


def _store_id(request: Request) -> str:
    return str(request.path_params["store_id"])


def _file_id(request: Request) -> str:
    return str(request.path_params["file_id"])


def _store(store: VectorStore) -> dict[str, object]:
    counts = {"in_progress": 0, "completed": store.files, "failed": 0, "cancelled": 0, "total": store.files}
    return {
        "id": store.id,
        "object": "vector_store",
        "created_at": store.created_at,
        "name": store.name,
        "usage_bytes": store.bytes,
        "file_counts": counts,
        "status": "completed",
        "expires_after": None,
        "expires_at": None,
        "last_active_at": store.created_at,
        "metadata": dict(store.metadata),
    }


def _member(member: Member) -> dict[str, object]:
    return {
        "id": member.file_id,
        "object": "vector_store.file",
        "created_at": member.created_at,
        "usage_bytes": member.bytes,
        "vector_store_id": member.store_id,
        "status": "completed",
        "last_error": None,
        "attributes": dict(member.attributes),
    }
