"""The settings of providers.yaml as pydantic models, except MCP servers (docs/reference/configuration.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from importlib.util import find_spec
from ipaddress import ip_network
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, Self, cast

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from toolplug.catalog.definition import Offer
from toolplug.catalog.text import MAX_IDENTITY, is_identity
from toolplug.config.run_settings import IN_PROCESS, RunSettings
from toolplug.config.units import Duration, FileMapping, Size, shape_error
from toolplug.errors import StoreMisused
from toolplug.execution.accounting import DEFAULT_NAMESPACE
from toolplug.execution.plans import Policy, ToolRule
from toolplug.execution.resolved_limits import NO_LIMITS, Limits
from toolplug.execution.user_auth import UserAuth
from toolplug.host.keys import KeySetting
from toolplug.host.quotas.settings import NO_QUOTAS, Quotas
from toolplug.net.egress import Egress
from toolplug.providers.entry import OnFailure
from toolplug.providers.routes import is_reserved
from toolplug.runtime.duplicates import first_repeated
from toolplug.stores.open import BUILT_IN, open_store, store_scheme

PROVIDER_KEY = r"^[a-z][a-z0-9_]{0,63}$"
_KIND = re.compile(PROVIDER_KEY[1:-1])
PROVIDER = "provider:"
MCP = "mcp:"

Scope = Literal["shared", "session"]


def split_source(text: str) -> tuple[str, str] | None:
    """Return the kind with its colon, such as `provider:` or `mcp:`, and what follows; None for other text."""
    kind, _, rest = text.partition(":")
    return (f"{kind}:", rest) if rest and _KIND.fullmatch(kind) else None


def _source(text: str) -> str:
    if _KIND.fullmatch(text):
        raise shape_error(f"{PROVIDER}{text} for a provider, or {MCP}{text} for an MCP server")
    if split_source(text) is None:
        raise shape_error(
            f"{PROVIDER} and the key of a provider, {MCP} and the id of an MCP server, or the kind of a"
            " plugin's source, a colon and its address"
        )
    return text


def _of_calls(limits: Limits) -> Limits:
    if limits.drain is not None:
        raise PydanticCustomError("drain_of_provider", "drain is set at the provider: it is how long its calls may end")
    return limits


class ToolsetSettings(FileMapping):
    """One toolset: the tools of a provider, of an MCP server, or of another source under a prefix."""

    prefix: Annotated[
        str, Field(pattern="^[a-z][a-z0-9_-]{0,31}$", description="the tools are called prefix.tool; used once")
    ]
    source: Annotated[
        str,
        AfterValidator(_source),
        Field(
            alias="from", description="provider:KEY or mcp:ID, an entry of providers or of mcp_servers; or KIND:ADDRESS"
        ),
    ]
    api_key: Annotated[
        SecretStr | None, Field(description="for a source of a plugin such as host:, best as ${NAME}; or api_key_file")
    ] = None
    scope: Annotated[Scope, Field(description="session: each session has a connection of its own, for mcp:")] = "shared"
    limits: Annotated[
        Limits,
        AfterValidator(_of_calls),
        Field(description="for its tools together, between the provider's limits and each tool's own; no drain"),
    ] = NO_LIMITS
    offer: Annotated[
        Offer | None, Field(description="to models, of the tools whose own rules say nothing; none: as their source")
    ] = None

    @model_validator(mode="after")
    def _one_provider_for_all(self) -> Self:
        if self.api_key is not None and self.source.startswith((PROVIDER, MCP)):
            raise PydanticCustomError("key_of_toolset", "api_key is for the source of a plugin, such as host:URL")
        if self.scope == "session" and not self.source.startswith(MCP):
            raise PydanticCustomError(
                "provider_is_shared",
                "scope must be shared: a provider runs once, for every session; a toolset that is made for each session"
                " is that of an MCP server, or registered by code, with a factory",
            )
        return self


class AgentSettings(FileMapping):
    """One agent: the toolsets that it may use."""

    toolsets: Annotated[
        # `strict=False` here and below: the models are strict, and a list of YAML would be no tuple.
        tuple[str, ...], Field(strict=False, description="ids, in the order in which a model sees them; none: no tools")
    ] = ()


def rule(value: object) -> object:
    """Expand a bare policy to the rule that it is short for."""
    if isinstance(value, str) or (isinstance(value, dict) and "ask" in value):
        return {"policy": cast("object", value)}
    return cast("object", value)


def acting(limits: Limits) -> Limits:
    """Refuse a queue at a level without `max_concurrency`, where no call would ever wait."""
    if limits.queue is not None and limits.max_concurrency is None:
        raise PydanticCustomError("queue_alone", "queue needs max_concurrency, whose places calls wait for")
    return limits


def of_one_tool(given: ToolRule) -> ToolRule:
    """Refuse limits that cannot hold for one tool alone."""
    if given.limits.drain is not None:
        raise PydanticCustomError(
            "drain_of_tool", "limits.drain is for all tools together; set it under the limits of the whole entry"
        )
    acting(given.limits)
    return given


ToolRuleSetting = Annotated[
    ToolRule, BeforeValidator(rule, json_schema_input_type=ToolRule | Policy), AfterValidator(of_one_tool)
]
"""The rule of one tool in a `tools` mapping: a policy, or policy, limits, tenants and offer."""

_HOST = re.compile(r"[0-9A-Fa-f:]+|(\[[0-9A-Fa-f:.]+\]|[^\s*:\[\]/@]+)(:[0-9]{1,5})?")
_ORIGIN = re.compile(r"null|[A-Za-z][A-Za-z0-9+.-]*://(\[[0-9A-Fa-f:.]+\]|[^\s*:\[\]/@?#]+)(:[0-9]{1,5})?/?")
_PUBLIC_URL = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[^\s*:\[\]/@?#]+)(:[0-9]{1,5})?(/[^\s?#]*)?")


def _host_name(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise shape_error("a host name as in the Host header, such as tools.example.org, without wildcards")
    return text


def _origin(text: str) -> str:
    """Refuse an origin that no browser sends, which would silently admit no request."""
    if not _ORIGIN.fullmatch(text):
        raise shape_error("an origin as browsers send it, such as https://app.example.org, without path and wildcards")
    return text


def _public_url(url: str) -> str:
    """Return the URL without a trailing slash. Refuse one that cannot be the base of other URLs."""
    if not _PUBLIC_URL.fullmatch(url):
        raise shape_error("an http or https URL without query and fragment, such as https://tools.example.org/plug")
    return url.rstrip("/")


class EdgeSettings(FileMapping):
    """Limits on connections and on requests that have not been read whole."""

    head_bytes: Annotated[Size, Field(ge=1, description="of a request line with its headers; more is 431")] = 32 * 1024
    head_s: Annotated[
        Duration, Field(gt=0, description="to send a request's head, from the first byte or the connection's start")
    ] = 10.0
    body_bytes_per_s: Annotated[
        Size, Field(description="the least rate of a request's body over any 10 s; 0: none")
    ] = 1024
    body_memory: Annotated[Size, Field(ge=1, description="of unfinished bodies; of one key a quarter")] = 256 * 1024**2
    idle_s: Annotated[Duration, Field(gt=0, description="how long a connection is kept open between requests")] = 75.0
    connections: Annotated[int, Field(ge=1, description="open at once; a further one is closed")] = 10_000
    connections_per_peer: Annotated[int, Field(ge=1, description="open at once from one address")] = 1024
    streams_per_key: Annotated[int, Field(ge=1, description="event streams open at once of one credential")] = 1024


def _proxy(text: str) -> str:
    try:
        ip_network(text)
    except ValueError:
        raise shape_error("an address or a network, such as 10.0.0.5 or 10.1.0.0/16") from None
    return text


_PROCESS: Mapping[str, str] = MappingProxyType(
    {
        "host": "toolplug serve --host ADDRESS sets it",
        "port": "toolplug serve --port PORT sets it",
        "workers": "toolplug serve --workers N sets it",
        "reload": "toolplug serve --reload does it",
        "debug": "toolplug serve --debug does it",
        "log_level": "toolplug serve --log-level LEVEL sets it",
        "log_format": "toolplug serve --log-format FORMAT sets it",
        "log": "toolplug serve --log-level and --log-format set it",
        "logging": "toolplug serve --log-level and --log-format set it",
    }
)
"""The file is one for all processes that serve it; these are of each process, so they are options of the command."""


class Http(FileMapping):
    """The HTTP server: the hosts and origins that it admits, and its limits."""

    elsewhere: ClassVar[Mapping[str, str]] = _PROCESS

    allowed_hosts: Annotated[
        tuple[Annotated[str, AfterValidator(_host_name)], ...],
        Field(strict=False, description="Host names besides the bound one"),
    ] = ()
    allowed_origins: Annotated[
        tuple[Annotated[str, AfterValidator(_origin)], ...],
        Field(strict=False, description="browser origins that may call"),
    ] = ()
    max_body: Annotated[Size, Field(ge=1)] = 1024 * 1024
    public_url: Annotated[
        str | None,
        AfterValidator(_public_url),
        Field(description="the URL that clients know this host by; when absent, that of each request"),
    ] = None
    edge: EdgeSettings = EdgeSettings()
    trusted_proxies: Annotated[
        tuple[Annotated[str, AfterValidator(_proxy)], ...],
        Field(strict=False, description="addresses and networks whose X-Forwarded-For names the peer"),
    ] = ()


DEFAULT_SCOPES = ("tools:read", "tools:call", "sessions:write")
_PEM = "-----BEGIN PUBLIC KEY-----"

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


def _name(text: str) -> str:
    if not is_identity(text):
        raise shape_error(f"1 to {MAX_IDENTITY} visible characters, without blanks at the ends")
    return text


class ApiKey(FileMapping):
    """One API key and its holder. Exactly one of key, key_file and sha256."""

    key: Annotated[SecretStr | None, Field(description="the key itself, best as ${NAME}; or key_file")] = None
    sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$", description="hex SHA-256 of the key")] = None
    subject: Annotated[str, AfterValidator(_name), Field(min_length=1, description="who it is")]
    tenant: Annotated[str, AfterValidator(_name), Field(min_length=1, description="whose things it sees")] = "default"
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
        """The SHA-256 of the key, as bytes."""
        key = self.key
        return bytes.fromhex(self.sha256 or "") if key is None else sha256(key.get_secret_value().encode()).digest()


class Jwt(FileMapping):
    """The checks of bearer tokens. `iss`, `aud` and `exp` are required in every token."""

    algorithms: Annotated[tuple[Algorithm, ...], Field(strict=False, min_length=1)]
    jwks_url: Annotated[str | None, Field(pattern="^https?://", description="where the keys are")] = None
    public_key: Annotated[SecretStr | None, Field(description="PEM text; or public_key_file")] = None
    issuer: Annotated[str, Field(min_length=1)]
    audience: Annotated[str, Field(min_length=1)]
    tenant_claim: str = "tenant"
    require_tenant: Annotated[
        bool | None,
        Field(description="refuse a token without a tenant; when absent, true where tenant_claim is set"),
    ] = None
    scopes_claim: str = "scope"
    agents_claim: str = "agents"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.jwks_url is None) == (self.public_key is None):
            raise PydanticCustomError("one_source", "must have exactly one of jwks_url and public_key_file")
        if self.public_key is not None and _PEM not in self.public_key.get_secret_value():
            raise PydanticCustomError("no_pem", "public_key_file must hold a public key as PEM text")
        # Looked for, not imported: both come with an extra, and only a host that checks tokens needs them.
        if find_spec("jwt") is None or find_spec("httpx2") is None:
            raise PydanticCustomError("no_pyjwt", "jwt needs the extra: pip install 'toolplug[auth]'")
        return self

    @property
    def tenant_is_required(self) -> bool:
        """Whether a token without a tenant is refused; by default if `tenant_claim` is set."""
        return "tenant_claim" in self.model_fields_set if self.require_tenant is None else self.require_tenant


def same_keys(keys: Mapping[int, ApiKey]) -> str:
    """Return which two of the keys, by their place in the list, are the same; empty if none are."""
    twice = first_repeated(key.digest for key in keys.values())
    same = [index for index, key in keys.items() if key.digest == twice]
    return f"api_keys[{same[0]}] and api_keys[{same[1]}] are the same key; a key has one holder" if same else ""


class Auth(FileMapping):
    """The credentials of callers. Without this section only loopback is served, without credentials."""

    api_keys: Annotated[tuple[ApiKey, ...], Field(strict=False)] = ()
    jwt: Jwt | None = None

    @model_validator(mode="after")
    def _some_with_one_holder_each(self) -> Self:
        if same := same_keys(dict(enumerate(self.api_keys))):
            # As a value: the first text is a template, in which braces of a reason would name fields.
            raise PydanticCustomError("same_key", "{reason}", {"reason": same})
        if not self.api_keys and self.jwt is None:
            raise PydanticCustomError("empty_auth", "must have api_keys or jwt; leave auth out to serve loopback only")
        return self


DEFAULT_STORE = "sqlite:///./.toolplug/state.db"
OfferSetting = Annotated[
    Offer,
    Field(
        description="to models; on_request: only in a response whose request names the tools; search: once a search"
        " has found them"
    ),
]


def _store_url(url: str) -> str:
    """Check the URL of a built-in store; those of plugins are checked once the plugins are loaded."""
    try:
        if "://" not in url or store_scheme(url) in BUILT_IN:
            open_store(url)
    except StoreMisused as error:
        raise PydanticCustomError("store_url", "{reason}", {"reason": str(error)}) from None
    return url


def _mount_path(path: str | None) -> str | None:
    if path is not None and is_reserved(path):
        why = "{path} is a path of the host itself; choose another"
        raise PydanticCustomError("reserved_path", why, {"path": path})
    return path


class ProviderSettings(FileMapping):
    """The host's keys of one entry under `providers:`, without `settings`."""

    enabled: Annotated[bool, Field(description="without it the package is not even imported")] = False
    type: Annotated[str | None, Field(description="the entry point's name, where it is not this entry's key")] = None
    required: Annotated[bool, Field(description="false: the host starts without it when it fails")] = True
    offer: OfferSetting = "always"
    public_routes: Annotated[bool, Field(description="open the routes that their author marked public")] = False
    mount: Annotated[
        str | None,
        Field(pattern=r"^(/[a-z0-9_-]+)+$", description="a path, used once; the entry's routes are below it"),
        AfterValidator(_mount_path),
    ] = None
    run: Annotated[RunSettings, Field(description="where it runs, and what it may use there")] = IN_PROCESS
    on_failure: Annotated[
        OnFailure,
        Field(description="what its before_call means for the call where it fails or is late; deny: refused"),
    ] = "deny"
    user_auth: Annotated[
        UserAuth | None, Field(description="whose credential its tools get from context.credential(): the caller's own")
    ] = None
    limits: Limits = NO_LIMITS
    tools: Annotated[
        dict[str, ToolRuleSetting],
        Field(description="rules by tool name: a policy, or policy, limits, tenants and offer"),
    ] = {}  # noqa: RUF012  pydantic copies it


RESERVED_KEYS = frozenset({*ProviderSettings.model_fields, "settings"})
"""The host's keys of a provider entry; every other key belongs to the provider's own Config model."""


def _given_auth(value: object) -> object:
    """Refuse an empty section, which is not meant as a host without credentials."""
    if value is None:
        raise shape_error("a section with api_keys or jwt; leave auth out to serve loopback only")
    return value


def _egress_word(word: str) -> str:
    try:
        Egress((word,))
    except ValueError as error:
        raise PydanticCustomError("egress_word", "{reason}", {"reason": str(error)}) from None
    return word


class EgressSettings(FileMapping):
    """Non-public addresses that requests may reach; public ones, and those in this file, are always allowed."""

    allow: Annotated[
        tuple[Annotated[str, AfterValidator(_egress_word)], ...],
        Field(strict=False, description="loopback, private, a network (10.1.0.0/16) or a host (*.corp.example)"),
    ] = ()


class Metrics(FileMapping):
    """The names of the host's own metrics."""

    namespace: Annotated[str, Field(pattern="^[a-zA-Z_][a-zA-Z0-9_]{0,63}$")] = DEFAULT_NAMESPACE


class HostSettings(FileMapping):
    """Every section but `providers`, `mcp_servers` and those of parts, which `settings_model` adds."""

    elsewhere: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            **_PROCESS,
            "server": "toolplug serve --host and --port set the address; the rest is under 'http'",
            "mcpServers": "here it is mcp_servers; toolplug discover --import FILE reads the file of a desktop client",
        }
    )

    auth: Annotated[Auth | None, BeforeValidator(_given_auth, json_schema_input_type=Auth)] = None
    http: Http = Http()
    key: Annotated[
        KeySetting | None,
        Field(description="seals what nobody may read or change in the store; a list: the first one seals, all open"),
    ] = None
    egress: EgressSettings = EgressSettings()
    limits: Annotated[Limits, AfterValidator(acting)] = NO_LIMITS
    metrics: Metrics = Metrics()
    quotas: Quotas = NO_QUOTAS
    store: Annotated[
        str,
        AfterValidator(_store_url),
        Field(description="sqlite:///./path, sqlite:////path, memory://, or the URL of a plugin's store"),
    ] = DEFAULT_STORE
    toolsets: Annotated[
        dict[str, ToolsetSettings], Field(description="tools under a prefix, by id, in the order of listings")
    ] = {}  # noqa: RUF012  pydantic copies it
    agents: Annotated[dict[str, AgentSettings], Field(description="the toolsets that each agent may use, by id")] = {}  # noqa: RUF012  pydantic copies it

    @classmethod
    def section_names(cls) -> tuple[str, ...]:
        """Return the keys of the sections in the order of the reference: those of parts come before `store`."""
        own = [*HostSettings.model_fields]
        at = own.index("store")
        return (*own[:at], *(name for name in cls.model_fields if name not in own), *own[at:])


def changed_sections(before: HostSettings, after: HostSettings) -> tuple[str, ...]:
    """Return the names of the sections whose values differ, those that only one of the two has included.

    Each configuration has a model of its own: one lacks the section of a plugin that it does not enable.
    """
    now = type(after).section_names()
    names = (*now, *(name for name in type(before).section_names() if name not in now))
    return tuple(name for name in names if getattr(before, name, None) != getattr(after, name, None))
