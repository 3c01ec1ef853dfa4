"""The `auth:` section (CONTRACT.md sections 2 and 5)."""

from __future__ import annotations

from hashlib import sha256
from importlib.util import find_spec
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from toolplug.host.file.part import Part

DEFAULT_SCOPES = ("tools:read", "tools:call", "sessions:write")
_PEM = "-----BEGIN PUBLIC KEY-----"

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


class ApiKey(Part):
    """One API key and who holds it. Exactly one of key, key_file and sha256."""

    key: Annotated[SecretStr | None, Field(description="the key itself, best as ${NAME}; or key_file")] = None
    sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$", description="hex SHA-256 of the key")] = None
    subject: Annotated[str, Field(min_length=1, description="who it is")]
    tenant: Annotated[str, Field(min_length=1, description="whose things it sees")] = "default"
    scopes: Annotated[tuple[str, ...], Field(strict=False)] = DEFAULT_SCOPES
    agents: Annotated[
        tuple[str, ...] | None, Field(strict=False, description="the agents it may act as; none: any")
    ] = None

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if (self.key is None) == (self.sha256 is None):
            raise PydanticCustomError("one_key", "must have exactly one of key, key_file and sha256")
        if self.key is not None and not self.key.get_secret_value():
            raise PydanticCustomError("empty_key", "key must not be empty; `toolplug keys new` makes one")
        return self

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the key."""
        if self.key is not None:
            return sha256(self.key.get_secret_value().encode()).digest()
        return bytes.fromhex(self.sha256 or "")


class Jwt(Part):
    """How a bearer token is checked. `iss`, `aud` and `exp` are required in every token."""

    algorithms: Annotated[tuple[Algorithm, ...], Field(strict=False, min_length=1)]
    jwks_url: Annotated[str | None, Field(pattern="^https?://", description="where the keys are")] = None
    public_key: Annotated[SecretStr | None, Field(description="PEM text; or public_key_file")] = None
    issuer: Annotated[str, Field(min_length=1)]
    audience: Annotated[str, Field(min_length=1)]
    tenant_claim: str = "tenant"
    scopes_claim: str = "scope"
    agents_claim: str = "agents"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.jwks_url is None) == (self.public_key is None):
            raise PydanticCustomError("one_source", "must have exactly one of jwks_url and public_key_file")
        if self.public_key is not None and _PEM not in self.public_key.get_secret_value():
            raise PydanticCustomError("no_pem", "public_key_file must hold a public key as PEM text")
        if find_spec("jwt") is None:
            raise PydanticCustomError("no_pyjwt", "jwt needs the extra: pip install 'toolplug[auth]'")
        return self


class Auth(Part):
    """Who may come in. Without this section only loopback is served, without credentials."""

    api_keys: Annotated[tuple[ApiKey, ...], Field(strict=False)] = ()
    jwt: Jwt | None = None

    @model_validator(mode="after")
    def _one_holder_of_each(self) -> Self:
        holders: dict[bytes, int] = {}
        for index, key in enumerate(self.api_keys):
            first = holders.setdefault(key.digest, index)
            if first != index:
                raise PydanticCustomError(
                    "same_key",
                    "api_keys[{first}] and api_keys[{index}] are the same key; a key has one holder",
                    {"first": first, "index": index},
                )
        return self

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.api_keys and self.jwt is None:
            raise PydanticCustomError("empty_auth", "must have api_keys or jwt; leave auth out to serve loopback only")
        return self
