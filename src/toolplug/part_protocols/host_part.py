"""Parts of a host: what adds a feature with a section in the file, routes, commands and state of its own.

The host, its HTTP application and the command line know their parts by this protocol only. Those of toolplug itself are
in `toolplug.parts`; `toolplug.host.file.part_sections` names their modules. Those of plugins are what their hook
`host_part` returns.

A part is described without being loaded: its module imports its settings, and `open`, `routes` and `commands` import
the rest when they are called. What the file does not name is not imported.

Sessions, as the host sees them: at the code of one, a caller has further tools, which an application lends. One part
has them, as `RunningPart.sessions`; without it a host has `NO_SESSIONS`. Codes and tokens are the part's, apart from
the form of a code (`toolplug.catalog.call.check_code`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pluggy import PluginManager
from pydantic import BaseModel

from toolplug import library_types
from toolplug.catalog.call import CallContext, Principal, ToolCall, check_code
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.plan import Tool
from toolplug.errors import SessionNotFound
from toolplug.execution.live import LiveCatalog
from toolplug.execution.user_auth import HostCredentials
from toolplug.providers.entry import ProviderEntry
from toolplug.providers.site import Sealing
from toolplug.stores.store import Store

AWAY = "the application that lends it is not connected (plugin_gone)"
"""Why a call of a tool is refused whose application has gone."""


class HostSession(Protocol):
    """A live session."""

    @property
    def code(self) -> str:
        """The code, which is an address and no credential."""
        ...

    @property
    def tenant(self) -> str:
        """The tenant whose callers may use it."""
        ...

    @property
    def executor(self) -> LiveCatalog:
        """The session's own tools, which come after the host's: the same object while somebody uses it."""
        ...


class SessionWithToken(Protocol):
    """A new session, with the token of its application, which is not shown again."""

    @property
    def session(self) -> HostSession:
        """The session."""
        ...

    @property
    def token(self) -> str:
        """The token with which its application registers tools."""
        ...


class HostSessions(Protocol):
    """The sessions of one host. `AccessError` has one class for each reason why there is none for a caller.

    What is written here is how a host without sessions answers: every code is unknown, and no credential is a token.
    """

    @property
    def token_prefixes(self) -> tuple[str, ...]:
        """What the tokens of applications begin with; no credential of a caller does."""
        return ()

    async def create(
        self, principal: Principal, *, plugin_type: str = "", ttl_s: float | None = None, request_id: str = ""
    ) -> SessionWithToken:
        """Create a session of the principal's tenant. Raises `ApiError` and `StoreError`."""
        raise LookupError("this host has no sessions")

    def known_session(self, code: str, tenant: str) -> HostSession:
        """Return a live session of this tenant that this process has, without I/O. Raises `AccessError`."""
        check_code(code)
        raise SessionNotFound(code)

    async def find(self, code: str, tenant: str) -> HostSession:
        """Return a live session of this tenant, from then on known here. Raises `AccessError` and `StoreError`."""
        return self.known_session(code, tenant)

    async def bring(self, code: str) -> HostSession:
        """Return the live session of any tenant. Raises like `find`."""
        return self.known_session(code, "")

    def code_of_token(self, token: str) -> str | None:
        """Return the code of the session that a token of an application is for; None for a malformed token."""
        return None

    async def with_token(self, code: str, token: str) -> HostSession | None:
        """Return the live session of this code if this is its token, else None. Raises like `find`."""
        return self.known_session(code, "")


class NoSessions(HostSessions):
    """The sessions of a host without any."""


NO_SESSIONS: HostSessions = NoSessions()


HostRoutes = Iterable[Any]
"""Routes that `toolplug.http.routing.route` has made."""

S = TypeVar("S", bound=BaseModel | None)
S_contra = TypeVar("S_contra", bound=BaseModel | None, contravariant=True)


class HostTools(Protocol):
    """The tools of the host, for a part that adds some or calls them."""

    def owner_of(self, tenant: str, name: str) -> str | None:
        """Return the owner of a name in the tenant's catalogs, as text for messages; None for a free name."""
        ...

    def toolset(self, tenant: str, toolset: str) -> library_types.ToolExecutor:
        """Return one toolset under its prefix as a tenant sees it."""
        ...

    def executor_for(self, principal: Principal, agent: str | None, session: str | None) -> library_types.ToolExecutor:
        """Return the tools of a principal, an agent of its or None, in a session (code) or none.

        Raises `AccessError`.
        """
        ...


class PartServices(NamedTuple):
    """What a part gets of its host, for as long as it runs.

    * `store`: the records of the host; a part's own keys begin with its name and a slash
    * `processes`: those that share the store, this one among them
    * `serving`: False for a command that inspects the host next to the process that serves
    * `end_conversation`: closes the toolsets that are open for the key of a conversation
    * `calls`: what every call of a tool needs
    * `tools`: the host's own tools
    * `metrics`: what `/metrics` has of the part, for collectors whose names begin with `namespace`
    * `quotas`, `origin`: the quotas, and the place of a path of the file as `file:line`, of the present configuration
    * `session_begun`, `session_over`: called with the creator of a new session, and with the code of one that has ended
    * `plugins`: the plugin manager of the host, with each running provider under its key
    * `configuration`: the present one
    * `sealing`: returns what seals for a purpose with the key of the host
    * `tools_changed`: has the host ask `tools_for` again, for every caller that it is listed to
    * `offering_changed`: has a function called when prompts or resources of a source may have changed, and returns
      what ends that

    ```python
    from toolplug import PartServices, RunningPart

    class Visits(RunningPart[None]):
        "Counts how often the host was started."

        @classmethod
        async def open(cls, services: PartServices, settings: None) -> "Visits":
            record = await services.store.read("visits/count")
            count = 1 if record is None else int(record.value) + 1
            await services.store.commit("visits/count", b"%d" % count)
            return cls()

        def configure(self, settings: None) -> None:
            pass

        async def aclose(self) -> None:
            pass
    ```
    """

    store: Store
    processes: library_types.Processes
    serving: bool
    end_conversation: Callable[[Hashable], object]
    calls: library_types.CallServices
    tools: HostTools
    metrics: library_types.CollectorRegistry
    namespace: str
    quotas: Callable[[], library_types.Quotas]
    origin: Callable[..., str]
    session_begun: Callable[[Principal], object]
    session_over: Callable[[str], object]
    plugins: PluginManager
    configuration: Callable[[], library_types.Configuration]
    sealing: Sealing
    tools_changed: Callable[[], object] = lambda: None
    offering_changed: Callable[[Callable[[], None]], Callable[[], object]] = lambda _: lambda: None


class PartGate(NamedTuple):
    """What a part decides about a call, for `explain`: what is asked, and `refusal`, None if the call passes.

    `origin` is the configuration line or API call that decided, `shown` the text of a gate that passes.
    """

    gate: str
    refusal: str | None
    origin: str
    shown: str


class RunningPart(Protocol[S_contra]):
    """A part of an entered host. A class that inherits from it needs `configure` and `aclose` only.

    That of a plugin is open while the file has its section, and closed when a reload removes it. With changed code it
    is opened anew before the older one is closed, so that a reload which it refuses changes nothing. `sessions`,
    `approvals` and `credentials` are those of the host, of the one part that has them.

    ```python
    import asyncio

    from toolplug import CallContext, RunningPart, ToolCall, ToolDefinition

    class Clock(RunningPart[None]):
        def configure(self, settings: None) -> None:
            pass

        async def aclose(self) -> None:
            pass

        def tools_for(self, caller):
            return [ToolDefinition(name="shift", description="Say who is on shift.")]

        async def execute(self, call, context):
            return f"{context.principal.subject} is"

    assert asyncio.run(Clock().execute(ToolCall("1", "shift"), CallContext())) == "anonymous is"
    ```
    """

    sessions: library_types.HostSessions | None = None
    approvals: library_types.HostApprovals | None = None
    credentials: HostCredentials | None = None

    def configure(self, settings: S_contra | None) -> None:
        """Apply its section as it was read again, None if the file has none; raises nothing."""
        ...

    async def aclose(self) -> None:
        """End it, before what it uses is closed."""
        ...

    def begin(self) -> None:
        """Begin what calls tools: every part that the file has is open now."""

    async def ready(self) -> str:
        """Return why it cannot do its work now, for `/readyz` and the log; empty if it can."""
        return ""

    def session_over(self, code: str) -> None:
        """Forget a session that has ended, the one of this code."""

    def explain(self, name: str, tool: Tool | None, session: library_types.HostSession | None) -> Iterable[PartGate]:
        """Return what it decides about a call of this tool; None: about a name that the caller's catalog lacks."""
        return ()

    def stop(self) -> None:
        """End its event streams: the host is about to stop, and waits for running calls."""

    async def finish(self) -> None:
        """Keep the results of its calls in the background: they have been drained, and the host closes next."""

    def tools_for(self, caller: Principal) -> Iterable[ToolDefinition]:
        """Return the tools that it lists to this caller, after those of providers; agents are not listed any.

        Asked when the caller's catalog is first read, and after `PartServices.tools_changed`. It does no I/O.
        """
        return ()

    async def execute(self, call: ToolCall, context: CallContext) -> object:
        """Run one call of a tool that it lists, with arguments that are valid by its schema; return its result."""
        raise LookupError(call.name)  # nobody calls a part that lists no tools


class SectionFacts(NamedTuple):
    """What the section of a part means to the host.

    * `toolsets`: the ids of toolsets that it names, by its keys; `check` reports those that do not exist
    * `policies`: those of the tools that the part adds
    * `results_ttl_s`: how long results over their limit are kept, None to leave that to others
    """

    toolsets: Mapping[str, str] = MappingProxyType({})
    policies: tuple[library_types.Policy, ...] = ()
    results_ttl_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostPart(Generic[S]):
    """One feature of a host, before any host runs.

    * `name`: the key of its section, and the part in messages
    * `settings`: the model of its section, without which the feature is off. None: it has none, and is always on
    * `always`: it is on without its section, too, whose keys all have a default
    * `facts`: of toolplug's own parts, what its section means to the host
    * `open`: starts it once the file has its section. Raises `ConfigError` and `StoreError`.
    * `checks`: returns what else is wrong with its section, a text each. Asked when the file is read, before a start
    * `routes`: returns its HTTP routes (`toolplug.http.routing.HostRoute`), which need no running host
    * `paths`: the first two segments of the paths of its routes, such as `/v1/responses`
    * `shared`: those of them that are meant for web pages of allowed origins, with everything below them
    * `address`: the path that `toolplug serve` shows for it when the file has its section
    * `scopes`: those that its routes need besides the host's own; the keys of the file may have them
    * `commands`: its commands, in the order of the help, with the module that has each as its Typer application `app`
    * `servers`: returns the servers whose tools toolsets can have (`toolplug.host.file.tool_servers.ServerKind`)
    * `stdio`: the module whose `serve_stdio` answers one client on standard input and output, for `serve --stdio`
    * `entry`: of a plugin's part, which the host sets: the entry of its plugin

    ```python
    from pydantic import BaseModel

    from toolplug import FunctionProvider, HostPart, PartServices, RunningPart

    class Notices(BaseModel):  # the section `notices` of the file
        text: str = "Closed on Sunday."

    class RunningNotices(RunningPart[Notices]):
        def __init__(self, settings: Notices) -> None:
            self.settings = settings

        def configure(self, settings: Notices | None) -> None:
            self.settings = settings or Notices()

        async def aclose(self) -> None:
            pass

    async def open_notices(services: PartServices, settings: Notices) -> RunningNotices:
        return RunningNotices(settings)

    class Plugin(FunctionProvider):
        @staticmethod
        def host_part() -> HostPart[Notices]:
            return HostPart(name="notices", settings=Notices, open=open_notices)
    ```
    """

    name: str
    settings: type[S] | None = None
    always: bool = False
    facts: Callable[[S], SectionFacts] = lambda _: SectionFacts()
    open: Callable[[PartServices, S], Awaitable[RunningPart[S]]]
    checks: Callable[[S], Iterable[str]] = lambda _: ()
    routes: Callable[[], HostRoutes] = tuple
    paths: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    address: str = ""
    scopes: tuple[str, ...] = ()
    commands: Mapping[str, str] = field(default_factory=dict[str, str])
    # `Any`: the modules of these types are above this one.
    servers: Callable[[], Any] | None = None
    stdio: str = ""
    entry: ProviderEntry | None = None

    def settings_in(self, sections: object) -> S | None:
        """Return its section of the settings of a host; None if it is absent, or if it has none."""
        found: S | None = None if self.settings is None else getattr(sections, self.name)
        return found
