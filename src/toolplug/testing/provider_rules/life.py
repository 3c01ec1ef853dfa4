"""Rules for the lifetime of a provider, which leaves nothing behind, and for the tools that it lists."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from toolplug.catalog.call import ToolStatus
from toolplug.catalog.definition import ToolDefinition, check_provider_tool_name
from toolplug.catalog.render import Dialect
from toolplug.cli.serving.watchdog import Watchdog
from toolplug.errors import ConfigError, InvalidDefinition, ProviderError
from toolplug.providers.entry import ProviderEntry
from toolplug.providers.lifecycle import CLOSE_S, START_S, await_step, run_step
from toolplug.providers.plugins.shapes import hooks_of, plugin_of
from toolplug.providers.provider import FunctionProvider
from toolplug.providers.site import TemporaryRoot, stored_sites
from toolplug.stores.memory import MemoryStore
from toolplug.testing.broken_rule import BrokenRule
from toolplug.testing.provider_rules.calls import listed_offers, requests
from toolplug.testing.provider_rules.subject import Started, Subject, start_subject

_POLL_S = 0.01
_OWN_THREADS = ("asyncio_", "toolplug-")
"""Prefixes of threads that are not counted: the pool of `to_thread`, and synchronous tools, which end by themselves."""


@dataclass(frozen=True, slots=True)
class Held:
    """The tasks of the running loop, the threads of this process and its child processes, at one moment."""

    tasks: frozenset[asyncio.Task[object]]
    threads: frozenset[threading.Thread]
    children: frozenset[int]

    def since(self, before: Held) -> tuple[str, ...]:
        """Return the names of everything that did not exist before."""
        return (
            *(f"task {task.get_name()}" for task in self.tasks - before.tasks),
            *(f"thread {thread.name}" for thread in self.threads - before.threads),
            *(f"process {child}" for child in self.children - before.children),
        )


def snapshot() -> Held:
    """Return everything that exists now."""
    threads = (thread for thread in threading.enumerate() if not thread.name.startswith(_OWN_THREADS))
    return Held(frozenset(asyncio.all_tasks()), frozenset(threads), frozenset(children()))


async def left_since(before: Held, within_s: float) -> tuple[str, ...]:
    """Wait up to `within_s` seconds for everything newer than `before` to end; return the names of the rest."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while left := snapshot().since(before):
        if loop.time() >= until:
            return left
        await asyncio.sleep(_POLL_S)
    return ()


def children() -> set[int]:
    """Return the process ids of our children, zombies included; empty on systems without `/proc`."""
    found: set[int] = set()
    for path in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        try:
            found.update(int(child) for child in path.read_text().split())
        except OSError:
            continue  # the thread ended between the listing and the reading
    return found


_STUB = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NO_STUBS = frozenset({"function", "custom"})


def listing_rules(definitions: Sequence[ToolDefinition]) -> list[BrokenRule]:
    """Return every rule that the definitions break."""
    broken = [
        BrokenRule("names", f"tool {name!r}", "is listed twice", "give one of them another name")
        for name, count in Counter(item.name for item in definitions).items()
        if count > 1
    ]
    return broken + [rule for item in definitions for rule in _definition_rules(item, f"tool {item.name!r}")]


def _definition_rules(item: ToolDefinition, where: str) -> Iterator[BrokenRule]:
    try:
        check_provider_tool_name(item.name)
    except InvalidDefinition as error:
        yield BrokenRule("names", where, str(error), "rename it")
    if not item.description.strip():
        fix = "write a docstring: it is all that a model knows of the tool"
        yield BrokenRule("descriptions", where, "has no description", fix)
    options = item.hosted.options if item.hosted else None
    schemas = {"parameters": item.parameters, "output_schema": item.output_schema, "stub_options": options}
    for what, schema in schemas.items():
        try:
            if schema is not None:
                schema.check()
        except InvalidDefinition as error:
            fix = "write JSON Schema of draft 2020-12, with patterns that need no backtracking"
            yield BrokenRule("schemas", f"{what} of {where}", str(error), fix)
    if item.parameters.value.get("type") != "object":
        fix = 'write {"type": "object", "properties": …}'
        yield BrokenRule("schemas", f"parameters of {where}", "are not those of an object", fix)
    for stub in item.hosted.stubs if item.hosted else ():
        if stub in _NO_STUBS or not _STUB.fullmatch(stub):
            fix = "use lower-case letters, digits and _, as in 'web_lookup'"
            yield BrokenRule("stubs", where, f"{stub!r} is no type of a built-in stub", fix)


class Blocks:
    """Which tools block the event loop, and where. A busy machine may stop a tool at any line, but not each time."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}

    @asynccontextmanager
    async def watching(self, run: Started, tool: str) -> AsyncGenerator[None]:
        """Watch the loop while the tool's example runs."""
        module = type(run.generation.provider).__module__
        owners, places = {module.partition(".")[0]: run.subject.key}, list[str]()
        async with Watchdog(lambda: owners, names_host=False, on_block=places.append):
            yield
        self._found.setdefault(tool, []).extend(places[:1])

    def rules(self, starts: int) -> list[BrokenRule]:
        """Return a broken rule for each tool that has blocked the loop in every one of so many runs."""
        fix = "await instead, or write a plain `def`, which runs in a thread"
        return [
            BrokenRule("blocks-the-loop", f"tool {tool!r}", f"holds up the event loop: {places[0]}", fix)
            for tool, places in self._found.items()
            if len(places) >= starts
        ]


_STARTS = 2
_DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "anthropic", "mcp")


async def bare_rules(subject: Subject) -> list[BrokenRule]:
    """Check instances without a registry: hooks, settings, start, tools, and close with and without a start."""
    entry = subject.entry()
    try:
        # Two instances: a constructor that registers metrics fails at the second one.
        unstarted = run_step(entry, "its constructor", subject.make)
        provider = run_step(entry, "its constructor", subject.make)
    except ProviderError as error:
        fix = "let the constructor only keep values; give metrics registry=None, so that two instances have their own"
        return [BrokenRule("starts", "constructor", str(error), fix)]
    hooks = [
        BrokenRule("hooks", f"class {type(provider).__qualname__}", problem, "fix the signature")
        for problem in hooks_of(plugin_of(provider)).problems
    ]
    if hooks:
        return hooks
    try:
        _ = provider.config  # raises if its `Config` has required fields, and none was given
    except InvalidDefinition as error:
        fix = "give them in the test, as its entry has them: check_provider(…, settings={…})"
        return [BrokenRule("settings", f"Config of {type(provider).__qualname__}", str(error), fix)]
    broken = await _check_close(entry, unstarted, "before start()")
    store, root = MemoryStore(), TemporaryRoot()
    async with store, root:
        site = stored_sites(lambda: store, root)(entry.key)
        listed: Sequence[ToolDefinition] = ()
        try:
            await await_step(entry, "start()", lambda: provider.start(site), START_S, while_working=True)
            listed = run_step(entry, "tools()", lambda: tuple(provider.tools()))
        except ProviderError as error:
            broken.append(BrokenRule("starts", "start() and tools()", str(error), "fix the cause"))
        else:
            broken += await _check_close(entry, provider, "after start()")
    return [*broken, *listing_rules(listed)]


async def _check_close(entry: ProviderEntry, provider: FunctionProvider, when: str) -> list[BrokenRule]:
    try:
        await await_step(entry, "aclose()", provider.aclose, CLOSE_S)
    except ProviderError as error:
        fix = "a host calls it once, also where start() failed at its first line; end within 5 s and raise nothing"
        return [BrokenRule("closes", f"aclose() {when}", str(error), fix)]
    return []


async def life_rules(subject: Subject) -> list[BrokenRule]:
    """Start and close two instances in turn: they must list the same and leave nothing behind."""
    listings: list[tuple[object, ...]] = []
    offers: list[object] = []
    before = snapshot()
    blocks = Blocks()
    for _ in range(_STARTS):
        try:
            async with start_subject(subject) as run:
                for name, arguments in run.examples():
                    async with blocks.watching(run, name):
                        result = await run.call(name, arguments)
                    if result.status is ToolStatus.TIMEOUT:
                        fix = "let the tool end; its own timeout= may be longer"
                        return [BrokenRule("calls", f"example of tool {name!r}", result.output, fix)]
                for request in requests(run):
                    await request.send(run)
                await run.quiet()
                offers.append(listed_offers(run))
                listings.append(tuple(run.registry.catalog.render(dialect) for dialect in _DIALECTS))
        except ConfigError as error:
            return [BrokenRule("starts", "in a registry", str(error), "fix the cause")]
    broken = blocks.rules(_STARTS)
    if offers[0] != offers[1]:
        fix = "list the same prompts and resources, in the same words and order"
        broken.append(BrokenRule("stable", "prompts() and resources()", "list something else at another start", fix))
    if len(set(listings)) > 1:
        fix = "list the same tools, in the same words and order: model prompt caches depend on it"
        broken.append(BrokenRule("stable", "tools()", "lists something else at another start", fix))
    left = await left_since(before, subject.within_s)
    if left:
        fix = "end in aclose() what start() and the tools began"
        broken.append(BrokenRule("leaves-nothing", "aclose()", f"left behind: {', '.join(sorted(set(left)))}", fix))
    return broken
