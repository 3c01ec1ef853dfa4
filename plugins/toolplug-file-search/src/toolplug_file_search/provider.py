"""The provider: its tools, its routes, and what it opens and closes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Annotated

from prometheus_client.registry import Collector
from pydantic import Field
from starlette.requests import Request
from starlette.routing import Route

from toolplug import CallContext, FunctionProvider, Principal, ProviderContext, ToolError, ToolResult, tool
from toolplug.runtime import TooManyWaiting
from toolplug_file_search.documents.analysis import Analyzer
from toolplug_file_search.documents.preparation import Cutting
from toolplug_file_search.documents.reader import DocumentReader, ReaderUnavailable, ReadingStopped
from toolplug_file_search.ingest.background import BackgroundIngest
from toolplug_file_search.ingest.local_files import pattern
from toolplug_file_search.ingest.mirror import Mirror
from toolplug_file_search.metrics import Contents, Measures
from toolplug_file_search.openai_api.files import FileRoutes
from toolplug_file_search.openai_api.store_files import StoreFileRoutes
from toolplug_file_search.openai_api.vector_stores import VectorStoreRoutes
from toolplug_file_search.search.meaning import Meaning
from toolplug_file_search.search.options import (
    MAX_QUERY,
    MAX_RESULTS,
    MAX_STORES,
    Narrowed,
    StoreId,
    StubOptions,
    narrow,
)
from toolplug_file_search.search.reranking import Reranker
from toolplug_file_search.search.results import ITEM, list_result, search_result
from toolplug_file_search.search.searcher import Found, Passage, Searcher, left_out, searchable_files
from toolplug_file_search.settings import Settings
from toolplug_file_search.storage.database import Database, IndexUnavailable, TimeLimit
from toolplug_file_search.storage.library import Library, Quotas
from toolplug_file_search.storage.records import Caller
from toolplug_file_search.storage.selection import NotThere
from toolplug_file_search.vectors.embeddings import embedder
from toolplug_file_search.vectors.protocol import VectorIndex

RETRY_S = 1.0
SEARCH_S = 20.0
"""Seconds that a search may take, of which half may go by until changed files are read."""
MAX_SKIPPED = 100

StoreIds = Annotated[list[StoreId], Field(max_length=MAX_STORES)]


class FileSearch(FunctionProvider):
    """Searches the files that a tenant uploaded, and those that the operator configured for every tenant."""

    Config = Settings
    config: Settings
    _database: Database | None = None

    async def start(self, site: ProviderContext) -> None:
        """Open the index, which an earlier run may have filled, and begin to look at the operator's files.

        Nothing is connected: servers of embeddings and vectors are reached when they are first needed.
        """
        settings = self.config
        self._in_thread = site.in_thread
        self._measures = Measures()
        self._quotas = Quotas(files=settings.max_files, stores=settings.max_vector_stores, bytes=settings.max_bytes)
        index = await site.in_thread(Database, site.state_dir / "index.db")
        self._database = self._index = index
        self._meaning = await site.in_thread(self._opened_meaning, index)
        self._reranker = Reranker(settings.rerank_url, settings) if settings.rerank_url else None
        self._searcher = Searcher(index, Analyzer(), self._meaning, self._reranker)
        cutting = Cutting(size=settings.chunk_size, overlap=settings.overlap)
        # a reader each: a tenant's document that takes long must not keep the operator's waiting
        self._reader = DocumentReader(cutting, self.log, site.state_dir)
        local_reader = DocumentReader(cutting, self.log, site.state_dir)
        self._background = BackgroundIngest(index, self._reader, self.log, after=self._catch_up)
        self._mirror = Mirror(
            index,
            [pattern(path, site.config_dir) for path in settings.paths],
            local_reader,
            max_file_bytes=settings.max_file_bytes,
            refresh_s=settings.refresh,
            log=self.log,
            ingested=self._measures.count_ingested,
            looked=self._background.wake,
        )
        self._background.start()
        self._mirror.begin()

    async def aclose(self) -> None:
        """End what runs, in the middle of a document too, and close the index, if it could be opened."""
        index, self._database = self._database, None
        if index is not None:
            try:
                await asyncio.gather(self._in_thread(self._mirror.stop), self._in_thread(self._background.stop))
            finally:
                for each in (self._meaning, self._reranker, index):
                    if each is not None:
                        await self._in_thread(each.close)

    async def diagnose(self) -> Sequence[str]:
        """Report for `toolplug doctor` what cannot be started or reached, and how many files are skipped."""
        await self._in_thread(self._mirror.refresh)
        found = [] if self._meaning is None else await self._in_thread(self._meaning.problems)
        try:
            found += await self._in_thread(self._reader.check)
        except ReaderUnavailable as error:
            found.append(f"{error} (install toolplug-file-search again, with all that it needs)")
        except ReadingStopped:
            return found
        everyone = Caller(tenant="", subject="", own_only=False)
        left = await self._in_thread(left_out, self._index, everyone, limit=1)
        if left.total:
            [first] = left.skipped
            found.append(
                f"{left.total} of the files of paths cannot be searched, such as {first.file!r}: {first.reason} "
                "(list_files names each, with the reason)"
            )
        return found

    def collectors(self) -> Sequence[Collector]:
        return (Contents(self._index), *self._measures.collectors())

    def routes(self) -> Sequence[Route]:
        settings = self.config
        files = FileRoutes(
            self._library,
            self._in_thread,
            max_file_bytes=settings.max_file_bytes,
            ingested=self._measures.count_ingested,
        )
        stores = VectorStoreRoutes(self._library, self._in_thread, self._search_store)
        store_files = StoreFileRoutes(self._library, self._in_thread)
        return (*stores.routes(), *store_files.routes(), *files.routes())

    @tool(read_only=True, stub="file_search", stub_options=StubOptions, item=ITEM)
    async def file_search(
        self,
        query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY)],
        context: CallContext,
        max_results: Annotated[int, Field(ge=1, le=MAX_RESULTS)] | None = None,
        vector_store_ids: StoreIds | None = None,
    ) -> ToolResult:
        """Search the available files and return the passages that answer best, each with its file, its place and a
        `cite` to quote as the source.

        Args:
            query: what to look for, in words that the text itself would use
            max_results: how many passages at most
            vector_store_ids: look only into these vector stores; leave it out to search everything
        """
        asked = narrow(
            context.options, stores=vector_store_ids, limit=max_results, default_limit=self.config.max_results
        )
        caller = _caller(context.principal)
        try:
            async with _until(context.deadline) as limit:
                found = await self._in_thread(self._search, caller, query, asked, limit)
        except NotThere as error:
            raise ToolError(str(error)) from None
        except (IndexUnavailable, TooManyWaiting) as error:
            raise _try_again(error) from error
        return search_result(query, found, self._mirror.progress)

    @tool(read_only=True)
    async def list_files(
        self,
        context: CallContext,
        after: Annotated[str, Field(max_length=64)] = "",
        limit: Annotated[int, Field(ge=1, le=1000)] = 100,
    ) -> dict[str, object]:
        """List the files that can be searched, and those that are skipped, with the reason.

        Args:
            after: the file_id of the last file of the list before, to go on from there
            limit: how many files at most
        """
        try:
            return await self._in_thread(self._list_files, _caller(context.principal), after, limit)
        except NotThere as error:
            raise ToolError(str(error)) from None
        except (IndexUnavailable, TooManyWaiting) as error:
            raise _try_again(error) from error

    def _list_files(self, caller: Caller, after: str, limit: int) -> dict[str, object]:
        self._mirror.refresh()
        files, total = searchable_files(self._index, caller, after=after, limit=limit)
        left = left_out(self._index, caller, limit=MAX_SKIPPED)
        return list_result(files, total, left, self._mirror.progress)

    def _search(self, caller: Caller, query: str, asked: Narrowed, limit: TimeLimit) -> Found:
        self._mirror.refresh()
        with self._measures.searching() as passages:
            found = self._searcher.search(caller, query, asked, limit)
            passages.extend(found.passages)
        return found

    async def _search_store(self, request: Request, query: str, asked: Narrowed) -> Sequence[Passage]:
        async with _until(None) as limit:
            watch = asyncio.create_task(_wait_for_disconnect(request))
            watch.add_done_callback(lambda _: limit.stop())
            try:
                found = await self._in_thread(self._search, _caller(request.state.principal), query, asked, limit)
            finally:
                watch.cancel()
                await asyncio.wait([watch])
        return found.passages

    def _opened_meaning(self, database: Database) -> Meaning | None:
        """What searches by meaning, if the settings ask for it; numpy and psycopg are imported for it only."""
        model = embedder(self.config)
        if model is None:
            return None
        if self.config.vector_db == "sqlite":
            vectors: VectorIndex = import_module("toolplug_file_search.vectors.sqlite").SqliteVectors(database)
        else:
            url = self.config.database_url
            try:
                module = import_module("toolplug_file_search.vectors.pgvector")
            except ImportError as error:
                message = "vector_db: pgvector needs psycopg (pip install 'toolplug-file-search[pgvector]')"
                raise ValueError(f"{message}: {error}") from error
            vectors = module.PgVectors(database, url.get_secret_value() if url else "")
        return Meaning(database, model, vectors, self.log)

    def _catch_up(self, stopped: Callable[[], bool]) -> None:
        if self._meaning is not None:
            self._meaning.catch_up(stopped)

    def _library(self, request: Request) -> Library:
        return Library(self._index, _caller(request.state.principal), self._quotas, self._background.wake)


def _caller(principal: Principal) -> Caller:
    """A credential that names agents sees the files of its own subject only."""
    return Caller(tenant=principal.tenant, subject=principal.subject, own_only=principal.agents is not None)


@asynccontextmanager
async def _until(deadline: float | None) -> AsyncGenerator[TimeLimit]:
    """The time that a search has: `SEARCH_S`, or less where the call's deadline (loop time) is earlier.

    When the block ends, as it does when its caller is gone, the search ends too.
    """
    left = SEARCH_S if deadline is None else deadline - asyncio.get_running_loop().time()
    limit = TimeLimit(min(SEARCH_S, max(left, 0.0)))
    try:
        yield limit
    finally:
        limit.stop()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _try_again(error: Exception) -> ToolError:
    return ToolError(f"the index of files cannot answer now: {error}", retry_after_s=RETRY_S)
