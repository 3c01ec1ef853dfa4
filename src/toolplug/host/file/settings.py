"""The shape of providers.yaml, but for what each provider defines itself (CONTRACT.md section 2)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from toolplug.config.shape_error import shape_error
from toolplug.errors import StoreMisused
from toolplug.execution.egress import Egress
from toolplug.execution.knobs import NO_LIMITS, Limits
from toolplug.execution.metrics import DEFAULT_NAMESPACE
from toolplug.execution.tool_rule import Policy, ToolRule
from toolplug.host.file.auth_settings import Auth
from toolplug.host.file.http_settings import Http
from toolplug.host.file.part import Part
from toolplug.host.file.responses_settings import ResponsesSettings
from toolplug.host.file.session_settings import SessionSettings
from toolplug.host.file.tool_rules import acting, of_one_tool, rule
from toolplug.host.file.toolset_settings import AgentSettings, ToolsetSettings
from toolplug.stores.open import open_store

RESERVED_KEYS = frozenset({"enabled", "type", "required", "offer", "public_routes", "limits", "tools", "settings"})
"""Keys of a provider entry that are the host's; every other one belongs to the provider's own Config model."""

DEFAULT_STORE = "sqlite:///./.toolplug/state.db"
Offer = Literal["always", "on_request"]
PROVIDER_KEY = r"^[a-z][a-z0-9_]{0,63}$"


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
