"""The provider `openapi`: its start, its tools, their calls, and the server that they go to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, cast

import httpx2

from toolplug import (
    CallContext,
    Egress,
    FunctionProvider,
    ProviderContext,
    SignInEndpoints,
    ToolCall,
    ToolDefinition,
    ToolError,
    checked_transport,
)
from toolplug_openapi.answers import Tree, kept_parts, tool_result
from toolplug_openapi.document import MAX_JSON_BYTES, DocumentRefused
from toolplug_openapi.operations import HINTS, Operation
from toolplug_openapi.reading import ReadDocument, read
from toolplug_openapi.requests import Parts, add_credential, is_larger, request_parts
from toolplug_openapi.settings import Credential, SecurityScheme, Settings

MAX_REDIRECTS = 5
FETCH_S = 10.0
SMALL_BYTES = 64 * 1024
"""Arguments and answers up to this size are written and parsed on the event loop, larger ones in a thread."""
CONNECT_S = 5.0
PORTS = {"http": 80, "https": 443}
JSON_FIRST = "application/json, */*;q=0.5"


class _Tool(NamedTuple):
    operation: Operation
    definition: ToolDefinition


class _Api(NamedTuple):
    """A started API. `schemes`: where each credential goes, by name; `declared`: the schemes of the document."""

    base_url: str
    tools: Mapping[str, _Tool]
    schemes: Mapping[str, SecurityScheme]
    declared: frozenset[str]
    kept: Mapping[str, Tree]
    sign_in: SignInEndpoints | None


class OpenApi(FunctionProvider):
    """The operations of one OpenAPI document as tools of one HTTP API."""

    Config = Settings
    config: Settings
    _api: _Api | None = None
    _site: ProviderContext
    _transport: httpx2.AsyncBaseTransport | None = None

    async def start(self, site: ProviderContext) -> None:
        """Read the document and make the tools. Raises `DocumentRefused`; a wrong operation is skipped and logged."""
        settings, self._site = self.config, site
        is_url = "://" in settings.document
        if is_url:
            data = await _fetch_document(settings, site.egress)
        else:
            data = await site.in_thread(_file, site.config_dir / settings.document, settings.document)
        found = await read(data, settings, site)
        base_url = _base_url(found, settings, site.egress)
        for text in found.warnings:
            self.log.warning("%s: %s", settings.document, text)
        for text in found.removed:
            self.log.info("%s", text)
        self._api = await site.in_thread(_api, found, base_url, settings)
        trusted = [text for text in (settings.base_url, settings.document if is_url else None) if text is not None]
        self._transport = await checked_transport(site.egress, trusted=trusted)

    async def aclose(self) -> None:
        """Close the connections; there are none if the start failed."""
        if self._transport is not None:
            await self._transport.aclose()

    def sign_in_endpoints(self) -> SignInEndpoints | None:
        return None if self._api is None else self._api.sign_in

    def tools(self) -> Sequence[ToolDefinition]:
        return [] if self._api is None else [each.definition for each in self._api.tools.values()]

    def can_execute(self, name: str) -> bool:
        return self._api is not None and name in self._api.tools

    async def execute(self, call: ToolCall, context: CallContext) -> object:
        """Send the request and return the value of its answer. Raises `ToolError` for everything but a success."""
        api, transport = self._api, self._transport
        if api is None or transport is None:
            raise LookupError("the provider has not been started")
        operation, definition = api.tools[call.name]
        arguments = cast("Mapping[str, object]", call.arguments)
        if is_larger([arguments], SMALL_BYTES):
            parts = await self._site.in_thread(request_parts, operation, arguments)
        else:
            parts = request_parts(operation, arguments)
        for name in _needed_credentials(operation, api, self.config.credentials):
            add_credential(parts, api.schemes[name], self.config.credentials[name], context.credentials)
        try:
            response = await _send_as_caller(
                transport, f"{operation.server or api.base_url}{parts.target()}", parts, context
            )
        except httpx2.InvalidURL as error:
            raise ToolError(f"the URL is not valid: {error}") from None
        except httpx2.TransportError as error:
            raise ToolError(f"the API gave no answer that can be read: {error}", retry_after_s=1.0) from error
        kept = api.kept.get(operation.id, {})
        if len(response.content) <= SMALL_BYTES:
            return tool_result(response, definition, kept)
        return await self._site.in_thread(tool_result, response, definition, kept)


def _api(found: ReadDocument, base_url: str, settings: Settings) -> _Api:
    tools = {
        each.name: _Tool(
            each,
            ToolDefinition(
                name=each.name,
                description=each.description,
                parameters=each.parameters,
                output_schema=each.output,
                hints=HINTS[each.method.lower()],
            ),
        )
        for each in found.operations
    }
    kept = {id_: kept_parts(pointers) for id_, pointers in settings.trim.items()}
    return _Api(base_url, tools, found.schemes, found.declared, kept, found.sign_in)


def _file(path: Path, shown: str) -> bytes:
    try:
        if not path.is_file():
            raise DocumentRefused(f"{shown} is no file; a relative path begins at the folder of the configuration")
        with path.open("rb") as stream:
            return stream.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise DocumentRefused(f"{shown} cannot be read: {error.strerror}") from None


async def _fetch_document(settings: Settings, egress: Egress) -> bytes:
    url = settings.document
    headers = {name: value.get_secret_value() for name, value in settings.document_headers.items()}
    transport = await checked_transport(egress, trusted=[url], max_answer_bytes=MAX_JSON_BYTES)
    try:
        async with transport, asyncio.timeout(FETCH_S):
            response = await _send(transport, url, Parts("GET", "", headers=headers))
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
        fix = "; set document_headers" if response.status_code in (401, 403) else ""
        raise DocumentRefused(f"{url} cannot be fetched: HTTP {response.status_code}{fix}")
    return response.content


async def _send_as_caller(
    transport: httpx2.AsyncBaseTransport, url: str, parts: Parts, context: CallContext
) -> httpx2.Response:
    """Send a request; with `user_auth` by the caller's own credential, and once more by another if it is refused.

    Raises as `_send`, and `ToolUnavailable` for a caller without a credential.
    """
    if context.user_auth is None:
        return await _send(transport, url, parts)
    credential, headers = await context.credential(), parts.headers
    parts.headers = {**headers, **context.user_auth.headers(credential)}
    response = await _send(transport, url, parts)
    if response.status_code != HTTPStatus.UNAUTHORIZED:
        return response
    parts.headers = {**headers, **context.user_auth.headers(await context.credential(credential))}
    return await _send(transport, url, parts)


async def _send(transport: httpx2.AsyncBaseTransport, url: str, parts: Parts) -> httpx2.Response:
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


def _base_url(found: ReadDocument, settings: Settings, egress: Egress) -> str:
    """Return the URL below which the paths are. Raises `DocumentRefused` for a server that the operator must name."""
    if settings.base_url is not None:
        return settings.base_url
    where, url = settings.document, found.server
    if found.server_problem:
        raise DocumentRefused(f"{where}: {found.server_problem}; set base_url")
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


def _needed_credentials(operation: Operation, api: _Api, credentials: Mapping[str, Credential]) -> list[str]:
    """Return the names of the credentials that an operation is sent: its first alternative that can be satisfied.

    Those that the document does not declare always go along, and all of them where it says nothing of security.
    """
    if operation.security is None:
        return list(credentials)
    undeclared = [name for name in credentials if name not in api.declared]
    chosen = next((each for each in operation.security if each and each <= credentials.keys()), frozenset[str]())
    return [*undeclared, *(name for name in credentials if name in chosen)]
