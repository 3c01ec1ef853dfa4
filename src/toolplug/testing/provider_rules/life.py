"""Rules for a provider's lifetime and listing: what it takes it gives back, and what it lists is valid."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolplug.catalog.definition import ToolDefinition, check_provider_tool_name
from toolplug.catalog.render import Dialect
from toolplug.catalog.schema import Schema
from toolplug.errors import ConfigError, InvalidDefinition, ProviderError
from toolplug.providers.entry import ProviderEntry
from toolplug.providers.hooks import hook_problems
from toolplug.providers.lifecycle import CLOSE_S, START_S, awaited, called
from toolplug.providers.provider import FunctionProvider, check_config
from toolplug.providers.registry import TemporaryRoot, stored_sites
from toolplug.stores.memory import MemoryStore
from toolplug.testing.broken_rule import BrokenRule
from toolplug.testing.provider_rules.subject import Subject, started

_POLL_S = 0.01
_OWN_THREADS = ("asyncio_", "toolplug-")
"""The loop's pool for `to_thread`, and the threads of synchronous tools, which end on their own."""


@dataclass(frozen=True, slots=True)
class Held:
    """The tasks of the running loop, the threads of this process and its children, at one moment."""

    tasks: frozenset[asyncio.Task[object]]
    threads: frozenset[threading.Thread]
    children: frozenset[int]

    def since(self, before: Held) -> tuple[str, ...]:
        """What was not there before, for people."""
        return (
            *(f"task {task.get_name()}" for task in self.tasks - before.tasks),
            *(f"thread {thread.name}" for thread in self.threads - before.threads),
            *(f"process {child}" for child in self.children - before.children),
        )


def held() -> Held:
    """What is there now."""
    threads = (thread for thread in threading.enumerate() if not thread.name.startswith(_OWN_THREADS))
    return Held(frozenset(asyncio.all_tasks()), frozenset(threads), frozenset(children()))


async def left_since(before: Held, within_s: float) -> tuple[str, ...]:
    """What came since then and is still there after so many seconds; empty as soon as everything is gone."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while left := held().since(before):
        if loop.time() >= until:
            return left
        await asyncio.sleep(_POLL_S)
    return ()


def children() -> set[int]:
    """The process ids of our children, zombies included; empty where `/proc` does not tell."""
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
    """Every rule that one of the definitions breaks."""
    names = [item.name for item in definitions]
    broken = [
        BrokenRule("names", f"tool {name!r}", "is listed twice", "give one of them another name")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    for item in definitions:
        broken += [*_name(item), *_description(item), *_schemas(item), *_stubs(item)]
    return broken


def _name(item: ToolDefinition) -> Iterator[BrokenRule]:
    try:
        check_provider_tool_name(item.name)
    except InvalidDefinition as error:
        yield BrokenRule("names", f"tool {item.name!r}", str(error), "rename it")


def _description(item: ToolDefinition) -> Iterator[BrokenRule]:
    if not item.description.strip():
        fix = "write a docstring: it is all that a model knows of the tool"
        yield BrokenRule("descriptions", f"tool {item.name!r}", "has no description", fix)


def _schemas(item: ToolDefinition) -> Iterator[BrokenRule]:
    options = item.hosted.options if item.hosted else None
    named = {"parameters": item.parameters, "output_schema": item.output_schema, "stub_options": options}
    for what, schema in named.items():
        if schema is not None:
            yield from _compiles(item, what, schema)
    if item.parameters.value.get("type") != "object":
        fix = 'write {"type": "object", "properties": …}'
        yield BrokenRule("schemas", f"parameters of tool {item.name!r}", "are not those of an object", fix)


def _compiles(item: ToolDefinition, what: str, schema: Schema) -> Iterator[BrokenRule]:
    try:
        schema.check()
    except InvalidDefinition as error:
        fix = "write JSON Schema of draft 2020-12, with patterns that need no backtracking"
        yield BrokenRule("schemas", f"{what} of tool {item.name!r}", str(error), fix)


def _stubs(item: ToolDefinition) -> Iterator[BrokenRule]:
    for stub in item.hosted.stubs if item.hosted else ():
        if stub in _NO_STUBS or not _STUB.fullmatch(stub):
            fix = "use lower-case letters, digits and _, as in 'web_lookup'"
            yield BrokenRule("stubs", f"tool {item.name!r}", f"{stub!r} is no type of a built-in stub", fix)


_STARTS = 2
_DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "anthropic", "mcp")


async def bare_rules(subject: Subject) -> list[BrokenRule]:
    """The rules of an instance outside of any registry: hooks, start, listing, close without and after a start."""
    entry = subject.entry()
    try:
        unstarted = called(entry, "its constructor", subject.make)
        provider = called(entry, "its constructor", subject.make)
    except ProviderError as error:
        fix = "let the constructor only keep values; give metrics registry=None, so that two instances have their own"
        return [BrokenRule("starts", "constructor", str(error), fix)]
    hooks = [
        BrokenRule("hooks", f"class {type(provider).__qualname__}", problem, "fix the signature")
        for problem in hook_problems(type(provider))
    ]
    if hooks:
        return hooks
    try:
        check_config(provider)
    except InvalidDefinition as error:
        fix = "give them in the test, as its entry has them: check_provider(…, settings={…})"
        return [BrokenRule("settings", f"Config of {type(provider).__qualname__}", str(error), fix)]
    broken = await _closed(entry, unstarted, "before start()")
    store, root = MemoryStore(), TemporaryRoot()
    async with store, root:
        site = stored_sites(lambda: store, root)(entry)
        listed: Sequence[ToolDefinition] = ()
        try:
            await awaited(entry, "start()", lambda: provider.start(site), START_S)
            listed = called(entry, "tools()", lambda: tuple(provider.tools()))
        except ProviderError as error:
            broken.append(BrokenRule("starts", "start() and tools()", str(error), "fix the cause"))
        else:
            broken += await _closed(entry, provider, "after start()")
    return [*broken, *listing_rules(listed)]


async def _closed(entry: ProviderEntry, provider: FunctionProvider, when: str) -> list[BrokenRule]:
    try:
        await awaited(entry, "aclose()", provider.aclose, CLOSE_S)
    except ProviderError as error:
        fix = "a host calls it once, also where start() failed at its first line; end within 5 s and raise nothing"
        return [BrokenRule("closes", f"aclose() {when}", str(error), fix)]
    return []


async def life_rules(subject: Subject) -> list[BrokenRule]:
    """The rules of several fresh instances, one after another: they list alike and leave nothing behind."""
    listings: list[tuple[bytes, ...]] = []
    before = held()
    for _ in range(_STARTS):
        try:
            async with started(subject) as run:
                for name, arguments in run.examples():
                    await run.call(name, arguments)
                await run.quiet()
                listings.append(tuple(run.registry.catalog.render(dialect) for dialect in _DIALECTS))
        except ConfigError as error:
            return [BrokenRule("starts", "in a registry", str(error), "fix the cause")]
    broken: list[BrokenRule] = []
    if len(set(listings)) > 1:
        fix = "list the same tools, in the same words and order: model prompt caches depend on it"
        broken.append(BrokenRule("stable", "tools()", "lists something else at another start", fix))
    left = await left_since(before, subject.within_s)
    if left:
        fix = "end in aclose() what start() and the tools began"
        broken.append(BrokenRule("leaves-nothing", "aclose()", f"left behind: {', '.join(sorted(set(left)))}", fix))
    return broken
