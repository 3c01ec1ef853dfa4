"""`/v1/vector_stores…` in OpenAI's shapes (https://platform.openai.com/docs/api-reference/vector-stores)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
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
)
from toolplug_file_search.search.filters import Filter
from toolplug_file_search.search.options import MAX_QUERY, MAX_RESULTS, Narrowed, RankingOptions, rank
from toolplug_file_search.search.searcher import Passage
from toolplug_file_search.storage.library import Attached
from toolplug_file_search.storage.records import Counts, VectorStore

Key = Annotated[str, Field(max_length=64)]
Value = Annotated[str, Field(max_length=512)]
Description = Annotated[str, Field(max_length=512)]
Metadata = Annotated[dict[Key, Value], Field(max_length=16)]
Search = Callable[[Request, str, Narrowed], Awaitable[Sequence[Passage]]]
"""Searches as the caller of the request, until its client is gone."""
MAX_QUERIES = 50


class AutoChunking(BaseModel):
    """The only strategy: how files are cut is the operator's decision."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["auto"]


class ExpiresAfter(BaseModel):
    """Days after the last activity."""

    model_config = ConfigDict(extra="forbid", strict=True)

    anchor: Literal["last_active_at"]
    days: Annotated[int, Field(ge=1, le=365)]


class NewStore(BaseModel):
    """The body of `POST /v1/vector_stores`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(max_length=255)] = ""
    description: Description = ""
    metadata: Metadata | None = None
    file_ids: Annotated[list[Identifier], Field(max_length=500, fail_fast=True)] = []
    chunking_strategy: AutoChunking | None = None
    expires_after: ExpiresAfter | None = None


class ChangedStore(BaseModel):
    """The body of `POST /v1/vector_stores/{id}`: only what is given changes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(max_length=255)] | None = None
    description: Description | None = None
    metadata: Metadata | None = None
    expires_after: ExpiresAfter | None = None


Query = Annotated[str, Field(min_length=1, max_length=MAX_QUERY)]


class Question(BaseModel):
    """The body of `POST /v1/vector_stores/{id}/search`; several queries are asked as one."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: Query | Annotated[list[Query], Field(min_length=1, max_length=MAX_QUERIES, fail_fast=True)]
    max_num_results: Annotated[int, Field(ge=1, le=MAX_RESULTS)] = 10
    ranking_options: RankingOptions = RankingOptions()
    filters: Filter | None = None
    rewrite_query: bool = False


class VectorStoreRoutes:
    """The handlers; each opens the library of the request's caller and works in a thread."""

    def __init__(self, library: OpenLibrary, in_thread: InThread, search: Search) -> None:
        self._library = library
        self._in_thread = in_thread
        self._search = search

    def routes(self) -> list[Route]:
        stores, store = "/v1/vector_stores", "/v1/vector_stores/{store_id}"
        return [
            Route(stores, answering(self.create), methods=["POST"]),
            Route(stores, answering(self.list), methods=["GET"]),
            Route(store, answering(self.retrieve), methods=["GET"]),
            Route(store, answering(self.update), methods=["POST"]),
            Route(store, answering(self.delete), methods=["DELETE"]),
            Route(f"{store}/search", answering(self.search), methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        """Make one; the files that it names are read in the background."""
        new = await body(request, NewStore)
        files = [Attached(file_id, {}) for file_id in dict.fromkeys(new.file_ids)]
        days = new.expires_after.days if new.expires_after else None
        create = self._library(request).create_store
        made = await self._in_thread(create, new.name, new.metadata or {}, files, days, new.description)
        return JSONResponse(_store(made))

    async def list(self, request: Request) -> Response:
        return list_answer(await self._in_thread(self._library(request).stores, page(request)), _store)

    async def retrieve(self, request: Request) -> Response:
        return JSONResponse(_store(await self._in_thread(self._library(request).store, store_id(request))))

    async def update(self, request: Request) -> Response:
        changed = await body(request, ChangedStore)
        given = changed.model_fields_set
        columns: dict[str, object] = {}
        if "name" in given and changed.name is not None:
            columns["name"] = changed.name
        if "description" in given:
            columns["description"] = changed.description or ""
        if "metadata" in given:
            columns["metadata"] = json.dumps(changed.metadata or {})
        if "expires_after" in given:
            columns["expires_days"] = changed.expires_after.days if changed.expires_after else None
        return JSONResponse(
            _store(await self._in_thread(self._library(request).update_store, store_id(request), columns))
        )

    async def delete(self, request: Request) -> Response:
        await self._in_thread(self._library(request).delete_store, store_id(request))
        return JSONResponse({"id": store_id(request), "object": "vector_store.deleted", "deleted": True})

    async def search(self, request: Request) -> Response:
        """Search one vector store, as a page of all that is found."""
        asked = await body(request, Question)
        if asked.rewrite_query:
            raise RequestRefused(400, "unsupported_value", "rewrite_query: queries are not rewritten", "rewrite_query")
        queries = [asked.query] if isinstance(asked.query, str) else asked.query
        query = " ".join(queries)
        if len(query) > MAX_QUERY:
            message = f"query: together they have {len(query)} characters, {MAX_QUERY} are allowed"
            raise RequestRefused(400, "invalid_value", message, "query")
        wanted = rank([store_id(request)], asked.max_num_results, asked.ranking_options, asked.filters)
        found = await self._search(request, query, wanted)
        files = {passage.file_id for passage in found}
        attributes = await self._in_thread(self._library(request).attributes, store_id(request), files)
        data = [
            {
                "file_id": passage.file_id,
                "filename": passage.file,
                "score": passage.score,
                "attributes": dict(attributes.get(passage.file_id, {})),
                "content": [{"type": "text", "text": passage.text}],
            }
            for passage in found
        ]
        answer = {"object": "vector_store.search_results.page", "search_query": queries, "data": data}
        return JSONResponse({**answer, "has_more": False, "next_page": None})


def store_id(request: Request) -> str:
    """The vector store of the path."""
    return str(request.path_params["store_id"])


def shown_counts(counts: Counts) -> Mapping[str, int]:
    """The states of files in OpenAI's shape."""
    return {
        "in_progress": counts.in_progress,
        "completed": counts.completed,
        "failed": counts.failed,
        "cancelled": counts.cancelled,
        "total": counts.total,
    }


def _store(store: VectorStore) -> dict[str, object]:
    status = "expired" if store.expired else "in_progress" if store.counts.in_progress else "completed"
    days = store.expires_days
    return {
        "id": store.id,
        "object": "vector_store",
        "created_at": store.created_at,
        "name": store.name,
        "description": store.description,
        "usage_bytes": store.bytes,
        "file_counts": shown_counts(store.counts),
        "status": status,
        "expires_after": None if days is None else {"anchor": "last_active_at", "days": days},
        "expires_at": store.expires_at,
        "last_active_at": store.active_at,
        "metadata": dict(store.metadata),
    }
