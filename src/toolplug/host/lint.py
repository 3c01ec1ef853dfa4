"""Warnings of `toolplug doctor` about working configurations: unclear tools and surprising settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, NamedTuple, cast

from pydantic import BaseModel, BeforeValidator, Field

from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.render import describe
from toolplug.catalog.schema_walk import BELOW_VALUE, SAME_VALUE, at_pointer, references, subschemas
from toolplug.config.document import has_reference
from toolplug.config.yaml_tree import KeyPath, ListNode, ScalarNode
from toolplug.errors import Problem
from toolplug.host.file.configuration import Configuration
from toolplug.host.file.store_entry import unused_stores
from toolplug.host.host import Host
from toolplug.providers.authoring import selfless_tools
from toolplug.runtime.threads import in_own_thread
from toolplug.search.ranking import find_unfindable
from toolplug.search.tools import DEFAULT_FOUND, THRESHOLD

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
            hint = f"write ${{NAME}}, or {path[-1]}_file: with the path of a file"
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
