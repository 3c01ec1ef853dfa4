"""The shape of providers.yaml, but for what each provider defines itself (CONTRACT.md section 2)."""

from __future__ import annotations

from hashlib import sha256
from importlib.util import find_spec
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from toolplug.config.shape_error import shape_error
from toolplug.errors import StoreMisused
from toolplug.execution.egress import Egress
from toolplug.execution.knobs import NO_LIMITS, Limits
from toolplug.execution.metrics import DEFAULT_NAMESPACE
from toolplug.execution.tool_rule import Policy, ToolRule
from toolplug.host.file.http_settings import Http
from toolplug.host.file.part import Part
from toolplug.host.file.responses_settings import ResponsesSettings
from toolplug.host.file.session_settings import SessionSettings
from toolplug.host.file.tool_rules import acting, of_one_tool, rule
from toolplug.host.file.toolset_settings import AgentSettings, ToolsetSettings
from toolplug.stores.open import open_store

RESERVED_KEYS = frozenset({"enabled", "type", "required", "offer", "public_routes", "limits", "tools", "settings"})
"""Keys of a provider entry that are the host's; every other one belongs to the provider's own Config model."""

DEFAULT_SCOPES = ("tools:read", "tools:call", "sessions:write")
DEFAULT_STORE = "sqlite:///./.toolplug/state.db"
_PEM = "-----BEGIN PUBLIC KEY-----"
Offer = Literal["always", "on_request"]
PROVIDER_KEY = r"^[a-z][a-z0-9_]{0,63}$"

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


def _store_url(url: str) -> str:
    try:
        open_store(url)
    except StoreMisused as error:
        raise PydanticCustomError("store_url", "{reason}", {"reason": str(error)}) from None
    return url


class ProviderSettings(Part):
    """The reserved keys of one entry under `providers:`; `settings` has been taken out before."""

    enabled: Annotated[bool, Field(description="without it the package is not even imported")] = False
    type: Annotated[str | None, Field(description="the entry point's name, where it is not this entry's key")] = None
    required: Annotated[bool, Field(description="false: the host starts without it when it fails")] = True
    offer: Annotated[
        Offer, Field(description="on_request: to the model of a response only where its request names the tools")
    ] = "always"
    public_routes: Annotated[bool, Field(description="open the routes that their author marked public")] = False
    limits: Limits = NO_LIMITS
    tools: Annotated[
        dict[
            str,
            Annotated[
                ToolRule, BeforeValidator(rule, json_schema_input_type=ToolRule | Policy), AfterValidator(of_one_tool)
            ],
        ],
        Field(description="rules by tool name: a policy, or policy, limits and tenants"),
    ] = {}  # noqa: RUF012  pydantic copies it, and the model is frozen


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


def _given_auth(value: object) -> object:
    """Refuse a section without anything in it: whoever wrote it does not mean a host without credentials."""
    if value is None:
        raise shape_error("a section with api_keys or jwt; leave auth out to serve loopback only")
    return value


def _egress_word(word: str) -> str:
    try:
        Egress((word,))
    except ValueError as error:
        raise PydanticCustomError("egress_word", "{reason}", {"reason": str(error)}) from None
    return word


class EgressSettings(Part):
    """Where requests may go whose address does not stand in this file; public addresses always."""

    allow: Annotated[
        tuple[Annotated[str, AfterValidator(_egress_word)], ...],
        Field(strict=False, description="loopback, private, a network (10.1.0.0/16) or a host (*.corp.example)"),
    ] = ()


class Metrics(Part):
    """How the host's own metrics are named."""

    namespace: Annotated[str, Field(pattern="^[a-zA-Z_][a-zA-Z0-9_]{0,63}$")] = DEFAULT_NAMESPACE


class HostSettings(Part):
    """Every section but `providers`."""

    auth: Annotated[Auth | None, BeforeValidator(_given_auth, json_schema_input_type=Auth)] = None
    http: Http = Http()
    egress: EgressSettings = EgressSettings()
    limits: Annotated[Limits, AfterValidator(acting)] = NO_LIMITS
    metrics: Metrics = Metrics()
    responses: ResponsesSettings | None = None
    sessions: SessionSettings = SessionSettings()
    store: Annotated[
        str, AfterValidator(_store_url), Field(description="sqlite:///./path, sqlite:////path or memory://")
    ] = DEFAULT_STORE
    toolsets: Annotated[
        dict[str, ToolsetSettings], Field(description="tools under a prefix, by id, in the order of listings")
    ] = {}  # noqa: RUF012  pydantic copies it, and the model is frozen
    agents: Annotated[dict[str, AgentSettings], Field(description="the toolsets that each agent may use, by id")] = {}  # noqa: RUF012  as above
