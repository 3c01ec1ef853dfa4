"""`configuration.md`: every key of providers.yaml, from the models that read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from docs.generator.markdown import code, page, sentences, table
from pydantic import BaseModel, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo

from toolplug.config.run_settings import RunSettings
from toolplug.config.units import format_duration, format_rate, format_size, parse_duration, parse_rate, parse_size
from toolplug.execution.plans import DEFAULT_POLICY, ToolRule
from toolplug.execution.resolved_limits import (
    DEFAULT_BLOCKING,
    DEFAULT_DRAIN_S,
    DEFAULT_RESULT_BYTES,
    DEFAULT_TIMEOUT_S,
    BreakerLimit,
    Limits,
)
from toolplug.host.file.settings import (
    DEFAULT_STORE,
    AgentSettings,
    ApiKey,
    Auth,
    EdgeSettings,
    EgressSettings,
    Http,
    Jwt,
    Metrics,
    ProviderSettings,
    ToolsetSettings,
)
from toolplug.host.keys import FILE as KEY_FILE
from toolplug.host.keys import MOST_KEYS
from toolplug.host.quotas.settings import QuotaLimits, Quotas
from toolplug.parts.credentials.settings import LoginClient
from toolplug.parts.mcp.settings import McpServerSettings, OAuthSettings
from toolplug.parts.responses.settings import BackendSettings, ResponsesSettings
from toolplug.parts.sessions.settings import SessionSettings

_SHAPES: Mapping[object, str] = {parse_duration: "duration", parse_size: "size", parse_rate: "rate"}
_FORMATS: Mapping[object, Callable[[Any], str]] = {
    parse_duration: format_duration,
    parse_size: format_size,
    parse_rate: format_rate,
}
_PLAIN: Mapping[object, str] = {bool: "true or false", int: "whole number", str: "text", SecretStr: "secret text"}

_MEANT_WHEN_UNSET: Mapping[type[BaseModel], Mapping[str, str]] = {
    Limits: {
        "timeout": format_duration(DEFAULT_TIMEOUT_S),
        "drain": format_duration(DEFAULT_DRAIN_S),
        "max_result_bytes": format_size(DEFAULT_RESULT_BYTES),
        "max_concurrency": f"none; synchronous tools: {DEFAULT_BLOCKING} a provider",
        "queue": "0",
        "scope": "`process`",
        "without_store": "`refuse`",
        "retries": "0",
        "artifacts": "false",
    },
    ToolRule: {"policy": DEFAULT_POLICY},
}
"""By section: what a key means that no level sets. Keys of other sections may have the same names."""

_HEAD = """
`toolplug check` reports the errors in a file. `toolplug schema` writes its JSON Schema for editors, with the settings
of every installed package.

Strings may contain `${NAME}` and `${NAME:-default}` from the environment; `$${` is a literal `${`. For every key that
takes a secret, the same key with the suffix `_file` takes the path of a file that contains it.

Durations are `500ms`, `20s`, `5m`, `1h`, or seconds. Sizes are `200KiB`, `1MiB`, or bytes. Rates are `60/second`,
`60/minute`, `60/hour`.
"""

_ENTRY = """
One entry for each provider. Its key is the provider's type, or any other name with `type:` in the entry. Every key that
is not listed here is a setting of the provider itself; if the name of a setting is in this list, put the settings under
`settings:` instead.
"""


_RUN = """
Where a provider runs: [in a process of its own](../how-to/run-providers-apart.md), and, with one of `network`, `files`,
`environment` and `confine`, [confined](../how-to/confine-providers.md).
"""

_LIMITS = """
At the top level for every tool, in an entry for its provider, in a rule for one tool. A key that is not set is
inherited from the level above.
"""

_SERVERS = """
One entry for each MCP server. You choose its id: a lower-case letter, then up to 63 of a-z 0-9 _ -. It has either
`command` or `url`. An invalid entry is reported, and the host starts without it. `~/.config/toolplug/providers.yaml`
may contain more entries, and no other section. An entry with the same id here replaces it completely. With `--config`
that file is not read.
"""

_TOOLSETS = """
One entry for each toolset. You choose its id. A toolset is available to the agents that are allowed to use it, and as
`sessions.default_toolset`.
"""

_AGENTS = """
One entry for each agent. Its key is the id that callers send. An agent that is not configured has no tools.
"""

_EDGE = """
Limits of `toolplug serve` on connections and on requests that are still being read. If a limit is exceeded, the
answer is 431 or 408, or the connection closes. If an application mounts toolplug, the limits of its own server apply
instead.
"""

_KEY = f"""
## key

The [key of the host](../how-to/secrets.md#the-key-of-the-host), which seals what nobody may read or change in the
store: 43 characters, 32 random bytes as URL-safe Base64, best as `"${{NAME}}"`; a list of at most {MOST_KEYS}, of which
the first seals and all open; or `{{file: PATH}}`, a key a line, which is made if it is missing. Default: `{KEY_FILE}`
next to the store's file, made when something is first sealed; with `memory://` it is in memory, and with a store on the
network there is none.
"""

_STORE = f"""
## store

Where records are stored: `sqlite:///./path`, `sqlite:////path`, or `memory://`, which is lost on exit. With the suffix
`?synchronous=full`, acknowledged changes also survive a power failure. Default: `{DEFAULT_STORE}`.

With `?shared=true` (joined to another option by `&`), several processes of one machine may have the file open. They
send each other their changes through sockets in the folder `state.db-wake/` next to it, and look for missed ones ten
times a second. Without it, a second serving process is refused. A network file system cannot be used.
`toolplug serve --workers` shares the file without the option.

The URL of another scheme names the store of a plugin, which the URL enables: its entry under `providers:` is needed for
settings only, and must not be disabled. No message shows the URL, which may hold a password.

Providers keep their files (`site.state_dir`) next to the store's file. With a store on the network they are in
`.toolplug/` next to the configuration, on each machine its own; with `memory://` in a temporary folder.
"""


_QUOTAS = """
The quotas of each tenant, and of each key within it; both must admit a request. Over a quota it gets 429
`quota_exceeded`.
"""


def configuration_page() -> str:
    """The page."""
    return page(
        "Configuration: providers.yaml",
        _HEAD,
        _part("providers", _ENTRY, ProviderSettings),
        _part("run", _RUN, RunSettings),
        _part(
            "tools", "In a provider's entry: rules by tool name. A policy alone is short for `{policy: …}`.", ToolRule
        ),
        _part(
            "limits",
            _LIMITS,
            Limits,
        ),
        _part("breaker", "", BreakerLimit),
        _part("auth", "", Auth),
        _part("auth.api_keys", "A list; each has exactly one of `key`, `key_file` and `sha256`.", ApiKey),
        _part("auth.jwt", "", Jwt),
        _part("http", "", Http),
        _part("http.edge", _EDGE, EdgeSettings),
        _part(
            "credentials.login",
            "The [login of browsers](../how-to/act-as-the-caller.md#browsers-that-must-be-the-caller) that connect a"
            " caller. Without it, anybody who presses a link connects the user of the link.",
            LoginClient,
        ),
        _KEY,
        _part("metrics", "", Metrics),
        _part("egress", "", EgressSettings),
        _part("quotas", _QUOTAS, Quotas),
        _part("quotas.tenant", "`quotas.key` has the same keys.", QuotaLimits),
        _part("mcp_servers", _SERVERS, McpServerSettings),
        _part("mcp_servers.oauth", "", OAuthSettings),
        _part("toolsets", _TOOLSETS, ToolsetSettings),
        _part("agents", _AGENTS, AgentSettings),
        _part("sessions", "", SessionSettings),
        _part("responses", "", ResponsesSettings),
        _part("responses.backend", "", BackendSettings),
        _STORE,
    )


def _part(title: str, text: str, model: type[BaseModel]) -> str:
    said = text.strip() or sentences(model.__doc__)
    return f"## {title}\n\n{said}\n\n" + table(("key", "takes", "default", "description"), _rows(model))


def _rows(model: type[BaseModel]) -> Iterable[tuple[str, str, str, str]]:
    for name, field in model.model_fields.items():
        yield (
            code(field.alias or name),
            _shape(field.annotation, field.metadata),
            _default(model, name, field),
            field.description or "",
        )


def _default(model: type[BaseModel], name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.default
    if value is None or isinstance(value, BaseModel) or value in ((), {}):
        return _MEANT_WHEN_UNSET.get(model, {}).get(name, "none") if value is None else "none"
    for item in field.metadata:
        if isinstance(item, BeforeValidator) and item.func in _FORMATS:
            return code(_FORMATS[item.func](value))
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, int):
        return code(str(value))
    return code(value if isinstance(value, str) else f"[{', '.join(value)}]")


def _shape(annotation: object, metadata: Iterable[object] = ()) -> str:
    """What a value looks like in YAML."""
    for item in metadata:
        if isinstance(item, BeforeValidator) and item.func in _SHAPES:
            return _SHAPES[item.func]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _shape(arguments[0], arguments[1:])
    if origin in (Union, UnionType):
        return " or ".join(_shape(item) for item in arguments if item is not NoneType)
    if origin is Literal:
        return ", ".join(map(code, arguments))
    if origin is tuple:
        return f"list of {_shape(arguments[0])}"
    if origin is dict:
        return f"mapping of {_shape(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping, below" if annotation in _BELOW else "mapping"
    return _PLAIN[annotation]


_BELOW = frozenset(
    {Limits, BreakerLimit, ToolRule, ApiKey, Jwt, OAuthSettings, BackendSettings, EdgeSettings, RunSettings}
)
