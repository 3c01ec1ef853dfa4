"""The provider `web_search`: its tools, its cache, its metrics, and what it reports to `toolplug doctor`."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from typing import Annotated, Generic, NamedTuple, TypeVar

from prometheus_client import Counter, Histogram
from prometheus_client.registry import Collector
from pydantic import Field

from toolplug import (
    CallContext,
    FunctionProvider,
    ProviderContext,
    ToolError,
    ToolResult,
    ToolUnavailable,
    checked_transport,
    tool,
)
from toolplug_web_search.backends import (
    MAX_ANSWER_BYTES,
    Backend,
    BackendUnavailable,
    Hit,
    HttpBackend,
    Query,
    TimeRange,
)
from toolplug_web_search.pages import Page, PageReader, ReaderFailed, page_url
from toolplug_web_search.results import PAGE_ITEM, SEARCH_ITEM, distinct, page_result, permit, search_result
from toolplug_web_search.services import SERVICES, DdgsBackend
from toolplug_web_search.settings import MAX_RESULTS, Domains, Language, Settings, StubOptions, domain_rules

STUBS = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")
CACHED_SEARCHES = 500
CACHED_PAGES = 50

NO_OPTIONS = StubOptions()

V = TypeVar("V")

_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Measures:
    """The provider's own metrics."""

    def __init__(self) -> None:
        self.requests = Counter(
            "web_search_requests",
            "Requests to a backend by how they ended: found, nothing, limited, unavailable or failed.",
            ["backend", "outcome"],
            registry=None,
        )
        self.seconds = Histogram(
            "web_search_request_seconds",
            "Time of a request to a backend.",
            ["backend"],
            buckets=_SECONDS,
            registry=None,
        )
        self.pages = Counter(
            "web_search_pages",
            "Pages that were fetched, by how that ended: read or failed.",
            ["outcome"],
            registry=None,
        )
        self.cached = Counter("web_search_cached", "Answers from the cache: search or page.", ["kind"], registry=None)

    @contextmanager
    def request(self, backend: str) -> Generator[list[Hit]]:
        """Count and time a request to a backend; what it finds is put into the list."""
        found: list[Hit] = []
        outcome, begin = "failed", time.perf_counter()
        try:
            yield found
            outcome = "found" if found else "nothing"
        except ToolUnavailable:
            outcome = "unavailable"
            raise
        except ToolError as error:
            outcome = "limited" if error.metadata.get("code") == "rate_limited" else "failed"
            raise
        finally:
            self.requests.labels(backend, outcome).inc()
            self.seconds.labels(backend).observe(time.perf_counter() - begin)

    @contextmanager
    def page(self) -> Generator[None]:
        """Count a page that is fetched and read."""
        outcome = "failed"
        try:
            yield
            outcome = "read"
        finally:
            self.pages.labels(outcome).inc()


class Aged(NamedTuple, Generic[V]):
    """A value, and the seconds since it was put in."""

    value: V
    age_s: float


class Cache(Generic[V]):
    """At most `size` values; the least recently used one is dropped first. Nothing expires by itself."""

    def __init__(self, size: int, clock: Callable[[], float]) -> None:
        self._size = size
        self._clock = clock
        self._values: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()

    def get(self, key: Hashable, within_s: float) -> Aged[V] | None:
        """Return the value if it is younger than `within_s` seconds."""
        found = self._values.get(key)
        if found is None:
            return None
        age_s = self._clock() - found[0]
        if age_s >= within_s:
            return None
        self._values.move_to_end(key)
        return Aged(found[1], age_s)

    def put(self, key: Hashable, value: V) -> None:
        """Keep a value."""
        self._values[key] = (self._clock(), value)
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)


class WebSearch(FunctionProvider):
    """Searches the web by one backend, and opens pages. Nothing is connected before the first call."""

    Config = Settings
    config: Settings
    clock: Callable[[], float] = staticmethod(time.monotonic)
    _backend: Backend | None = None
    _pages: PageReader | None = None

    async def start(self, site: ProviderContext) -> None:
        """Prepare transports and caches."""
        settings = self.config
        self._measures = Measures()
        self._searches: Cache[tuple[Hit, ...]] = Cache(CACHED_SEARCHES, self.clock)
        self._opened: Cache[Page] = Cache(CACHED_PAGES, self.clock)
        self._site = site
        transport = await checked_transport(site.egress, max_answer_bytes=settings.max_page_bytes, compressed=True)
        self._pages = PageReader(transport, site.log, timeout_s=settings.timeout_s)
        if settings.backend == "ddgs":
            self._backend = DdgsBackend(settings, site)
            return
        service = SERVICES[settings.backend]
        trusted = [settings.url or service.url]
        transport = await checked_transport(site.egress, trusted=trusted, max_answer_bytes=MAX_ANSWER_BYTES)
        self._backend = HttpBackend(settings.backend, service, settings, transport, self.clock, site)

    async def aclose(self) -> None:
        """Close the connections; there are none if the start failed."""
        for opened in (self._pages, self._backend):
            if opened is not None:
                await opened.aclose()

    def collectors(self) -> Sequence[Collector]:
        """Return the metrics of backends, pages and the cache."""
        measures = self._measures
        return (measures.requests, measures.seconds, measures.pages, measures.cached)

    async def diagnose(self) -> list[str]:
        """Search once and read a page once, since only that shows that the backend and the reader work."""
        found: list[str] = []
        try:
            await self._found(Query(text="toolplug"))
        except (ToolUnavailable, ToolError) as error:
            detail = error.detail if isinstance(error, BackendUnavailable) else ""
            found.append(f"{': '.join(filter(None, (str(error), detail)))}; until then searches fail")
        try:
            if self._pages is not None:
                await self._pages.check()
        except (ReaderFailed, ToolError) as error:
            found.append(f"{error}; until then no page can be opened")
        return found

    @tool(read_only=True, stub=STUBS, stub_options=StubOptions, item=SEARCH_ITEM)
    async def web_search(
        self,
        query: Annotated[str, Field(min_length=1, max_length=2_000)],
        context: CallContext,
        max_results: Annotated[int, Field(ge=1, le=MAX_RESULTS)] | None = None,
        domains: Domains | None = None,
        exclude_domains: Domains | None = None,
        language: Language | None = None,
        time_range: TimeRange | None = None,
    ) -> ToolResult:
        """Search the web. Each result has a title, a URL, a snippet and, if known, a date. If a snippet does not answer
        the question, read its page with open_page. Name the URL of each page whose content you use.

        Args:
            query: what to look for
            max_results: how many results at most
            domains: only these domains, such as example.org, with their subdomains
            exclude_domains: none of these domains
            language: language of the results, such as de or de-AT
            time_range: only what was published within the last day, week, month or year
        """
        options = StubOptions.model_validate(dict(context.options)) if context.options else NO_OPTIONS
        rules = domain_rules(self.config, options, domains or (), exclude_domains or ())
        asked = Query(
            text=query.strip(),
            allowed=rules.allowed,
            blocked=rules.blocked,
            language=language or self.config.language,
            location=options.user_location,
            time_range=time_range,
        )
        key = (context.principal.tenant, asked)
        found = self._find_cached(self._searches, key, options, "search")
        age_s = None if found is None else found.age_s
        note, hits = "", tuple[Hit, ...]()
        if found is not None:
            hits = found.value
        elif options.external_web_access:
            hits = tuple(await self._found(asked))
            self._searches.put(key, hits)
        else:
            note = "external_web_access is false, and no earlier search for this is cached"
        kept = permit(hits, rules)[: max_results or self.config.max_results]
        return search_result(query, kept, options.search_context_size, age_s, note)

    @tool(read_only=True, stub=STUBS, stub_options=StubOptions, item=PAGE_ITEM)
    async def open_page(
        self,
        url: Annotated[str, Field(min_length=1, max_length=2_000)],
        context: CallContext,
        start: Annotated[int, Field(ge=0)] = 0,
    ) -> ToolResult:
        """Open a page of the web, HTML or PDF, and return its text. A long page comes in parts: `next_start` is the
        `start` of the next one.

        Args:
            url: the URL of the page, such as that of a search result
            start: the character of the text to begin at
        """
        options = StubOptions.model_validate(dict(context.options)) if context.options else NO_OPTIONS
        rules = domain_rules(self.config, options, (), ())
        wanted = str(page_url(url))
        key = (context.principal.tenant, wanted)
        found = self._find_cached(self._opened, key, options, "page")
        if found is not None and rules.permit(page_url(found.value.url).host):
            return page_result(found.value, start, options.search_context_size, found.age_s)
        if not options.external_web_access:
            raise ToolError("external_web_access is false, and this page is not cached")
        if self._pages is None:
            raise LookupError("the provider has not been started")
        with self._measures.page():
            page = await self._pages.open(wanted, rules.permit, context.principal.tenant)
        self._opened.put(key, page)
        return page_result(page, start, options.search_context_size, None)

    async def _found(self, query: Query) -> list[Hit]:
        backend = self._backend
        if backend is None:
            raise LookupError("the provider has not been started")
        with self._measures.request(backend.name) as found:
            try:
                hits = await backend.search(query)
            except BackendUnavailable as error:
                self.log.warning("%s: %s", error, error.detail)
                raise
            if len(hits) > MAX_RESULTS:
                found.extend(await self._site.in_thread(distinct, hits))
            else:
                found.extend(distinct(hits))
        return found

    def _find_cached(self, cache: Cache[V], key: Hashable, options: StubOptions, kind: str) -> Aged[V] | None:
        """Return a value of the cache; without access to the web, one of any age."""
        found = cache.get(key, self.config.cache_s if options.external_web_access else math.inf)
        if found is not None:
            self._measures.cached.labels(kind).inc()
        return found
