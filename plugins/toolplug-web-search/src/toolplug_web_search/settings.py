"""The settings of the provider, and the options of the stubs that it implements."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Annotated, Literal, Self

import httpx2
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

MAX_RESULTS = 20
MAX_DOMAINS = 100

Domain = Annotated[str, Field(pattern=r"^[^\s/:@?#]+$", max_length=253)]
"""A domain such as `example.org`, which includes its subdomains."""

Domains = Annotated[list[Domain], Field(max_length=MAX_DOMAINS)]
Language = Annotated[str, Field(pattern="^[a-z]{2}(-[A-Z]{2})?$")]
ContextSize = Literal["low", "medium", "high"]
BackendName = Literal["searxng", "brave", "tavily", "ddgs"]


def _web_url(text: str) -> str:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > 65535:
        raise PydanticCustomError("web_url", "should be a URL such as http://searxng:8080")
    if url.userinfo or url.query or url.fragment:
        raise PydanticCustomError("bare_url", "should have no user, no query and no fragment")
    return str(url).rstrip("/")


class Settings(BaseModel):
    """The backend, and how much of its answers a model gets."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    backend: Annotated[BackendName, Field(description="the search service")] = "searxng"
    url: Annotated[
        Annotated[str, AfterValidator(_web_url)] | None,
        Field(description="its address; needed for searxng, which must offer JSON"),
    ] = None
    api_key: Annotated[SecretStr | None, Field(description="needed for brave and tavily")] = None
    max_results: Annotated[
        int, Field(ge=1, le=MAX_RESULTS, description="results of a search that does not say how many")
    ] = 5
    language: Annotated[
        Language | None, Field(description="of results, such as de or de-AT, where the call does not say")
    ] = None
    allowed_domains: Annotated[
        tuple[Domain, ...],
        Field(strict=False, max_length=MAX_DOMAINS, description="only these domains; none: every domain"),
    ] = ()
    blocked_domains: Annotated[
        tuple[Domain, ...], Field(strict=False, max_length=MAX_DOMAINS, description="none of these domains")
    ] = ()
    timeout_s: Annotated[
        float, Field(gt=0, le=300, description="seconds that the backend, or the server of a page, has to answer")
    ] = 10.0
    cache_s: Annotated[
        float, Field(ge=0, description="seconds for which a search or a page is not asked for again; 0: always ask")
    ] = 300.0
    max_page_bytes: Annotated[
        int, Field(ge=1024, le=100 * 1024 * 1024, description="bytes that a page has at most")
    ] = 10 * 1024 * 1024

    @model_validator(mode="after")
    def _fits_the_backend(self) -> Self:
        if self.backend == "searxng" and self.url is None:
            raise PydanticCustomError("no_url", "the backend searxng needs a url, such as http://searxng:8080")
        if self.backend in ("brave", "tavily") and self.api_key is None:
            raise PydanticCustomError("no_key", "the backend {name} needs an api_key", {"name": self.backend})
        if self.backend in ("searxng", "ddgs") and self.api_key is not None:
            raise PydanticCustomError("no_use", "the backend {name} takes no api_key", {"name": self.backend})
        if self.backend == "ddgs":
            if self.url is not None:
                raise PydanticCustomError("no_use", "the backend ddgs takes no url")
            if find_spec("ddgs") is None:
                raise PydanticCustomError("no_ddgs", "the backend ddgs needs: pip install 'toolplug-web-search[ddgs]'")
        return self


class Filters(BaseModel):
    """Domains of results."""

    model_config = ConfigDict(extra="forbid")

    allowed_domains: Domains | None = None
    blocked_domains: Domains | None = None


class UserLocation(BaseModel):
    """Where the user is, approximately; `country` is a code of ISO 3166-1 with two letters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["approximate"] = "approximate"
    country: Annotated[str | None, Field(pattern="^[A-Za-z]{2}$")] = None
    region: Annotated[str | None, Field(max_length=100)] = None
    city: Annotated[str | None, Field(max_length=100)] = None
    timezone: Annotated[str | None, Field(max_length=100)] = None


class StubOptions(BaseModel):
    """OpenAI's options of the built-in tool."""

    model_config = ConfigDict(extra="forbid")

    filters: Filters | None = None
    search_context_size: ContextSize = "medium"
    user_location: UserLocation | None = None
    external_web_access: bool = True
    search_content_types: Annotated[list[Literal["text"]] | None, Field(min_length=1)] = None


class DomainRules:
    """The domains of the operator, of the stub and of the call together: each list narrows the others."""

    def __init__(self, allowed: Sequence[Sequence[str]], blocked: Sequence[Sequence[str]]) -> None:
        self._allowed = tuple(tuple(dict.fromkeys(map(_plain, each))) for each in allowed if each)
        self.blocked: tuple[str, ...] = tuple(dict.fromkeys(_plain(name) for each in blocked for name in each))

    def __bool__(self) -> bool:
        """Return whether there is any rule."""
        return bool(self._allowed or self.blocked)

    @property
    def allowed(self) -> tuple[str, ...]:
        """The domains to send to a backend: the shortest list; empty for every domain."""
        return min(self._allowed, key=len, default=())

    def permit(self, host: str) -> bool:
        """Return whether the host is in every list of allowed domains and in none of blocked ones."""
        name = _plain(host)
        return all(_within(name, each) for each in self._allowed) and not _within(name, self.blocked)


def domain_rules(
    settings: Settings, options: StubOptions, allowed: Sequence[str], blocked: Sequence[str]
) -> DomainRules:
    """Return the rules of a call."""
    filters = options.filters or Filters()
    return DomainRules(
        (settings.allowed_domains, filters.allowed_domains or (), allowed),
        (settings.blocked_domains, filters.blocked_domains or (), blocked),
    )


def _within(host: str, domains: Sequence[str]) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def _plain(domain: str) -> str:
    """Return the domain in lower case and ASCII, without dots at its ends and without `www.`."""
    name = domain.strip(".").lower()
    if not name.isascii():
        try:
            name = name.encode("idna").decode("ascii")
        except UnicodeError:
            return name
    return name.removeprefix("www.")
