"""The provider `openapi`: its start, its tools, their calls, and the server that they go to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, cast

import httpx2
from pydantic import ValidationError

from toolplug import (
    CallContext,
    Egress,
    FunctionProvider,
    ProviderContext,
    ToolCall,
    ToolDefinition,
    ToolError,
    checked_transport,
)
from toolplug_openapi.answers import Tree, kept_parts, tool_result
from toolplug_openapi.document import MAX_JSON_BYTES, Document, DocumentRefused, OperationRefused, as_list, as_object
from toolplug_openapi.operations import Endpoint, Found, endpoint, matches, operations_of, tool_name
from toolplug_openapi.requests import Parts, add_credential, request_parts
from toolplug_openapi.settings import Credential, SecurityScheme, Settings, bare_web_url

MAX_TOOLS = 2_000
MAX_REDIRECTS = 5
MAX_WARNINGS = 50
FETCH_S = 10.0
READ_S = 15.0
SMALL_BYTES = 64 * 1024
"""Answers up to this size are parsed on the event loop, larger ones in a thread."""
CONNECT_S = 5.0
PORTS = {"http": 80, "https": 443}
JSON_FIRST = "application/json, */*;q=0.5"


class _Api(NamedTuple):
    """A started API. `schemes`: where each credential goes, by name; `declared`: the schemes of the document."""

    base_url: str
    endpoints: Mapping[str, Endpoint]
    schemes: Mapping[str, SecurityScheme]
    declared: frozenset[str]
    kept: Mapping[str, Tree]


class OpenApi(FunctionProvider):
    """The operations of one OpenAPI document as tools of one HTTP API."""

    Config = Settings
    config: Settings
    _api: _Api | None = None
    _transport: httpx2.AsyncBaseTransport | None = None

    async def start(self, site: ProviderContext) -> None:
        """Read the document and make the tools. Raises `DocumentRefused`; a wrong operation is skipped and logged."""
        settings = self.config
        is_url = "://" in settings.document
        if is_url:
            data = await _fetched(settings.document, site.egress)
        else:
            data = await asyncio.to_thread(_file, site.config_dir / settings.document, settings.document)
        document = await asyncio.to_thread(Document, data, settings.document)
        base_url = _base_url(document, settings, site.egress)
        self._api = await asyncio.to_thread(self._read, document, base_url)
        trusted = [text for text in (settings.base_url, settings.document if is_url else None) if text is not None]
        self._transport = await checked_transport(site.egress, trusted=trusted)

    async def aclose(self) -> None:
        """Close the connections; there are none if the start failed."""
        if self._transport is not None:
            await self._transport.aclose()

    def tools(self) -> Sequence[ToolDefinition]:
        return [] if self._api is None else [each.definition for each in self._api.endpoints.values()]

    def can_execute(self, name: str) -> bool:
        return self._api is not None and name in self._api.endpoints

    async def execute(self, call: ToolCall, context: CallContext) -> object:
        """Send the request and return the value of its answer. Raises `ToolError` for everything but a success."""
        api, transport = self._api, self._transport
        if api is None or transport is None:
            raise LookupError("the provider has not been started")
        each = api.endpoints[call.name]
        parts = request_parts(each, cast("Mapping[str, object]", call.arguments))
        for name in _needed(each, api, self.config.credentials):
            add_credential(parts, api.schemes[name], self.config.credentials[name], context.credentials)
        try:
            response = await _sent(transport, f"{api.base_url}{parts.target()}", parts)
        except httpx2.InvalidURL as error:
            raise ToolError(f"the URL is not valid: {error}") from None
        except httpx2.TransportError as error:
            raise ToolError(f"the API gave no answer that can be read: {error}", retry_after_s=1.0) from error
        kept = api.kept.get(each.id, {})
        if len(response.content) <= SMALL_BYTES:
            return tool_result(response, each.definition, kept)
        return await asyncio.to_thread(tool_result, response, each.definition, kept)

    def _read(self, document: Document, base_url: str) -> _Api:
        settings, until = self.config, time.monotonic() + READ_S
        found, skipped = operations_of(document)
        schemes, declared, problems = _schemes(document, settings.credentials)
        problems += _dead_settings(settings, [each.id for each in found], found)
        chosen = [
            each
            for each in found
            if (not settings.include or any(matches(filter_, each) for filter_ in settings.include))
            and not any(matches(filter_, each) for filter_ in settings.exclude)
        ]
        if not chosen:
            problems.append(f"of its {len(found)} operations none is left; change include and exclude")
        if len(chosen) > MAX_TOOLS:
            problems.append(
                f"it has {len(chosen):,} operations, at most {MAX_TOOLS:,} can be tools; choose with include"
            )
        if problems:
            raise DocumentRefused(f"{settings.document}: {'; '.join(problems)}")
        warnings = [f"{place!r} is skipped: {why}" for place, why in skipped.items()]
        endpoints: dict[str, Endpoint] = {}
        taken = {
            (place, name.lower()) for scheme in schemes.values() if scheme.target for place, name in [scheme.target]
        }
        for each in chosen:
            if time.monotonic() > until:
                raise DocumentRefused(
                    f"{settings.document}: its schemas take more than {READ_S:g} s; choose with include"
                )
            try:
                name = tool_name(each, settings.rename)
                if name in endpoints:
                    raise OperationRefused(f"{endpoints[name].id!r} is the tool {name!r} already; use rename")
                _check_servers(each, settings, base_url)
                made, removed = endpoint(document, each, name, taken=taken, whole=each.id not in settings.trim)
            except OperationRefused as error:
                warnings.append(f"{each.id!r} is skipped: {error}")
                continue
            endpoints[name] = made
            if removed:
                self.log.info("of %r was removed: %s", each.id, "; ".join(removed))
        for text in warnings[:MAX_WARNINGS]:
            self.log.warning("%s: %s", settings.document, text)
        if len(warnings) > MAX_WARNINGS:
            self.log.warning("%s: and %d more were skipped", settings.document, len(warnings) - MAX_WARNINGS)
        if not endpoints:
            raise DocumentRefused(f"{settings.document}: no operation can become a tool; {warnings[0]}")
        return _Api(
            base_url, endpoints, schemes, declared, {id_: kept_parts(each) for id_, each in settings.trim.items()}
        )


def _file(path: Path, shown: str) -> bytes:
    try:
        if not path.is_file():
            raise DocumentRefused(f"{shown} is no file; a relative path begins at the folder of the configuration")
        with path.open("rb") as stream:
            return stream.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise DocumentRefused(f"{shown} cannot be read: {error.strerror}") from None


async def _fetched(url: str, egress: Egress) -> bytes:
    transport = await checked_transport(egress, trusted=[url], max_answer_bytes=MAX_JSON_BYTES)
    try:
        async with transport, asyncio.timeout(FETCH_S):
            response = await _sent(transport, url, Parts("GET", ""))
    except TimeoutError:
        raise DocumentRefused(f"{url} did not answer within {FETCH_S:g} s") from None
    except (httpx2.TransportError, httpx2.InvalidURL) as error:
        raise DocumentRefused(f"{url} cannot be fetched: {error}") from None
    if response.is_redirect:
        target = response.headers.get("location", "")[:200]
        raise DocumentRefused(
            f"{url} redirects to {target!r}, which is not followed; write the URL of the document itself"
        )
    if not response.is_success:
        raise DocumentRefused(f"{url} cannot be fetched: HTTP {response.status_code}")
    return response.content


async def _sent(transport: httpx2.AsyncBaseTransport, url: str, parts: Parts) -> httpx2.Response:
    """Send a request and return the answer, read whole; follow redirects of GET within the origin, at most five.

    So no other host sees arguments or credentials. An `httpx2.AsyncClient` would keep the cookies of one caller for the
    next, and log URLs with the keys in them. Raises `httpx2.TransportError` and `httpx2.InvalidURL`.
    """
    headers = {"Accept": JSON_FIRST, "User-Agent": "toolplug-openapi", **parts.headers}
    if parts.cookies:
        headers["Cookie"] = "; ".join(parts.cookies)
    timeout = httpx2.Timeout(None, connect=CONNECT_S).as_dict()
    target, redirects = httpx2.URL(url), 0
    while True:
        request = httpx2.Request(
            parts.method, target, headers=headers, content=parts.content, extensions={"timeout": timeout}
        )
        response = await transport.handle_async_request(request)
        await response.aread()
        if parts.method != "GET" or not response.has_redirect_location or redirects == MAX_REDIRECTS:
            return response
        following = target.join(response.headers["location"])
        if _origin(following) != _origin(target):
            return response
        target, redirects = following, redirects + 1


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or PORTS.get(url.scheme, 0)


def _base_url(document: Document, settings: Settings, egress: Egress) -> str:
    """Return the URL below which the paths are. Raises `DocumentRefused` for a server that the operator must name."""
    if settings.base_url is not None:
        return settings.base_url
    where = settings.document
    try:
        url = _server(document.root.get("servers"), where)
    except OperationRefused as error:
        raise DocumentRefused(f"{where}: {error}; set base_url") from None
    if "://" in where and _origin(httpx2.URL(url)) == _origin(httpx2.URL(where)):
        return url
    if settings.credentials:
        raise DocumentRefused(
            f"{where} says that its server is {url}; credentials are sent to a server that you name: base_url: {url}"
        )
    host = httpx2.URL(url).host
    try:
        permitted = egress.permits(host, ip_address("127.0.0.1" if host == "localhost" else host))
    except ValueError:
        permitted = True  # a name: the transport checks what it resolves to, for each connection
    if not permitted:
        raise DocumentRefused(
            f"{where} says that its server is {url}, which is not public; if it is right, write base_url: {url}"
        )
    return url


def _server(servers: object, where: str) -> str:
    """Return the first server's URL with the defaults of its variables. Raises `OperationRefused`."""
    server = as_object((as_list(servers) or [{"url": "/"}])[0])
    url = server.get("url")
    if not isinstance(url, str):
        raise OperationRefused("its first server has no url")
    for name, variable in as_object(server.get("variables")).items():
        url = url.replace(f"{{{name}}}", str(as_object(variable).get("default")))
    try:
        return bare_web_url(str(httpx2.URL(where).join(url)) if "://" in where else url)
    except (httpx2.InvalidURL, ValueError):
        raise OperationRefused(f"its server {url!r:.200} is no http or https URL") from None


def _check_servers(each: Found, settings: Settings, base_url: str) -> None:
    """Raise `OperationRefused` for an operation with another server than the rest, unless `base_url` is set."""
    own = each.raw.get("servers") or each.item.get("servers")
    if own and settings.base_url is None and _server(own, settings.document) != base_url:
        raise OperationRefused("it has a server of its own; give it an entry with base_url")


def _schemes(
    document: Document, credentials: Mapping[str, Credential]
) -> tuple[dict[str, SecurityScheme], frozenset[str], list[str]]:
    """Return the scheme of each credential, the names that the document declares, and the problems found."""
    known = as_object(as_object(document.root.get("components")).get("securitySchemes"))
    schemes: dict[str, SecurityScheme] = {}
    problems: list[str] = []
    for name, credential in credentials.items():
        at = f"credentials.{name}"
        if credential.scheme is not None:
            schemes[name] = credential.scheme
        elif name not in known:
            problems.append(
                f"{at}: the document has no security scheme of this name{_hint(name, known)}; or give scheme"
            )
            continue
        else:
            try:
                schemes[name] = SecurityScheme.model_validate(document.resolved(known[name], at))
            except (ValidationError, OperationRefused):
                problems.append(f"{at}: the document's security scheme cannot be read; give scheme")
                continue
        if schemes[name].target is None:
            problems.append(f"{at}: only apiKey, basic, bearer, oauth2 and openIdConnect are supported")
    return schemes, frozenset(known), problems


def _dead_settings(settings: Settings, ids: Sequence[str], found: Sequence[Found]) -> list[str]:
    """Return a problem for each setting that names no operation of the document."""
    problems = [
        f"{at}: it has no operation {name!r}{_hint(name, ids)}"
        for at, named in (("rename", settings.rename), ("trim", settings.trim))
        for name in named
        if name not in ids
    ]
    for at, filters in (("include", settings.include), ("exclude", settings.exclude)):
        for number, filter_ in enumerate(filters):
            if not any(matches(filter_, each) for each in found):
                hint = _hint(filter_.operation, ids) if filter_.operation is not None else ""
                problems.append(f"{at}[{number}]: no operation has this{hint}")
    return problems


def _hint(name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    near = get_close_matches(name[:100], [each[:100] for each in list(known)[:MAX_TOOLS]], 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _needed(each: Endpoint, api: _Api, credentials: Mapping[str, Credential]) -> list[str]:
    """Return the names of the credentials that an operation is sent: its first alternative that can be satisfied.

    Those that the document does not declare always go along, and all of them where it says nothing of security.
    """
    if each.security is None:
        return list(credentials)
    undeclared = [name for name in credentials if name not in api.declared]
    chosen = next((each for each in each.security if each and each <= credentials.keys()), frozenset[str]())
    return [*undeclared, *(name for name in credentials if name in chosen)]
