"""From constructor to close: whatever a provider takes, it gives back, as often as it is started."""

from __future__ import annotations

from collections.abc import Sequence

from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.render import Dialect
from toolplug.errors import ConfigError, ProviderError
from toolplug.providers.entry import ProviderEntry
from toolplug.providers.hooks import hook_problems
from toolplug.providers.lifecycle import CLOSE_S, START_S, awaited, called
from toolplug.providers.provider import FunctionProvider
from toolplug.providers.sites import TemporaryRoot, stored_sites
from toolplug.stores.memory import MemoryStore
from toolplug.testing.broken_rule import BrokenRule
from toolplug.testing.leftovers import held, left_since
from toolplug.testing.provider_rules.listing import listing_rules
from toolplug.testing.provider_rules.subject import Subject, started

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
        BrokenRule("hooks", f"class {type(provider).__qualname__}", problem, "mend the signature")
        for problem in hook_problems(type(provider))
    ]
    if hooks:
        return hooks
    broken = await _closed(entry, unstarted, "before start()")
    store, root = MemoryStore(), TemporaryRoot()
    async with store, root:
        site = stored_sites(lambda: store, root)(entry)
        listed: Sequence[ToolDefinition] = ()
        try:
            await awaited(entry, "start()", lambda: provider.start(site), START_S)
            listed = called(entry, "tools()", lambda: tuple(provider.tools()))
        except ProviderError as error:
            broken.append(BrokenRule("starts", "start() and tools()", str(error), "mend what it says"))
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
            return [BrokenRule("starts", "in a registry", str(error), "mend what it says")]
    broken: list[BrokenRule] = []
    if len(set(listings)) > 1:
        fix = "list the same tools, in the same words and order: model prompt caches depend on it"
        broken.append(BrokenRule("stable", "tools()", "lists something else at another start", fix))
    left = await left_since(before, subject.within_s)
    if left:
        fix = "end in aclose() what start() and the tools began"
        broken.append(BrokenRule("leaves-nothing", "aclose()", f"left behind: {', '.join(sorted(set(left)))}", fix))
    return broken
