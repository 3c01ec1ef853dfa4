"""The host's side of a provider in a process of its own: a provider whose tools, routes and hooks run there."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial, wraps
from importlib import import_module
from typing import Any, cast

from pluggy import HookimplMarker

from toolplug.apart import values
from toolplug.apart.confinement.confinement import NOTHING
from toolplug.apart.confinement.network import Access
from toolplug.apart.connection import HostConnection
from toolplug.apart.frames import NOTE
from toolplug.apart.limits import CLOSE_PROCESS_S, FIRST_PAUSE_S, LONGEST_PAUSE_S, STEADY_S
from toolplug.apart.metrics import ProcessMetrics, decode_families
from toolplug.apart.processes import OutputLog, ProcessTarget, WorkerProcess, start_process_async
from toolplug.apart.values import Head
from toolplug.catalog.call import CallContext, Principal, ToolCall, ToolResult, ToolStatus, current_tenant
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.exact_json import load_json
from toolplug.catalog.plan import NeedsApproval, WouldRefuse
from toolplug.errors import InvalidArguments, InvalidDefinition, ProviderError, ToolError, ToolUnavailable
from toolplug.providers.entry import ProviderRecord, ProviderState
from toolplug.providers.offering.definitions import Completion, Prompt, PromptArgument, Resource
from toolplug.providers.plugins.implementations import HOOKS, PROJECT
from toolplug.providers.provider import FunctionProvider, set_outside_target
from toolplug.runtime.backoff import pause_after

_LOG = logging.getLogger("toolplug.providers")
_ROUTES = "toolplug.apart.route_requests"
_CLOSE_S = 4.8

NOTHING_OFFERED: Head = {
    "tools": [],
    "prompts": [],
    "resources": [],
    "routes": [],
    "hooks": [],
    "sign_in": None,
    "accepts_key": False,
}
"""What a process lists that has nothing."""


class ApartProvider(FunctionProvider):
    """Runs a provider in a process of its own, which is started again when it ends.

    `restarting` is why it does not run now, empty while it does.
    """

    def __init__(self, target: ProcessTarget, process: WorkerProcess | None) -> None:
        super().__init__(key=target.key)
        self.restarting: str = ""
        self._target = target
        self._process = process
        self._connection: HostConnection | None = None
        self._started: Head = NOTHING_OFFERED
        self._metrics = ProcessMetrics(target.key)
        self._site: Any = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._off: list[str] = []
        self._failures = 0
        self._began = 0.0
        self._confinement = target.confinement
        self._access = Access(self._confinement, OutputLog(target).write)
        self._opening = NOTHING

    @property
    def warning(self) -> str:
        """What an operator should know of the confinement, empty where it is as it should be."""
        refusal = self._confinement.refusal
        return "" if refusal is None else f"not confined: {refusal.reason}; {refusal.fix}"

    def describe_confinement(self) -> dict[str, object]:
        """Return how its process runs, what its package asks for and what it is granted."""
        return self._confinement.describe()

    async def start(self, site: Any) -> None:
        """Start the provider in its process. Raises `ProviderError`."""
        self._site = site
        try:
            self._opening = await self._access.open(site.state_dir, site.egress)
        except InvalidDefinition as error:
            fix = "correct run.files of its entry"
            raise ProviderError(f"{self._target.owner}: {error}", state=ProviderState.START_FAILED, fix=fix) from None
        self._offer(await self._launch())
        set_outside_target(self, self.begin_call)
        self._watch_closing(site)

    def _offer(self, started: Head) -> None:
        """Have the tools, routes and hooks that a process has listed."""
        self._started = started
        vars(self).pop("_toolplug_plugin", None)
        hooks = [each for each in started["hooks"] if not self._confinement.lacks_hook(str(each[0]))]
        self._off = [str(each[0]) for each in started["hooks"] if each not in hooks]
        if hooks:
            vars(self)["_toolplug_plugin"] = _hook_plugin(self, hooks)
        for text in (self.warning, *self._list_off()):
            if text:
                _LOG.warning("%s: %s", self._target.owner, text)
        self.accepts_idempotency_key: bool = bool(started["accepts_key"])

    def tools(self) -> Sequence[ToolDefinition]:
        return [values.own_definition(each) for each in self._started["tools"]]

    def begin_call(self, call: ToolCall, context: CallContext) -> Awaitable[object]:
        """Begin a call in the process, and return its `RunningCall`. Raises `ToolUnavailable` while it does not run."""
        return self.connection.call("tool", call.name, call, context)

    async def execute(self, call: ToolCall, context: CallContext) -> object:
        """Run a call in the process. Raises `ToolUnavailable` while it does not run."""
        return await self.begin_call(call, context)

    def routes(self) -> Sequence[Any]:
        if not self._started["routes"]:
            return ()
        forward, bound = import_module(_ROUTES).forward_route, import_module("toolplug.providers.routes").BoundRoute
        routes: list[Any] = []
        for index, (method, path, public, scope, text) in enumerate(self._started["routes"]):
            endpoint = forward(lambda: self.connection, index, f"{method} {path}", bool(public))
            endpoint.__doc__ = str(text)
            routes.append(bound(str(method), str(path), endpoint, bool(public), None if scope is None else str(scope)))
        return routes

    def collectors(self) -> Sequence[Any]:
        """Return what the process has sent of its metrics."""
        return [self._metrics]

    def prompts(self) -> Sequence[Prompt]:
        return [self._prompt(each) for each in self._started["prompts"]]

    def resources(self) -> Sequence[Resource]:
        return [self._resource(each) for each in self._started["resources"]]

    def sign_in_endpoints(self) -> values.SignInEndpoints | None:
        """Return where callers sign in, as the provider has said in its process."""
        found = self._started.get("sign_in")  # not there in environments of before it
        return None if found is None else values.decode_sign_in(found)

    async def diagnose(self) -> Sequence[str]:
        """Return why the process does not run, or what the provider says there."""
        if self.restarting:
            return [f"its process is started again: {self.restarting}"]
        texts = [*([self.warning] if self.warning else []), *self._list_off(), *self._confinement.list_ungranted()]
        names = {name for name, _, _ in self._started["hooks"]} - set(self._off)
        around = sorted(names & {"before_call", "change_result", "after_call"})
        if around:
            texts.append(f"each call of the host waits for its process: it has {', '.join(around)}")
        if "diagnose" in names:
            found, _ = await self.connection.ask("diagnose", {})
            texts += [str(text) for text in found["texts"]]
        return texts

    async def aclose(self) -> None:
        """Close the provider, and end its process."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if process is None:
            await self._access.aclose()
            return
        if connection is not None and connection.lost is None:
            connection.closing = True
            with suppress(TimeoutError, ConnectionError, ProviderError, values.ProcessCrash):
                async with asyncio.timeout(CLOSE_PROCESS_S):
                    await connection.ask("close", {})
            await process.wait(_CLOSE_S - CLOSE_PROCESS_S)
            connection.fail("closed")
        process.kill()
        await process.end_output()
        await self._access.aclose()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def down_as(self) -> tuple[ProviderState, str]:
        """The state while it does not run, and how to change that."""
        return ProviderState.RESTARTING, "its log says why its process ended"

    @property
    def connection(self) -> HostConnection:
        """The connection with the running process. Raises `ToolUnavailable`."""
        connection = self._connection
        if connection is None or connection.lost is not None:
            reason = self.restarting or "its process is not started"
            raise ToolUnavailable(reason, code="restarting", retry_after_s=self._pause())
        return connection

    async def _launch(self) -> Head:
        """Start a process and the provider in it; return what it offers. Raises `ProviderError`."""
        process, self._process = self._process, None
        if process is not None and self._confinement.watched:
            # It has described the provider with nothing granted, and before the host had a folder for it.
            process.kill()
            self._target, process = process.target, None
        if process is None or not process.alive:
            process = await start_process_async(self._target, self._opening)
        self._target = process.target
        for wrong in process.description.problems:
            # Those of a file are found when it is read; a test has no file.
            process.kill()
            text, fix = f"{self._target.owner}: {wrong.message}", wrong.hint or "correct its settings"
            raise ProviderError(text, state=ProviderState.CONFIG_INVALID, fix=fix)
        self._process = process
        connection = HostConnection(self._target, process, self._site, self._metrics, self._on_lost)
        await process.connect(connection, connection.log)
        self._connection = connection
        try:
            found = await connection.ask_start(self._start_head())
        except ConnectionError:
            await process.wait(1.0)
            raise self._target.problem(f"did not start it: {process.exit_reason}") from None
        try:
            self._metrics.update(decode_families(found.pop("families")))
            _names_in(found)
        except values.NOT_VALID:
            raise self._target.problem("lists what is not valid") from None
        self._began = connection.loop.time()
        return found

    def _start_head(self) -> Head:
        """Return what a process needs of the host to start the provider."""
        site = self._site
        return {
            "state_dir": str(self._opening.state_dir),
            "config_dir": str(site.config_dir),
            "egress": site.egress.allow,
            "max_result_bytes": self._target.max_result_bytes,
        }

    def _list_off(self) -> list[str]:
        """Return a text if hooks that see the whole host are not asked, since they are not granted."""
        return [f"its hooks {', '.join(self._off)} are off: run.hooks does not grant them"] if self._off else []

    def _pause(self) -> float:
        return pause_after(max(self._failures, 1), FIRST_PAUSE_S, LONGEST_PAUSE_S)

    def _on_lost(self, connection: HostConnection, reason: str) -> None:
        """Start the process again, unless it is closed or has not been started."""
        if self._connection is not connection or connection.closing or not self._began:
            return
        steady = connection.loop.time() - self._began >= STEADY_S
        self._failures = 1 if steady else self._failures + 1
        self.restarting = f"its process {reason}"
        _LOG.error("%s: its process %s; it is started again in %.3g s", self._target.owner, reason, self._pause())
        self._site.changed()
        self._begin(self._restart())

    async def _restart(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.wait(0.2)
            self.restarting = f"its process {process.exit_reason}" if not process.alive else self.restarting
            process.kill()
            await process.end_output()
        self._metrics.restart()
        while True:
            await asyncio.sleep(self._pause())
            began, self._began = self._began, 0.0
            try:
                started = await self._launch()
            except Exception as error:  # noqa: BLE001  whatever its process says that it has raised
                self._began = began
                self._failures += 1
                self.restarting = str(error)
                _LOG.error("%s; it is started again in %.3g s", error, self._pause())
                if self._process is not None:
                    self._process.kill()
                    self._process = None
                continue
            break
        if _names_in(started) != _names_in(self._started):
            _LOG.warning("%s lists other tools than before; a reload offers them", self._target.owner)
        self.restarting = ""
        self._site.changed()

    def _watch_closing(self, site: Any) -> None:
        async def tell() -> None:
            await site.closing.wait()
            if self._connection is not None:
                self._connection.send(NOTE, {"note": "closing"})

        self._begin(tell())

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"toolplug-apart-{self.key}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _prompt(self, given: Head) -> Prompt:
        name = str(given["name"])

        async def get(arguments: Mapping[str, object], context: CallContext) -> object:
            found = await self.connection.call("prompt", name, ToolCall("", name, arguments), context)
            return cast("Mapping[str, object]", _value_of(found))["messages"]

        return Prompt(
            name=name,
            get=get,
            title=str(given["title"]),
            description=str(given["description"]),
            arguments=tuple(PromptArgument(str(n), str(d), bool(r)) for n, d, r in given["arguments"]),
            completions=self._completions("prompt", name, given["completions"]),
            schema=given["schema"],
        )

    def _resource(self, given: Head) -> Resource:
        uri, mime_type = str(given["uri"]), str(given["mime_type"])

        async def read(variables: Mapping[str, object], context: CallContext) -> object:
            arguments = {"uri": uri, "variables": variables}
            found = await self.connection.call("resource", uri, ToolCall("", uri, arguments), context)
            content = cast("Sequence[Any]", cast("Mapping[str, object]", _value_of(found))["contents"])[0]
            if "blob" in content:
                return base64.b64decode(content["blob"])
            # The host makes the text of a value again: it would call a text JSON, or JSON a text.
            is_value = not mime_type and content["mimeType"] == "application/json"
            return load_json(content["text"].encode()) if is_value else content["text"]

        return Resource(
            uri=uri,
            read=read,
            name=str(given["name"]),
            title=str(given["title"]),
            description=str(given["description"]),
            mime_type=mime_type,
            size=given["size"],
            completions=self._completions("resource", uri, given["completions"]),
        )

    def _completions(self, of: str, name: str, given: Head) -> dict[str, Completion]:
        return {
            str(argument): partial(self._complete, of, name, str(argument))
            if texts is None
            else [str(t) for t in texts]
            for argument, texts in given.items()
        }

    async def _complete(self, of: str, name: str, argument: str, typed: str) -> Sequence[str]:
        tenant = current_tenant()
        head = {"of": of, "name": name, "argument": argument, "typed": typed, "tenant": tenant}
        found = await self.connection.ask_as("complete", head, Principal(tenant=tenant))
        return [str(text) for text in found["values"]]


def _value_of(found: object) -> object:
    """Return the value of a prompt or resource. Raises what its function has raised."""
    if not isinstance(found, ToolResult):
        return found
    match found.status:
        case ToolStatus.SUCCESS:
            return found.structured
        case ToolStatus.INVALID_ARGUMENTS:
            raise InvalidArguments(found.output.split("\n")[1:])
        case ToolStatus.UNAVAILABLE | ToolStatus.LIMITED:
            code = str(found.metadata.get("code", found.status))
            raise ToolUnavailable(found.output, code=code, retry_after_s=found.retry_after_s)
        case ToolStatus.PANIC:
            raise values.ProcessCrash(found.output)
        case _:
            raise ToolError(found.output, metadata=found.metadata, retry_after_s=found.retry_after_s)


def _names_in(listed: Head) -> list[str]:
    return [str(each["name"]) for each in listed["tools"]]


_hookimpl = HookimplMarker(PROJECT)


class _Hooks:
    """The hooks that a process implements, as those of a plugin."""

    def __init__(self, provider: ApartProvider) -> None:
        self._provider = provider

    async def before_call(self, call: ToolCall, context: CallContext, tool: ToolDefinition) -> object:
        """Ask the process whether a call may run."""
        found = await self._ask("before_call", call, context, tool)
        if "would_refuse" in found:
            return WouldRefuse(str(found["would_refuse"]))
        return NeedsApproval(str(found["approval"])) if "approval" in found else found["text"]

    async def change_result(
        self, call: ToolCall, context: CallContext, result: ToolResult, tool: ToolDefinition
    ) -> object:
        """Ask the process for what replaces a result."""
        found = await self._ask("change_result", call, context, tool, result)
        return values.whole_result(found["result"], call) if "result" in found else found["text"]

    async def after_call(
        self, call: ToolCall, context: CallContext, result: ToolResult, tool: ToolDefinition | None, duration_s: float
    ) -> None:
        """Tell the process of a call's answer."""
        await self._ask("after_call", call, context, tool, result, duration_s)

    async def provider_changed(self, record: ProviderRecord) -> None:
        """Tell the process of the status of a provider."""
        await self._provider.connection.ask("hook", {"hook": "provider_changed", "record": asdict(record)})

    async def _ask(
        self,
        hook: str,
        call: ToolCall,
        context: CallContext,
        tool: ToolDefinition | None,
        result: ToolResult | None = None,
        duration_s: float = 0.0,
    ) -> Head:
        connection = self._provider.connection
        head = {
            **values.encode_context(context, connection.loop.time()),
            **values.encode_call(call),
            "hook": hook,
            "duration_s": duration_s,
        }
        if tool is not None:
            head["tool"] = values.encode_definition(tool)
        if result is not None:
            shown, text = values.encode_result(result)
            head["result"] = {**shown, "output": text.decode("utf-8", "replace")}
        return await connection.ask_as("hook", head, context.principal)


def _hook_plugin(provider: ApartProvider, hooks: Sequence[Any]) -> object:
    """Return a plugin with the hooks of a process, under their names and in their order."""
    namespace: dict[str, object] = {"__init__": _Hooks.__init__, "_ask": getattr(_Hooks, "_ask")}  # noqa: B009
    for name, first, last in hooks:
        if name not in HOOKS:
            continue
        own = vars(_Hooks).get(name)
        function = _copy(own) if own is not None else _delegate(provider, str(name))
        namespace[name] = _hookimpl(tryfirst=bool(first), trylast=bool(last))(function)
    return type("ApartHooks", (), namespace)(provider)


def _copy(function: Any) -> Callable[..., object]:
    """Return a function of its own for each process: the mark is an attribute of the function."""
    made = type(function)(function.__code__, function.__globals__, function.__name__, closure=function.__closure__)
    made.__annotations__ = {}
    return cast("Callable[..., object]", made)


def _delegate(provider: ApartProvider, name: str) -> Callable[..., object]:
    """Return a function for a hook that the provider itself answers, with the parameters of the provider's own."""
    own: Any = getattr(provider, name)

    # pluggy reads the parameters of the innermost function, and what is `async` is read of it, too.
    @wraps(own.__func__)
    def ask(self: object, *given: object) -> object:
        return own(*given)

    return ask
