"""What an issuer is asked for: its metadata, a client, tokens for a code, new tokens, and their end. Needs the SDK.

The flow is that of the Model Context Protocol (2026-07-28, authorization), which adds to OAuth 2.1: the metadata of the
server names the issuer (RFC 9728), the resource is in each request (RFC 8707), the issuer in each answer (RFC 9207).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.oauth2 import PKCEParameters, check_registration_usable
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_client_registration_request,
    create_oauth_metadata_request,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    should_use_client_metadata_url,
    validate_authorization_response_iss,
)
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    ProtectedResourceMetadata,
)
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import AnyHttpUrl, AnyUrl, BaseModel, HttpUrl, TypeAdapter, ValidationError

from toolplug.execution.user_auth import AuthOwner, OAuthClient, UserOAuth
from toolplug.net.issuer_answers import (
    InvalidAnswer,
    IssuedTokens,
    is_refusal,
    is_unknown_client,
    read_metadata,
    read_tokens,
)
from toolplug.parts.credentials.records import UserTokens
from toolplug.providers.provider import SignInEndpoints

CLIENT_NAME = "toolplug"
_GRANTS = ["authorization_code", "refresh_token"]

_ENDPOINT = TypeAdapter(HttpUrl)  # of at most 2,083 characters


def is_same_issuer(one: str, other: str) -> bool:
    """Return whether two names are those of one issuer: equal (RFC 8414, section 3.3), but for the slash of a root.

    The SDK has its own since 2.3 only.
    """
    root, slashed = sorted((one, other), key=len)
    return one == other or (slashed == f"{root}/" and not urlsplit(root).path)


class SignInFailed(Exception):
    """An issuer gives no tokens; the text says why, and has nothing of what it has answered."""


class RefreshRefused(SignInFailed):
    """The issuer takes the refresh token no longer: its user has to sign in again."""


class UnknownClient(RefreshRefused):
    """The issuer does not know the host as this client, or no longer."""


class FoundIssuer(NamedTuple):
    """The issuer of an entry. `resource` is empty where the entry is no MCP server, `scope` where none is asked for.

    `is_named` is False where a provider gives endpoints alone: the metadata then has that for tokens as its name.
    """

    metadata: OAuthMetadata
    resource: str
    scope: str
    refresh_endpoint: str = ""
    is_named: bool = True

    @property
    def name(self) -> str:
        """The issuer identifier."""
        return str(self.metadata.issuer)


async def find_issuer(
    http: httpx2.AsyncClient, owner: AuthOwner, oauth: UserOAuth, given: SignInEndpoints | None = None
) -> FoundIssuer:
    """Return the issuer of the entry, or else the one that its server names, or its provider has `given`.

    Raises `SignInFailed`.
    """
    if given is not None and oauth.issuer is None:
        oauth = oauth.model_copy(update={"issuer": given.issuer or None, "scopes": oauth.scopes or given.scopes})
        if not given.issuer:
            return _of_endpoints(owner, oauth, given)
    try:
        return await _find(http, owner, oauth)
    except httpx2.ConnectError as error:
        raise SignInFailed(f"the issuer cannot be reached: {error}") from None
    except (httpx2.HTTPError, OAuthFlowError) as error:
        raise SignInFailed(f"the issuer cannot be found: {type(error).__name__}") from None


def _of_endpoints(owner: AuthOwner, oauth: UserOAuth, given: SignInEndpoints) -> FoundIssuer:
    """Return an issuer of which only the endpoints are known. Raises `SignInFailed` for what are none."""
    urls = [given.authorization, given.token, *([given.refresh] if given.refresh else [])]
    try:
        # Its provider may be a stranger's, in a process of its own.
        for url in urls:
            _ENDPOINT.validate_python(url)
    except ValidationError:
        raise SignInFailed(
            f"the provider {owner.key!r} names endpoints that are no http or https URLs; set user_auth.oauth.issuer"
        ) from None
    metadata = OAuthMetadata(
        issuer=AnyHttpUrl(given.token),
        authorization_endpoint=AnyHttpUrl(given.authorization),
        token_endpoint=AnyHttpUrl(given.token),
    )
    return FoundIssuer(metadata, "", " ".join(oauth.scopes), given.refresh, is_named=False)


async def _find(http: httpx2.AsyncClient, owner: AuthOwner, oauth: UserOAuth) -> FoundIssuer:
    named, resource, scope, described = oauth.issuer, "", "", None
    if owner.url:
        resource = resource_url_from_server_url(owner.url)
        probe = await http.get(owner.url, headers={"accept": "application/json, text/event-stream"})
        told = extract_resource_metadata_from_www_auth(probe) if probe.status_code in {401, 403} else None
        scope = extract_scope_from_www_auth(probe) or ""
        described = await _describe_resource(http, owner, told)
        if described is not None:
            if not check_resource_allowed(requested_resource=resource, configured_resource=str(described.resource)):
                raise SignInFailed(f"the server {owner.key!r} says that it is another resource than its url")
            resource = str(described.resource)
            servers = [str(url) for url in described.authorization_servers]
            if named is not None and not any(is_same_issuer(named, each) for each in servers):
                raise SignInFailed(f"the server {owner.key!r} does not name the issuer of its entry")
            named = named or servers[0]
    metadata = await _describe_issuer(http, owner, named)
    expected = named or f"{httpx2.URL(owner.url).scheme}://{httpx2.URL(owner.url).netloc.decode()}"
    if not is_same_issuer(str(metadata.issuer), expected):
        raise SignInFailed("the metadata of the issuer is that of another one")
    methods = metadata.code_challenge_methods_supported
    if methods is not None and "S256" not in methods:
        raise SignInFailed("the issuer does not support PKCE with S256")
    if metadata.authorization_endpoint.fragment is not None:  # RFC 6749, section 3.1
        raise SignInFailed("the authorization endpoint of the issuer has a fragment, after which nothing can be asked")
    wanted = " ".join(oauth.scopes) or get_client_metadata_scopes(scope or None, described, metadata, _GRANTS)
    return FoundIssuer(metadata, resource, wanted or "")


async def _describe_resource(
    http: httpx2.AsyncClient, owner: AuthOwner, told: str | None
) -> ProtectedResourceMetadata | None:
    """Return what a server says of itself, None if it says nothing that can be used."""
    for url in build_protected_resource_metadata_discovery_urls(told, owner.url):
        answer = await http.send(create_oauth_metadata_request(url))
        if answer.status_code == 200:
            with suppress(InvalidAnswer):
                return read_metadata(ProtectedResourceMetadata, answer.content)
    return None


async def _describe_issuer(http: httpx2.AsyncClient, owner: AuthOwner, named: str | None) -> OAuthMetadata:
    """Return what an issuer says of itself, from the first place that has it. Raises `SignInFailed`."""
    problem = f"the issuer of {owner.key!r} has no metadata where it should be"
    for url in build_oauth_authorization_server_metadata_discovery_urls(named, owner.url):
        answer = await http.send(create_oauth_metadata_request(url))
        if answer.status_code == 200:
            try:
                return read_metadata(OAuthMetadata, answer.content)
            except InvalidAnswer as error:
                problem = f"the metadata of the issuer of {owner.key!r} cannot be used: {error}"
        elif not 300 <= answer.status_code < 500:
            break
    raise SignInFailed(problem)


def client_metadata(redirect_uri: str, scope: str = "") -> OAuthClientMetadata:
    """Return how the host describes itself to issuers."""
    return OAuthClientMetadata(
        redirect_uris=[AnyUrl(redirect_uri)],
        client_name=CLIENT_NAME,
        scope=scope or None,
        token_endpoint_auth_method="none",
        grant_types=_GRANTS,
        application_type="web",
    )


def known_client(found: FoundIssuer, given: object, document: str) -> OAuthClient | None:
    """Return the client of the entry, or that of the metadata document; None if it has to be registered.

    Raises `SignInFailed`.
    """
    if isinstance(given, OAuthClient):
        return given
    if given != "registration" and (
        given == "metadata" or should_use_client_metadata_url(found.metadata, document or None)
    ):
        if not document:
            raise SignInFailed("client: metadata needs http.public_url, with https, from where the issuer reads it")
        return OAuthClient(id=document)
    return None


async def register(http: httpx2.AsyncClient, found: FoundIssuer, redirect_uri: str) -> OAuthClientInformationFull:
    """Return a new client of the issuer (RFC 7591). Raises `SignInFailed`."""
    if found.metadata.registration_endpoint is None:
        raise SignInFailed("the issuer registers no clients; set user_auth.oauth.client in the entry of the server")
    request = create_client_registration_request(found.metadata, client_metadata(redirect_uri, found.scope), found.name)
    refusal = "the issuer does not register the host as a client"
    try:
        answer = await http.send(request)
        if answer.status_code not in {200, 201}:
            raise SignInFailed(f"{refusal} (HTTP {answer.status_code})")
        made = read_metadata(OAuthClientInformationFull, answer.content)
        check_registration_usable(made)
    except (httpx2.HTTPError, OAuthFlowError, InvalidAnswer):
        raise SignInFailed(refusal) from None
    return made


class AskedCode(NamedTuple):
    """What is sent to the issuer for a code, and kept until it comes: the URL, and the verifier of PKCE."""

    url: str
    verifier: str


def ask_for_code(found: FoundIssuer, client_id: str, redirect_uri: str, state: str, nonce: str = "") -> AskedCode:
    """Return where the browser of the user is sent; with a `nonce` for the ID token."""
    pkce = PKCEParameters.generate()
    fields = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": pkce.code_challenge,
        "code_challenge_method": "S256",
        **({"resource": found.resource} if found.resource else {}),
        **({"scope": found.scope} if found.scope else {}),
        **({"nonce": nonce} if nonce else {}),
        # OpenID Connect Core, section 11: without it a refresh token is not promised.
        **({"prompt": "consent"} if "offline_access" in found.scope.split() else {}),
    }
    endpoint = str(found.metadata.authorization_endpoint)
    return AskedCode(f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(fields)}", pkce.code_verifier)


def check_issuer(found: OAuthMetadata, iss: str | None, *, is_named: bool = True) -> None:
    """Raise `SignInFailed` for the answer of another issuer (RFC 9207).

    One whose name is not known must be where the browser was sent.
    """
    try:
        if is_named:
            validate_authorization_response_iss(iss, found)
        elif iss is not None and urlsplit(iss)[:2] != urlsplit(str(found.authorization_endpoint))[:2]:
            raise OAuthFlowError
    except (OAuthFlowError, ValueError):
        raise SignInFailed("the answer is that of another issuer than the one that was asked") from None


async def redeem(
    http: httpx2.AsyncClient, start: UserTokens, code: str, verifier: str, redirect_uri: str
) -> tuple[UserTokens, IssuedTokens]:
    """Return the tokens for a code. Raises `SignInFailed`."""
    return await _ask_token(http, start, _code_form(code, verifier, redirect_uri))


def _code_form(code: str, verifier: str, redirect_uri: str) -> Mapping[str, str]:
    return {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri, "code_verifier": verifier}


class _LoginAnswer(BaseModel):
    id_token: str


async def redeem_login(http: httpx2.AsyncClient, start: UserTokens, code: str, verifier: str, redirect_uri: str) -> str:
    """Return the ID token for a code, still to be checked. Raises `SignInFailed`."""
    try:
        answer = await _post(http, start, start.token_endpoint, _code_form(code, verifier, redirect_uri))
        return _LoginAnswer.model_validate_json(answer.content).id_token
    except (httpx2.HTTPError, ValidationError) as error:
        raise SignInFailed(f"the issuer of this host gives no ID token ({type(error).__name__})") from None


async def refresh(http: httpx2.AsyncClient, kept: UserTokens) -> tuple[UserTokens, IssuedTokens]:
    """Return new tokens for the refresh token. Raises `RefreshRefused` if it holds no longer, and `SignInFailed`."""
    form = {"grant_type": "refresh_token", "refresh_token": kept.refresh}
    return await _ask_token(http, kept, form, kept.refresh_endpoint)


async def revoke(http: httpx2.AsyncClient, kept: UserTokens) -> bool:
    """Have the issuer end the tokens (RFC 7009), and return whether it has."""
    if not kept.revocation_endpoint:
        return False
    token, hint = (kept.refresh, "refresh_token") if kept.refresh else (kept.access, "access_token")
    form = {"token": token, "token_type_hint": hint}
    if not kept.client_secret:
        form["client_secret"] = ""  # the SDK's server refuses a revocation without the field
    try:
        answer = await _post(http, kept, kept.revocation_endpoint, form)
    except httpx2.HTTPError:
        return False
    return answer.is_success


async def _ask_token(
    http: httpx2.AsyncClient, kept: UserTokens, form: Mapping[str, str], endpoint: str = ""
) -> tuple[UserTokens, IssuedTokens]:
    resource = {"resource": kept.resource} if kept.resource else {}
    try:
        answer = await _post(http, kept, endpoint or kept.token_endpoint, {**form, **resource})
    except httpx2.HTTPError as error:
        raise SignInFailed(f"the issuer gives no answer that can be read ({type(error).__name__})") from None
    if is_unknown_client(answer.content):
        raise UnknownClient(f"the issuer does not know the host as its client (HTTP {answer.status_code})")
    if is_refusal(answer.status_code, answer.content):
        raise RefreshRefused(f"the issuer gives no token (HTTP {answer.status_code})")
    if answer.status_code not in {200, 201}:
        raise SignInFailed(f"the issuer gives no token (HTTP {answer.status_code})")
    try:
        given = read_tokens(answer.content)
    except InvalidAnswer as error:
        raise SignInFailed(str(error)) from None
    return kept.model_copy(update={"access": given.access, "refresh": given.refresh or kept.refresh}), given


async def _post(http: httpx2.AsyncClient, kept: UserTokens, url: str, form: Mapping[str, str]) -> httpx2.Response:
    """Send a form as the client of the tokens (RFC 6749, section 2.3.1)."""
    headers, fields = {"accept": "application/json"}, {**form, "client_id": kept.client_id}
    if kept.client_secret and kept.auth_method == "client_secret_basic":
        pair = f"{quote(kept.client_id, safe='')}:{quote(kept.client_secret, safe='')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif kept.client_secret:
        fields["client_secret"] = kept.client_secret
    return await http.post(url, data=fields, headers=headers)


def method_of(client_secret: str, found: FoundIssuer, given: str | None) -> str:
    """Return how the client of this secret says who it is: as it was registered, else as the issuer supports it."""
    if not client_secret:
        return "none"
    if given in {"client_secret_basic", "client_secret_post"}:
        return given
    supported = found.metadata.token_endpoint_auth_methods_supported or ["client_secret_basic"]
    return "client_secret_basic" if "client_secret_basic" in supported else "client_secret_post"


def document_of(client_id: str, redirect_uri: str) -> Mapping[str, object]:
    """Return the metadata document of the host as a client, whose URL is its id."""
    described = client_metadata(redirect_uri).model_dump(by_alias=True, mode="json", exclude_none=True)
    return {"client_id": client_id, **json.loads(json.dumps(described))}
