"""A provider that runs in its own process: its start, its calls, routes, hooks and metrics, asked for by the host."""

from __future__ import annotations

import asyncio
import errno
import inspect
import logging
import mmap
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from math import isfinite
from threading import current_thread, main_thread
from time import perf_counter
from typing import Any, cast

from toolplug.apart import values
from toolplug.apart.frames import BEGUN, CALL, CANCEL, GRANT, NOTE, PIECE_OF, REQUEST, RESULT, Answer, Frame, Peer
from toolplug.apart.limits import CLOSE_PROCESS_S, MAX_LINE, PUSH_IDLE_S, PUSH_S
from toolplug.apart.metrics import cut_families, encode_families
from toolplug.apart.own_site import current_work, host_site, host_tools, refuse
from toolplug.apart.values import Head
from toolplug.catalog.call import CallContext, ToolCall, ToolResult, UserAnswer, enter_frame, quick_call
from toolplug.catalog.exact_json import load_json
from toolplug.catalog.plan import CallRunner, NeedsApproval, Plan, Refusal, WouldRefuse
from toolplug.execution.attempts import StartedCall, begin
from toolplug.execution.plans import CallServices
from toolplug.execution.resolved_limits import DEFAULT_BLOCKING, Limits
from toolplug.execution.results import ASCII_SAFE, cut, error_result, limited_result, success_result
from toolplug.providers.entry import DesiredProvider, ProviderEntry, ProviderRecord, ProviderState
from toolplug.providers.generation import Generation, open_generation
from toolplug.providers.plugins.implementations import HOOKS, asking
from toolplug.providers.plugins.shapes import hooks_of, plugin_of
from toolplug.providers.provider import FunctionProvider
from toolplug.runtime.threads import in_own_thread

_ROUTES = "toolplug.apart.route_requests"
NOT_APART = frozenset(
    (
        "approval_decided",
        "approval_waiting",
        "call_tracers",
        "check_toolset_address",
        "commands",
        "console_pages",
        "describe_tools",
        "grant_revoked",
        "host_part",
        "mcp_extensions",
        "rank_tools",
        "stores",
        "toolset_sources",
    )
)
"""Hooks that need the host's process: what they return is called there, or before a provider is started."""
NO_NETWORK = (
    "a call found no network: run.network grants hosts, and they are reached through the proxy that HTTPS_PROXY names"
)
"""Said where a client ignores the variables of the proxy, or nothing is granted."""
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH)
_MAX_CAUSES = 10
_LOG = logging.getLogger("toolplug.apart")
_NOTICE = 256
"""Bytes of the notice that a result was cut, at most."""
_NO_LIMIT_S = 10_000_000.0
"""Of a call in this process: its deadline is the host's, which asks it to end."""


def refuse_hooks(entry: ProviderEntry, plugin: object, names: set[str] | None = None) -> None:
    """Raise `ProviderError` for hooks that cannot cross a process, and for wrappers around those of others."""
    hooks = hooks_of(plugin_of(cast("FunctionProvider", plugin)))
    found = sorted(NOT_APART.intersection(hooks.names if names is None else names))
    found += [f"the wrapper {each.attribute}" for each in hooks.implementations if each.options["wrapper"]]
    found += [f"the hook {each.implementation.hook} of another plugin" for each in hooks.foreign]
    if found:
        raise refuse(str(entry.owner), ", ".join(found))


class RunningProvider(Peer):
    """This process's end of the socket. `ended` is set when the host is gone or has closed the provider.

    The number of each call that begins is written to `page`, which the host reads when the process has ended.
    """

    def __init__(
        self,
        entry: ProviderEntry,
        build: Callable[[], FunctionProvider],
        max_frame: int,
        page: mmap.mmap,
        *,
        confined: bool = False,
    ) -> None:
        super().__init__(max_frame)
        self._page = page
        self._confined = confined
        self.ended: asyncio.Event = asyncio.Event()
        self.closed: bool = False
        self._entry = entry
        self._build = build
        self._max_frame = max_frame
        self._generation: Generation | None = None
        self._services = CallServices()
        self._plans: dict[tuple[str, str], Plan] = {}
        self._threads: CallRunner | None = None
        self._collects = False
        self._running: dict[int, StartedCall] = {}
        self._blocking = 0
        self._requests: dict[int, Any] = {}
        self._push_timer: asyncio.TimerHandle | None = None
        self._pushed: list[object] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def on_lost(self, reason: str) -> None:
        self.ended.set()

    def on_frame(self, frame: Frame) -> None:
        """Begin or end a call, or pass on a part of a request."""
        kind, head, body = frame
        if kind == CALL:
            self._begin(head, body)
        elif kind == CANCEL:
            started = self._running.get(head["id"])
            if started is not None:
                started.running.cancel()
            elif head["id"] in self._requests:
                self._requests[head["id"]].cancel()
        elif kind == REQUEST:
            self._serve(head)
        elif kind == PIECE_OF:
            if (request := self._requests.get(head["id"])) is not None:
                request.body.put(head, body)
        elif kind == GRANT:
            if (request := self._requests.get(head["id"])) is not None:
                request.response.grant(head["size"])
        elif kind == NOTE and self._generation is not None:
            self._generation.site.closing.set()

    async def answer(self, asked: str, head: Head, body: bytes) -> Answer:
        """Answer the host: start, close, diagnose, a hook, or the values of a completion."""
        match asked:
            case "start":
                return await self._start(head), b""
            case "close":
                await self.close()
                self.loop.call_later(0.01, self.ended.set)
                return {}, b""
            case "diagnose":
                return {"texts": list(await self._opened.provider.diagnose())}, b""
            case "hook":
                return await self._ask_hook(head), b""
            case _:
                return await self._complete(head), b""

    @property
    def _opened(self) -> Generation:
        if self._generation is None:
            raise RuntimeError("the provider is not started")
        return self._generation

    async def _start(self, given: Head) -> Head:
        """Start the provider and return what it offers. Raises `ProviderError`."""
        owner = str(self._entry.owner)
        await self._services.runner.open()
        limits = Limits(timeout=_NO_LIMIT_S, max_result_bytes=int(given["max_result_bytes"]))
        entry = replace(self._entry, limits=limits)
        site = host_site(self, owner, entry.key, given)
        wanted = DesiredProvider(entry, self._build)
        generation = self._generation = await open_generation(wanted, self._services, lambda _: site)
        for name, tool in generation.catalog.items():
            # The host compares results with the output type: its log has the place.
            self._plans["tool", name] = replace(tool.plan, output=None)
        offering = generation.offering
        for kind, entries in (
            ("prompt", offering.prompts),
            ("resource", offering.resources),
            ("resource", offering.templates),
        ):
            self._plans.update({(kind, key): each.plan for key, each in entries.items()})
        self._threads = generation.threads
        self._collects = bool(generation.collectors)
        if self._collects:
            self._tasks.add(self.loop.create_task(self._push_families()))
        hooks = [
            [each.hook, bool(each.options["tryfirst"]), bool(each.options["trylast"])]
            for each in generation.hooks.implementations
        ]
        return {
            "tools": [values.encode_definition(tool) for tool in generation.catalog.definitions()],
            "prompts": [_encode_prompt(each) for each in generation.provider.prompts()],
            "resources": [_encode_resource(each) for each in generation.provider.resources()],
            "routes": [
                [each.method, each.path, each.public, each.scope, (inspect.getdoc(each.endpoint) or "")[:1024]]
                for each in generation.routes
            ],
            "hooks": hooks,
            "sign_in": generation.sign_in,
            "accepts_key": generation.provider.accepts_idempotency_key,
            "families": await self._families(),
        }

    async def close(self) -> None:
        """Close the provider, once."""
        if self.closed:
            return
        self.closed = True
        for task in self._tasks:
            task.cancel()
        generation = self._generation
        if generation is not None:
            for request in [*self._requests.values()]:
                request.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_PROCESS_S):
                    await replace(generation, drain_s=0.0).close()

    def _begin(self, head: Head, body: bytes) -> None:
        """Take the first step of a call, and send its result if it ended there."""
        number = head["id"]
        plan = self._plans.get((head["of"], head["name"]))
        now = self.loop.time()
        context = values.decode_context(head, now)
        call = ToolCall(head["call"], head.get("uri", head["name"]), cast("Any", load_json(body)))
        if plan is None:
            error = ToolResult(output=f"{head['name']!r} is not offered")
            self._finish(number, False, error._replace(status=values.ToolStatus.UNKNOWN_TOOL))
            return
        if plan.wants_context:
            context = self._with_host(number, context, has_user="nobody" not in head)
        blocking = plan.runner is self._threads
        if blocking and self._blocking >= DEFAULT_BLOCKING:
            refusal = Refusal(f"{DEFAULT_BLOCKING} calls of its synchronous tools run", 0.1)
            self._finish(number, False, limited_result(call, refusal))
            return
        # Before it runs: a call whose process dies after this may have had its effect.
        BEGUN.pack_into(self._page, 0, number)
        token = current_work.set((number, context.principal.tenant))
        try:
            inner = call
            if plan.convert is not None:
                inner = quick_call(ToolCall, (call.id, call.name, plan.convert(cast("Any", call.arguments))))
            left_s = _NO_LIMIT_S if context.deadline is None else max(context.deadline - now, 0.0)
            outcome = begin(plan, call, inner, context, perf_counter(), left_s)
        except BaseException as error:  # noqa: BLE001  a converter is the provider's own code
            outcome = error_result(call, error, plan, context)
        finally:
            current_work.reset(token)
        if isinstance(outcome, StartedCall):
            self._blocking += blocking
            self._running[number] = outcome
            outcome.then(partial(self._on_end, number, plan, call, context, blocking))
        else:
            self._send_result(number, plan, outcome)

    def _on_end(self, number: int, plan: Plan, call: ToolCall, context: CallContext, blocking: bool) -> None:
        started = self._running.pop(number)
        self._blocking -= blocking
        error = started.running.error
        if error is not None:
            if self._confined and lacks_network(error):
                _LOG.warning("%s", NO_NETWORK)
            result = error_result(call, error, plan, context)
        else:
            result = success_result(call, started.running.value, plan, context)
        self._send_result(number, plan, result)

    def _send_result(self, number: int, plan: Plan, result: ToolResult) -> None:
        as_value = result.structured is not None and not result.is_error
        if len(result.output) * ASCII_SAFE > plan.max_result_bytes:
            whole = result.output.encode()
            if len(whole) > plan.max_result_bytes:
                # Shorter than the limit by the notice: the host would cut what is longer, and count from there.
                result = cut(result, whole, max(plan.max_result_bytes - _NOTICE, 1))
                as_value = False
        self._finish(number, as_value and _is_own_text(result), result)

    def _finish(self, number: int, as_value: bool, result: ToolResult) -> None:
        if result.parts or result.metadata or (result.structured is not None and not as_value):
            result = values.fit_result(result, self._max_frame - 4096)
        head, body = values.encode_result(result, as_value=as_value)
        head["id"] = number
        self.send(RESULT, head, body)
        if self._collects and self._push_timer is None:
            self._push_timer = self.loop.call_later(PUSH_S, self._push_now)

    def _with_host(self, number: int, context: CallContext, *, has_user: bool) -> CallContext:
        """Return the context with its ways back to the caller."""

        def report(progress: float, total: float | None = None, message: str | None = None) -> None:
            if any(isinstance(each, float) and not isfinite(each) for each in (progress, total)):
                return  # as in the host, which drops it too
            # A message of any length, or that is no text, must not end the process.
            said = None if message is None else str(message)[:MAX_LINE].encode("utf-8", "replace").decode()
            note = {"note": "progress", "id": number, "of": [progress, total, said]}
            if current_thread() is main_thread():
                self.send(NOTE, note)  # at once: a result that follows without a pause would overtake it
            else:  # a synchronous tool reports from its thread
                self.loop.call_soon_threadsafe(self.send, NOTE, note)

        tools = host_tools(self, str(self._entry.owner), number)

        def tools_of(context: CallContext) -> Any:
            return tools

        async def get(context: CallContext, refused: str) -> str:
            found, _ = await self.ask("credential", {"work": number, "refused": refused})
            return str(found["text"])

        auth = None if context.user_auth is None else context.user_auth._replace(get=get)
        context = context._replace(report=report, tools_of=tools_of, user_auth=auth)
        if has_user:

            async def ask(question: str, schema: Mapping[str, object]) -> UserAnswer:
                found, _ = await self.ask("user", {"work": number, "question": question, "schema": dict(schema)})
                return UserAnswer(found["action"], found["content"])

            context = context._replace(ask=ask)
        return context

    def _serve(self, head: Head) -> None:
        number = head["id"]
        route = self._opened.routes[int(head["route"])]
        request = self._requests[number] = import_module(_ROUTES).ServedRequest(self, number, route, head)
        request.start(partial(self._requests.pop, number, None))

    async def _complete(self, head: Head) -> Head:
        offered = self._opened.provider.prompts() if head["of"] == "prompt" else self._opened.provider.resources()
        key = "name" if head["of"] == "prompt" else "uri"
        source: Any = next(each for each in offered if getattr(each, key) == head["name"]).completions[head["argument"]]
        enter_frame(head["tenant"])
        current_work.set((head["work"], head["tenant"]))
        found = source(head["typed"])
        return {"values": [str(text) for text in (await found if inspect.isawaitable(found) else found)][:1000]}

    async def _ask_hook(self, head: Head) -> Head:
        name = head["hook"]
        generation = self._opened
        attribute = next(each.attribute for each in generation.hooks.implementations if each.hook == name)
        ask = asking(getattr(plugin_of(generation.provider), attribute), name, generation.site)
        tenant = "default"
        if name == "provider_changed":
            fields: Head = {**head["record"], "state": ProviderState(head["record"]["state"])}
            fields |= {each: tuple(fields[each]) for each in ("tools", "routes", "hooks")}
            given: dict[str, object] = {"record": ProviderRecord(**fields)}
        else:
            call = values.decode_call(head)
            context = values.decode_context(head, self.loop.time())
            tenant = context.principal.tenant
            given = {"call": call, "context": context, "tool": values.shown_definition(head.get("tool"))}
            if "result" in head:
                given["result"] = values.whole_result(head["result"], call)
            given["duration_s"] = head.get("duration_s", 0.0)
        enter_frame(tenant)
        current_work.set((head["work"], tenant) if head.get("work") is not None else None)
        value = ask(*(given[each] for each in HOOKS[name].given_arguments))
        value = await value if inspect.isawaitable(value) else value
        if isinstance(value, NeedsApproval | WouldRefuse):
            return {"approval" if isinstance(value, NeedsApproval) else "would_refuse": value.reason}
        if isinstance(value, ToolResult):
            result, text = values.encode_result(value)
            return {"result": {**result, "output": text.decode("utf-8", "replace")}}
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} returned a {type(value).__name__}")
        return {"text": value}

    async def _families(self) -> list[object]:
        """Return the families of all collectors; read in a thread, since a collector may block."""
        collectors = self._opened.collectors
        if not collectors:
            return []
        return await in_own_thread(lambda: encode_families(each for one in collectors for each in one.collect()))

    def _push_now(self) -> None:
        self._push_timer = None
        task = self.loop.create_task(self._push())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _push(self) -> None:
        families = await self._families()
        if families != self._pushed:
            self._pushed = families
            pieces = cut_families(families)
            for left, piece in zip(reversed(range(len(pieces))), pieces, strict=True):
                self.send(NOTE, {"note": "families", "families": piece, "more": left > 0})

    async def _push_families(self) -> None:
        while True:
            await asyncio.sleep(PUSH_IDLE_S)
            await self._push()


def lacks_network(error: BaseException | None) -> bool:
    """Return whether an error is that of a process without a network, also behind those of a client."""
    for _ in range(_MAX_CAUSES):
        if isinstance(error, socket.gaierror) or (isinstance(error, OSError) and error.errno in _UNREACHABLE):
            return True
        error = None if error is None else error.__cause__ or error.__context__
    return False


def _is_own_text(result: ToolResult) -> bool:
    """Return whether the output is the JSON of the value: then one of them is sent."""
    return result.output[:1] in '{["-0123456789tfn' and values.is_text_of(result.output, result.structured)


def _encode_prompt(prompt: Any) -> Head:
    return {
        "name": prompt.name,
        "title": prompt.title,
        "description": prompt.description,
        "arguments": [list(each) for each in prompt.arguments],
        "completions": _encode_completions(prompt.completions),
        "schema": None if prompt.schema is None else dict(prompt.schema),
    }


def _encode_resource(resource: Any) -> Head:
    return {
        "uri": resource.uri,
        "name": resource.name,
        "title": resource.title,
        "description": resource.description,
        "mime_type": resource.mime_type,
        "size": resource.size,
        "completions": _encode_completions(resource.completions),
    }


def _encode_completions(completions: Mapping[str, Any]) -> Head:
    """Return the fixed values of each argument, None for a function, which is asked."""
    return {name: None if callable(each) else list(each) for name, each in completions.items()}
