"""Inspecting a configuration: hosts that start only what they can, and what `toolplug doctor` finds and warns of."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple, cast

from pydantic import BaseModel, BeforeValidator, Field

from toolplug import library_types
from toolplug.catalog.call import Principal
from toolplug.catalog.definition import Note, ToolDefinition
from toolplug.catalog.render import describe, notes_section
from toolplug.catalog.schema_walk import BELOW_VALUE, SAME_VALUE, at_pointer, references, subschemas
from toolplug.config.document import has_reference
from toolplug.config.nearest import name_hint
from toolplug.config.yaml_tree import KeyPath, ListNode, ScalarNode
from toolplug.errors import Problem
from toolplug.host.file.configuration import Coded, Configuration, Source, read_configuration, read_parts
from toolplug.host.file.store_entry import unused_stores
from toolplug.host.host import Host
from toolplug.packages.entry_points import Installed
from toolplug.providers.authoring import selfless_tools
from toolplug.providers.entry import DesiredProvider, ProviderEntry, ProviderRecord, ProviderState, record_of
from toolplug.runtime.threads import in_own_thread
from toolplug.search.ranking import find_unfindable
from toolplug.search.tools import DEFAULT_FOUND, THRESHOLD
from toolplug.stores.store import Store
from toolplug.toolsets.saved.saved_records import SavedRecords

_MOST_SEARCHED = 2_000
"""Deferred tools for which a search is made: about a second."""
_TYPED = frozenset({"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"})


def tool_warnings(host: Host) -> Iterator[Problem]:
    """Yield a warning for each provider's tool without descriptions or types, and for each pair of similar names."""
    for key, generation in host.registry.running().items():
        for name, first in selfless_tools(type(generation.provider)):
            message = f"the first parameter of the tool {name!r} is {first!r}: it gets the provider, not an argument"
            yield _of_tool(key, name, "no_self", message, "add self as the first parameter, or @staticmethod above it")
        for definition in generation.catalog.definitions():
            yield from _find_undescribed(key, definition)
            tool = generation.catalog.find(definition.name)
            if tool is not None and tool.plan.watched:
                message = f"the policy {tool.plan.watched} of {definition.name!r} is only watched: every call passes"
                hint = "look at the audit log for `would: denied`, and remove watch: true"
                yield _of_tool(key, definition.name, "watched", message, hint)
    for one, other in _near_names(host.registry.catalog):
        message = f"the tools {one!r} and {other!r} have names that a model may confuse"
        hint = "rename one of them with @tool(name=…), or disable it"
        yield Problem(code="near_names", message=message, hint=hint)
    deferred = [each for each in host.registry.catalog.definitions() if each.deferred][:_MOST_SEARCHED]
    for definition in find_unfindable(deferred, DEFAULT_FOUND) if len(deferred) >= THRESHOLD else ():
        message = f"a search for its description does not find the deferred tool {definition.name!r}"
        hint = f"begin the description with what it does and what others do not: {DEFAULT_FOUND} others come before it"
        yield Problem(code="not_found_by_search", message=message, hint=hint)


# Not a tokenizer: each model has its own, and the costs are only to be compared with one another.
CHARACTERS_A_TOKEN = 4
"""The usual estimate for English text and JSON."""
MOST_LEVELS, MOST_PROPERTIES = 10, 5_000
"""Limits of a schema in strict mode of OpenAI's APIs (platform.openai.com/docs/guides/structured-outputs)."""


class ToolCost(NamedTuple):
    """The size of a definition, which each request to a model contains; `tokens` is an estimate."""

    name: str
    provider: str
    characters: int
    tokens: int


def tool_costs(host: Host) -> list[ToolCost]:
    """Return the size of each definition."""
    sizes = {
        item: len(item.name) + len(describe(item)) + len(item.parameters.text)
        for item in host.registry.catalog.definitions()
    }
    return [ToolCost(item.name, item.ref.source, size, -(-size // CHARACTERS_A_TOKEN)) for item, size in sizes.items()]


def _find_undescribed(key: str, definition: ToolDefinition) -> Iterator[Problem]:
    name = definition.name
    if not definition.description.strip():
        hint = "write a docstring, or @tool(description=…)"
        yield _of_tool(key, name, "no_description", f"the tool {name!r} has no description", hint)
    elif _words(definition.description) <= _words(name) | _EMPTY_WORDS:
        message = f"the description of the tool {name!r} says no more than its name: {definition.description.strip()!r}"
        yield _of_tool(key, name, "vague_description", message, "say what it returns, and when to call it")
    levels, properties = _extent(definition.parameters.value)
    if levels > MOST_LEVELS or properties > MOST_PROPERTIES:
        message = (
            f"the schema of the tool {name!r} has {levels} levels and {properties:,} properties;"
            f" strict mode takes {MOST_LEVELS} and {MOST_PROPERTIES:,}"
        )
        yield _of_tool(key, name, "too_deep", message, "take fewer and flatter parameters")
    parameters = _Parameters.model_validate(definition.parameters.value)
    untyped = [repr(item) for item, shape in parameters.properties.items() if _TYPED.isdisjoint(shape)]
    if untyped:
        message = f"parameters of the tool {name!r} have no type: {', '.join(untyped)}"
        yield _of_tool(key, name, "no_parameter_type", message, "annotate them")
    unsaid = [repr(item) for item, shape in parameters.properties.items() if not parameters.is_described(shape)]
    if unsaid:
        message = f"parameters of the tool {name!r} have no description: {', '.join(unsaid)}"
        hint = "name them under Args: in the docstring, or Annotated[…, Field(description=…)]"
        yield _of_tool(key, name, "no_parameter_description", message, hint)


def _words(text: str) -> frozenset[str]:
    """The words of a text in lower case, without plurals; `snake_case` and `camelCase` are several words."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ").lower()
    return frozenset(word.removesuffix("s") for word in re.findall(r"\w+", spaced))


# `thi` is what `_words` makes of `this`.
_EMPTY_WORDS = _words("a an and at by call do for from get i in it make of on or run the thi to tool use with")


def _extent(schema: Mapping[str, object]) -> tuple[int, int]:
    """Return the levels of objects and arrays in a schema, and its number of properties; a recursion counts once."""
    deepest, properties = 0, 0
    waiting: list[tuple[object, int, frozenset[str]]] = [(schema, 1, frozenset())]
    seen: set[tuple[int, int]] = set()
    while waiting:
        value, level, followed = waiting.pop()
        if not isinstance(value, Mapping):
            continue
        node = cast("Mapping[str, object]", value)
        # Once at each level: a definition that others share would otherwise be walked on each path to it, of which
        # there are exponentially many.
        if (id(node), level) in seen:
            continue
        seen.add((id(node), level))
        for reference in references(node):
            if isinstance(reference, str) and reference not in followed:
                waiting.append((at_pointer(schema, reference), level, followed | {reference}))
        for keyword, _, inner in subschemas(node):
            properties += keyword == "properties"
            if keyword in BELOW_VALUE:
                deepest = max(deepest, level)
                waiting.append((inner, level + 1, followed))
            elif keyword in SAME_VALUE:
                waiting.append((inner, level, followed))
    return deepest, properties


_Shape = Annotated[dict[str, object], BeforeValidator(lambda shape: {} if shape is True else shape)]


class _Parameters(BaseModel):
    """The parameters in a tool's schema; a property schema `true` counts as an empty one."""

    properties: dict[str, _Shape] = {}
    defs: Annotated[dict[str, _Shape], Field(alias="$defs")] = {}

    def is_described(self, shape: dict[str, object]) -> bool:
        """Return whether the parameter, or the model that it refers to, has a description."""
        model = self.defs.get(str(shape.get("$ref", "")).rpartition("/")[2], {})
        return bool(shape.get("description") or model.get("description"))


def _of_tool(key: str, name: str, code: str, message: str, hint: str) -> Problem:
    return Problem(code=code, message=message, path=f"providers.{key}.tools.{name}", hint=hint)


def _near_names(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs with the same words, in any order, case and plural, and pairs of which one has one character more."""
    # By words and by shortened forms: to compare each pair of ten thousand names would take fifty million comparisons.
    met: dict[object, list[str]] = {}
    for name in names:
        words = tuple(sorted(word.removesuffix("s") for word in re.split("[_-]", name.lower())))
        shorter = {(name[:index] + name[index + 1 :], "whole") for index in range(len(name))}
        near = (other for key in (words, (name, "shorter"), *shorter) for other in met.get(key, ()))
        yield from ((other, name) for other in dict.fromkeys(near))
        for key in (words, (name, "whole"), *((text, "shorter") for text, _ in shorter)):
            met.setdefault(key, []).append(name)


def configuration_warnings(configuration: Configuration) -> Iterator[Problem]:
    """Yield a warning for each secret in plain text, store without use, and command of a server that does not exist."""
    document = configuration.providers.document
    for path in (*_api_keys(configuration), ("responses", "backend", "api_key")):
        try:
            node = document.node(path)
        except KeyError:
            continue
        if isinstance(node, ScalarNode) and isinstance(node.value, str) and not has_reference(node.value):
            # An unexpanded `$NAME` is a key that everybody who knows the file can use.
            name = node.value[1:] if node.value[1:].isidentifier() and node.value.startswith("$") else "NAME"
            hint = f"write ${{{name}}}, or {path[-1]}_file: with the path of a file"
            yield document.problem(path, code="plain_secret", message="is plain text in the file", hint=hint)
    yield from unused_stores(configuration.store, configuration.providers)
    yield from configuration.servers.warnings(document)


def _api_keys(configuration: Configuration) -> Iterator[KeyPath]:
    document = configuration.providers.document
    try:
        node = document.node(("auth", "api_keys"))
    except KeyError:
        return
    for index in range(len(node.items) if isinstance(node, ListNode) else 0):
        yield ("auth", "api_keys", index, "key")


async def metric_warnings(host: Host) -> list[Problem]:
    """Return a warning for each metric family of a provider that is left out because its name is the host's."""
    # For its effect: only a scrape finds the names that clash. In a thread, as collectors of providers may block.
    await in_own_thread(lambda: list(host.metrics.collect()))
    return [
        Problem(
            code="metric_clash",
            message=f"its metric {family!r} is left out: names that begin with {prefix!r} are the host's own",
            path=f"providers.{key}",
            hint="give the metric another name, such as one that begins with the provider's",
        )
        for key, family, prefix in host.registry.left_out_metrics
    ]


MAX_DESCRIPTION = 1024
"""Characters; some model APIs refuse a tool with a longer description."""

# The line breaks that `describe` puts between a description and its notes.
_JOINT = 2


async def long_notes(store: Store) -> list[Problem]:
    """Return a warning for each tool of a saved toolset whose description is too long with its notes.

    The length of the description is that of the time when a note was last added. Raises `StoreError`.
    """
    found: list[Problem] = []
    async for toolset in SavedRecords(store).every():
        for item in toolset.notes:
            section = notes_section([Note(note.name, note.text) for note in item.notes])
            length = len(section) + (item.description_length + _JOINT if item.description_length else 0)
            if length > MAX_DESCRIPTION:
                message = f"with its notes the description of {item.tool!r} has {length} characters"
                hint = f"some model APIs refuse more than {MAX_DESCRIPTION}; shorten the notes, or remove some"
                path = f"saved toolset {toolset.name}"
                found.append(Problem(code="long_notes", message=message, path=path, hint=hint))
    return found


_WRONG = (
    ProviderState.IMPORT_FAILED,
    ProviderState.CONFIG_INVALID,
    ProviderState.START_FAILED,
    ProviderState.INCOMPATIBLE,
)


class Findings(NamedTuple):
    """The findings of `toolplug doctor`: `errors` keep something from working, `warnings` do not."""

    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


async def findings(host: Host, installed: Installed, problems: Sequence[Problem]) -> Findings:
    """Return the findings of an entered host; `problems` are those of its configuration that would stop a start."""
    running = host.registry.running().values()
    reported = {item.path.partition("[")[0] for item in problems}
    errors = [
        *problems,
        *host.wrong_servers,
        *(failure for key, failure in failures(host) if not any(_is_below(path, key) for path in reported)),
        *(Problem(code="not_ready", message=f"{part}: {reason}") for part, reason in await host.ready()),
    ]
    warnings = [
        *installed.problems,
        *_find_doubled(installed),
        *(_failure(record) for record in host.records() if record.state is ProviderState.SHADOWED),
        *_conflicts(host),
        *_long_descriptions(host),
        *tool_warnings(host),
        *await metric_warnings(host),
        *_failed_servers(host),
        *(found for each in await asyncio.gather(*(each.diagnosis() for each in running)) for found in each),
        *await long_notes(host.store),
        *await _other_configurations(host),
    ]
    return Findings(tuple(errors), tuple(warnings))


async def _other_configurations(host: Host) -> list[Problem]:
    """Return a warning for each process of the store that runs another configuration. Raises `StoreError`."""
    running = await host.admin.processes()
    mine = await host.admin.digest() if running else ""
    return [
        Problem(
            code="other_configuration",
            message=f"process {name} of this store (pid {process.pid} on {process.host}) runs another configuration",
            path=host.source_name,
            hint="give all processes of the store one file; POST /v1/reload lets each read its own again",
        )
        for name, process in sorted(running.items())
        # Empty: the process has not described itself yet.
        if process.config not in ("", mine)
    ]


def failures(host: Host) -> Iterator[tuple[str, Problem]]:
    """Yield key and problem of each enabled provider of an entered host that does not run."""
    found = host.registry.failures()
    for record in host.records():
        if record.state in _WRONG:
            yield record.key, found.get(record.key) or _failure(record)


def tolerated_failures(configuration: Configuration) -> list[Problem]:
    """Return the problems of providers with `required: false`, as far as they are known before a start."""
    failed: list[Problem] = []
    for key, item in configuration.providers.wanted.items():
        loaded = configuration.providers.loaded.get(key)
        if loaded is not None and not item.entry.required:
            failed.extend(loaded.wrong_rules())
        elif item.record is not None and item.record.state in _WRONG:
            failed.append(with_place(_failure(item.record), item.entry))
    return failed


def with_place(failure: Problem, entry: ProviderEntry) -> Problem:
    """Return the failure with the place of the entry, if it has none of its own."""
    return failure if failure.file else entry.problem(failure.code, failure.message, failure.hint)


def _is_below(path: str, key: str) -> bool:
    """Return whether the path is that of a provider's entry, or below it."""
    # With the dot: `providers.web` is not above `providers.web_search`.
    return f"{path}.".startswith(f"providers.{key}.")


def _failure(record: ProviderRecord) -> Problem:
    return Problem(
        code=record.state.replace("-", "_"), message=record.reason, path=f"providers.{record.key}", hint=record.fix
    )


def _find_doubled(installed: Installed) -> Iterator[Problem]:
    for name, packages in installed.types.items():
        if len(packages) > 1:
            owners = " and ".join(item.package for item in packages)
            message = f"provider type {name!r} comes from {owners}; no configuration can name it"
            yield Problem(code="two_distributions", message=message, hint="uninstall one of them")


def _conflicts(host: Host) -> Iterator[Problem]:
    catalog = host.registry.catalog
    for key, generation in host.registry.running().items():
        for name in generation.catalog:
            winner = catalog[name].definition.ref.source if name in catalog else key
            if winner != key:
                message = f"its tool {name!r} is not listed: provider {winner!r} comes first and has it already"
                hint = f"disable the tool in one of them: tools: {{{name}: disable}}"
                yield Problem(code="conflict", message=message, path=f"providers.{key}", hint=hint)


def _long_descriptions(host: Host) -> Iterator[Problem]:
    for definition in host.registry.catalog.definitions():
        length = len(describe(definition))
        if length > MAX_DESCRIPTION:
            message = f"the description of the tool {definition.name!r} has {length} characters"
            hint, path = f"some model APIs refuse more than {MAX_DESCRIPTION}", f"providers.{definition.ref.source}"
            yield Problem(code="long_description", message=message, path=path, hint=hint)


def _failed_servers(host: Host) -> Iterator[Problem]:
    """Yield MCP servers whose last discovery failed, their quarantined tools, and rules for tools they do not have."""
    for view in host.servers.servers(Principal().tenant):
        record, path = view.record, f"mcp_servers.{view.id}"
        if record.status == "failed":
            hint = f"toolplug discover {view.id} tries it again"
            yield Problem(code="discovery_failed", message=record.error or "its discovery failed", path=path, hint=hint)
        for name in view.unmatched:
            message = f"there is a rule for {name!r}, and the server has no tool of this name"
            hint = name_hint(name, [tool.name for tool in record.tools])
            yield Problem(code="unmatched_rule", message=message, path=f"{path}.tools", hint=hint)
        for tool in record.tools:
            if tool.quarantined:
                message = f"its tool {tool.name!r} is new or has changed, and is in quarantine"
                hint = f"look at it, then: toolplug discover {view.id} --accept {tool.name}"
                yield Problem(code="quarantined", message=message, path=path, hint=hint)


_REASON = "this command starts no provider"


def open_servers_only(config: Source, problems: list[Problem], *, environ: Mapping[str, str] | None = None) -> Host:
    """Return a host like `open_host`, for inspection next to the process that serves, which starts no provider.

    Entering adds the problems of `mcp_servers` entries to `problems`, and runs without these servers; every other
    problem raises `ConfigError`.
    """

    def read(source: Source, environ: Mapping[str, str], installed: Installed, coded: Coded) -> Configuration:
        configuration = read_configuration(source, environ, installed, coded).release()
        problems.extend(configuration.servers.problems)
        entries = configuration.providers
        # Switched off, not left out: their keys stay known to toolsets, and `records` has them.
        off = {key: entries.switched_off(key, _REASON, "") for key in entries.wanted}
        return replace(configuration, providers=replace(entries, wanted=off))

    return Host(config, environ, read, serving=False)


_STATES = {"import_failed": ProviderState.IMPORT_FAILED, "incompatible": ProviderState.INCOMPATIBLE}


def open_inspected(
    config: Source,
    problems: list[Problem],
    *,
    warnings: list[Problem] | None = None,
    environ: Mapping[str, str] | None = None,
    check: library_types.LockCheck | None = None,
) -> Host:
    """Return a host like `open_host`, in which a provider that fails ends in a state and stops no other.

    Entering adds the problems that would stop a start to `problems`, and warnings about the configuration to
    `warnings`. Failed starts are only in the providers' records, and problems of servers in `Host.wrong_servers`.
    `check` is asked before a package is imported. Entering raises `ConfigError` only for a document that cannot be
    read at all.
    """

    def read(source: Source, environ: Mapping[str, str], installed: Installed, coded: Coded) -> Configuration:
        found: list[Problem] = []
        configuration = read_parts(source, environ, replace(installed, check=check), found, coded)
        problems.extend(sorted(found, key=lambda item: (item.line, item.column)))
        if warnings is not None:
            warnings.extend(configuration_warnings(configuration))
        return _tolerant(configuration, found)

    return Host(config, environ, read, serving=False)


def _tolerant(configuration: Configuration, problems: list[Problem]) -> Configuration:
    """Return the configuration with every entry in file order: invalid ones as records, the others free to fail."""
    entries = configuration.providers
    wanted: dict[str, DesiredProvider] = {}
    for key in entries.keys:
        item = entries.wanted.get(key)
        wanted[key] = _make_refused(configuration, key, problems) if item is None else item._replace(inspected=True)
    return replace(configuration, providers=replace(entries, wanted=wanted))


def _make_refused(configuration: Configuration, key: str, problems: list[Problem]) -> DesiredProvider:
    mine = [item for item in problems if _is_below(item.path, key)]
    found = configuration.providers.types.get(key)
    entry = ProviderEntry(
        key=key,
        type=found.type if found is not None else key,
        distribution=found.distribution if found is not None else "",
        version=found.version if found is not None else "",
    )
    state = next((_STATES[item.code] for item in mine if item.code in _STATES), ProviderState.CONFIG_INVALID)
    reason = "; ".join(str(item) for item in mine)
    return DesiredProvider(entry, None, record_of(entry, state, reason, mine[0].hint if mine else ""))
