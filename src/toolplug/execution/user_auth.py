"""Whose credential a call carries: the `user_auth` of an entry, and the part of the host that finds the credential."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Literal, NamedTuple, Protocol, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from toolplug.catalog.call import CREDENTIAL_NEEDED, CallContext, Credentials
from toolplug.config.units import FileMapping, shape_error
from toolplug.errors import ToolUnavailable

_GIVEN = "credential:"


def _format(text: str) -> str:
    if text.count("{}") != 1 or not text.isascii() or not text.isprintable():
        raise shape_error("printable ASCII with {} once, where the credential goes, such as 'Bearer {}'")
    return text


class OAuthClient(FileMapping):
    """The client as which the host is registered at an issuer."""

    id: Annotated[str, Field(min_length=1)]
    secret: Annotated[SecretStr | None, Field(description="best as ${NAME}; none: a public client")] = None


class UserOAuth(FileMapping):
    """The caller signs in at the issuer of the server: OAuth 2.1, authorization code with PKCE."""

    scopes: Annotated[
        tuple[str, ...], Field(strict=False, description="to ask for; none: those that the server names")
    ] = ()
    client: Annotated[
        Literal["metadata", "registration"] | OAuthClient | None,
        Field(
            description="metadata: /connect/client.json names it; none: metadata where the issuer can, or registration"
        ),
    ] = None
    issuer: Annotated[
        str | None,
        Field(pattern="^https?://", description="the authorization server; none: the one that the server names"),
    ] = None


class TokenExchange(FileMapping):
    """The caller's own JWT is exchanged for a token of the server (RFC 8693)."""

    endpoint: Annotated[
        str,
        Field(pattern="^https?://", description="that of the issuer for tokens; the caller's JWT is sent there alone"),
    ]
    audience: Annotated[str | None, Field(description="the server as the issuer knows it")] = None
    client_id: Annotated[str, Field(min_length=1)]
    client_secret: Annotated[SecretStr | None, Field(description="best as ${NAME}")] = None
    scopes: Annotated[tuple[str, ...], Field(strict=False, description="to ask for; none: the issuer's default")] = ()


class UserAuth(FileMapping):
    """How the credential of the caller itself is found for a system behind tools, and the header that it goes into."""

    oauth: Annotated[
        UserOAuth | None, Field(description="the caller signs in there, by a link that its call gives")
    ] = None
    exchange: Annotated[
        TokenExchange | None,
        Field(description="the caller's JWT is exchanged for a token of the server; needs auth.jwt"),
    ] = None
    source: Annotated[
        str | None,
        Field(
            alias="from",
            pattern=f"^{_GIVEN}[a-z0-9][a-z0-9-]{{0,63}}$",
            description="credential:NAME, what the caller sends as X-Toolplug-Credential-NAME",
        ),
    ] = None
    header: Annotated[
        str | None,
        Field(pattern=r"^[A-Za-z0-9-]{1,64}$", description="with from: the header that the server gets; Authorization"),
    ] = None
    format: Annotated[
        str | None,
        AfterValidator(_format),
        Field(description="with from: the value of the header, with the credential as {}, which it is alone"),
    ] = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(each is not None for each in (self.oauth, self.exchange, self.source)) != 1:
            raise PydanticCustomError("one_kind", "must have exactly one of oauth, exchange and from: credential:NAME")
        if self.source is None and (self.header or self.format):
            raise PydanticCustomError(
                "of_from", "header and format are for from; a token goes as Authorization: Bearer"
            )
        return self

    @property
    def given_name(self) -> str:
        """The name of the credential that the caller brings, in lower case; empty for another kind."""
        return (self.source or "").removeprefix(_GIVEN)

    @property
    def sent_as(self) -> tuple[str, str]:
        """The header that carries the credential, and its value with the credential as `{}`."""
        return self.header or "Authorization", self.format or ("{}" if self.source else "Bearer {}")

    def headers(self, credential: str) -> Mapping[str, str]:
        """Return the header of a request that carries this credential."""
        header, value = self.sent_as
        return {header: value.replace("{}", credential)}


class AuthOwner(NamedTuple):
    """The entry that has a `user_auth`: its kind as in `ToolRef.kind`, its key, and the URL of a server."""

    kind: str
    key: str
    url: str = ""


class HostCredentials(Protocol):
    """Finds the credentials of callers; a part of the host. As written, for a registry or a host without that part."""

    async def credential(self, owner: AuthOwner, auth: UserAuth, context: CallContext, refused: str = "") -> str:
        """Return the credential of this caller, another one than the `refused` one. Raises `ToolUnavailable`."""
        raise ToolUnavailable("user_auth needs a host with the part `credentials`", code=CREDENTIAL_NEEDED)


_LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}


def url_for_browsers(public_url: str | None, credentials: Mapping[str, str]) -> str:
    """Return the URL that the browser of a caller finds the host by; empty if that is not known.

    It is `http.public_url`, else the port of a request that has come over the loopback.
    """
    if public_url is not None:
        return public_url
    asked = credentials.request.get(b"host", b"").decode("latin-1") if isinstance(credentials, Credentials) else ""
    name, _, port = asked.rpartition(":")
    return f"http://127.0.0.1:{port}" if port.isdecimal() and name in _LOOPBACK else ""


class PartCredentials(HostCredentials):
    """Asks the part that is open when a call is made: plans are built before parts are open."""

    current: HostCredentials | None = None

    async def credential(self, owner: AuthOwner, auth: UserAuth, context: CallContext, refused: str = "") -> str:
        """Ask the part."""
        asked = super() if self.current is None else self.current
        return await asked.credential(owner, auth, context, refused)


# An application may have one API key for all its users, and pass on the credentials of each. So all that is kept for a
# principal, or found by it, is kept for this scope too: who brings other credentials never gets it.
ScopeOf = Callable[[Mapping[str, str]], Awaitable[str]]
"""Returns the scope of the credentials that a caller brings, empty for none. Raises `StoreError`."""


async def no_scope(credentials: Mapping[str, str]) -> str:
    """Return nothing: outside of a host there is no key, and one caller."""
    return ""
