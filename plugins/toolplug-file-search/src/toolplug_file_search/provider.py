"""The provider: its tools, its routes, and what it opens and closes."""

from __future__ import annotations

from asyncio import Task, create_task, to_thread
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated

from prometheus_client.registry import Collector
from pydantic import Field
from starlette.requests import Request
from starlette.routing import Route

from toolplug import (
    CallContext,
    FunctionProvider,
    Principal,
    ProviderContext,
    ToolError,
    ToolResult,
    ToolUnavailable,
    tool,
)
from toolplug_file_search.documents.analysis import Analyzer
from toolplug_file_search.documents.reader import DocumentReader
from toolplug_file_search.ingest.background import BackgroundIngest, Indexer
from toolplug_file_search.ingest.local_files import pattern
from toolplug_file_search.ingest.mirror import Mirror
from toolplug_file_search.metrics import Contents, Measures
from toolplug_file_search.openai_api.files import FileRoutes
from toolplug_file_search.openai_api.store_files import StoreFileRoutes
from toolplug_file_search.openai_api.vector_stores import VectorStoreRoutes
from toolplug_file_search.search.meaning import Meaning
from toolplug_file_search.search.options import MAX_RESULTS, Narrowed, StubOptions, narrowed
from toolplug_file_search.search.reranking import Reranker
from toolplug_file_search.search.results import ITEM, list_result, search_result
from toolplug_file_search.search.searcher import Found, Passage, Searcher, left_out, searchable_files
from toolplug_file_search.settings import Settings
from toolplug_file_search.storage.database import Database, IndexUnavailable
from toolplug_file_search.storage.indexing import Cutting
from toolplug_file_search.storage.library import Library, Quotas
from toolplug_file_search.storage.records import Caller
from toolplug_file_search.storage.selection import NotThere
from toolplug_file_search.vectors.embeddings import embedder
from toolplug_file_search.vectors.protocol import VectorIndex, VectorsUnavailable

RETRY_S = 1.0
MAX_SKIPPED = 100

StoreIds = Annotated[list[str], Field(max_length=50)]


class FileSearch(FunctionProvider):
    """Searches the files that a tenant uploaded, and those that the operator configured for every tenant."""

    Config = Settings
    config: Settings
    _first_look: Task[None] | None = None

    async def start(self, site: ProviderContext) -> None:
        """Open the index, which an earlier run may have filled, and begin to look at the operator's files.

        Nothing is connected: servers of embeddings and vectors are reached when they are first needed.
        """
        settings = self.config
        self._measures = Measures()
        self._quotas = Quotas(files=settings.max_files, stores=settings.max_vector_stores, bytes=settings.max_bytes)
        analyzer, self._reader = Analyzer(), DocumentReader()
        indexer = Indexer(self._reader, analyzer, Cutting(size=settings.chunk_size, overlap=settings.overlap))
        self._database = await to_thread(Database, site.state_dir / "index.db")
        self._meaning = self._opened_meaning(self._database)
        self._reranker = Reranker(settings.rerank_url, settings) if settings.rerank_url else None
        self._searcher = Searcher(self._database, analyzer, self._meaning, self._reranker)
        self._background = BackgroundIngest(self._database, indexer, self.log, after=self._catch_up)
        self._mirror = Mirror(
            self._database,
            [pattern(path, site.config_dir) for path in settings.paths],
            indexer,
            max_file_bytes=settings.max_file_bytes,
            refresh_s=settings.refresh,
            log=self.log,
            ingested=self._ingested,
        )
        self._background.start()
        self._first_look = create_task(self._look())

    async def aclose(self) -> None:
        """End what runs and close the index; there is nothing to close where it could not be opened."""
        if self._first_look is not None:
            try:
                await to_thread(self._mirror.stop)
                await to_thread(self._background.stop)
                await self._first_look
                await to_thread(self._reader.close)
            finally:
                for each in (self._meaning, self._reranker, self._database):
                    if each is not None:
                        await to_thread(each.close)

    async def diagnose(self) -> Sequence[str]:
        """Report for `toolplug doctor` what cannot be reached, and how many files are skipped."""
        if self._first_look is not None:
            await self._first_look
        left = await to_thread(left_out, self._database, Caller(tenant="", subject="", own_only=False), limit=1)
        found = [] if self._meaning is None else await to_thread(self._meaning.problems)
        if left.total:
            [first] = left.skipped
            found.append(
                f"{left.total} of the files of paths cannot be searched, such as {first.file!r}: {first.reason} "
                "(list_files names each, with the reason)"
            )
        return found

    def collectors(self) -> Sequence[Collector]:
        return (Contents(self._database), *self._measures.collectors())

    def routes(self) -> Sequence[Route]:
        settings = self.config
        files = FileRoutes(self._library, max_file_bytes=settings.max_file_bytes, ingested=self._measures.ingested)
        stores = VectorStoreRoutes(self._library, self._search_store)
        return (*stores.routes(), *StoreFileRoutes(self._library).routes(), *files.routes())

    @tool(read_only=True, stub="file_search", stub_options=StubOptions, item=ITEM)
    def file_search(
        self,
        query: Annotated[str, Field(min_length=1, max_length=10_000)],
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
        asked = narrowed(
            context.options, stores=vector_store_ids, limit=max_results, default_limit=self.config.max_results
        )
        try:
            self._mirror.refresh()
            found = self._searched(_caller(context.principal), query, asked)
        except NotThere as error:
            raise ToolError(str(error)) from None
        except IndexUnavailable as error:
            raise _try_again(error) from error
        except VectorsUnavailable as error:
            raise ToolUnavailable(str(error), code="vectors_unavailable", retry_after_s=RETRY_S) from error
        return search_result(query, found, self._mirror.progress)

    @tool(read_only=True)
    def list_files(
        self,
        context: CallContext,
        after: str = "",
        limit: Annotated[int, Field(ge=1, le=1000)] = 100,
    ) -> dict[str, object]:
        """List the files that can be searched, and those that are skipped, with the reason.

        Args:
            after: the file_id of the last file of the list before, to go on from there
            limit: how many files at most
        """
        try:
            self._mirror.refresh()
            caller = _caller(context.principal)
            files, total = searchable_files(self._database, caller, after=after, limit=limit)
            left = left_out(self._database, caller, limit=MAX_SKIPPED)
        except NotThere as error:
            raise ToolError(str(error)) from None
        except IndexUnavailable as error:
            raise _try_again(error) from error
        return list_result(files, total, left, self._mirror.progress)

    def _searched(self, caller: Caller, query: str, asked: Narrowed) -> Found:
        with self._measures.searching() as passages:
            found = self._searcher.search(caller, query, asked)
            passages.extend(found.passages)
        return found

    def _search_store(self, request: Request, query: str, asked: Narrowed) -> Sequence[Passage]:
        return self._searched(_caller(request.state.principal), query, asked).passages

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

    def _ingested(self, size: int) -> None:
        self._measures.ingested(size)

    async def _look(self) -> None:
        try:
            await to_thread(self._mirror.refresh)
        except IndexUnavailable as error:
            self.log.warning("the local files are not indexed yet: %s; the next search tries again", error)
        self._background.wake()

    def _library(self, request: Request) -> Library:
        return Library(self._database, _caller(request.state.principal), self._quotas, self._background.wake)


def _caller(principal: Principal) -> Caller:
    """A credential that names agents sees the files of its own subject only."""
    return Caller(tenant=principal.tenant, subject=principal.subject, own_only=principal.agents is not None)


def _try_again(error: IndexUnavailable) -> ToolError:
    return ToolError(f"the index of files cannot answer now: {error}", retry_after_s=RETRY_S)
