"""Patterns of JSON Schemas: linear time, bounded memory, and their price for each character of a text.

A linear-time engine is not bounded in memory: each pattern in use has an automaton and a cache of its states. Both are
limited, and so is their sum in one schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import cast

from toolplug import library_types
from toolplug.catalog.schema_walk import Node, Path, subschemas
from toolplug.errors import InvalidDefinition

# Of one pattern, `size_limit` of the library, and of all patterns of a schema.
MAX_AUTOMATON_KIB = 1_024
MAX_PATTERNS_KIB = 2 * 1_024
MAX_PATTERNS = 64
"""Of one schema."""

# The cache of states of a pattern, for each direction of a search: `dfa_size_limit` of the library.
STATES_KIB = 64

_SIZES_KIB = (2, 4, 16, 64, 256, MAX_AUTOMATON_KIB)
# Up to ten atoms without groups, alternatives or counted repetitions.
_SIMPLE = re.compile(r"\^?(?:(?:\\[wWdDsS.\-/+@]|\[[^\]\\]*(?:\\.[^\]\\]*)*\]|[^\\\[\](){}|*+?.^$]|\.)[*+?]?){0,10}\$?")
_SIMPLE_NS = 5


def character_ns(pattern: object) -> int:
    """Return an upper bound of the time for one character of a text, in nanoseconds.

    The states of a few atoms always fit in the cache (1.6 to 5 ns measured). For other patterns there are texts whose
    states do not fit, so that each of the pattern's own states is tried (280 to 700 ns, and 20 for each KiB over 32).
    """
    if not isinstance(pattern, str) or _SIMPLE.fullmatch(pattern):
        return _SIMPLE_NS
    size = automaton_kib(pattern) or MAX_AUTOMATON_KIB
    # The measurements above, rounded up: 280 ns in the smallest automaton, 700 up to 35 KiB, then 20 for each KiB.
    return 350 if size <= _SIZES_KIB[0] else max(700, 20 * size)


@lru_cache(maxsize=512)
def automaton_kib(pattern: str) -> int | None:
    """Return the size of a pattern's automaton in KiB, rounded up; None if it is too large, not linear or invalid."""
    # The library does not say how large an automaton is, only whether it is within a limit: so the limits are tried.
    for size in _SIZES_KIB:
        options = library_types.RegexOptions(size_limit=size * 1_024)
        try:
            library_types.validator_for({"pattern": pattern}, pattern_options=options)
        except (ValueError, library_types.ReferencingError):
            continue
        return size
    return None


def check_patterns(schema: Node) -> None:
    """Raise `InvalidDefinition`, with its place, for a pattern that is invalid or over the limits."""
    total = 0
    for count, (path, pattern) in enumerate(_patterns(schema), 1):
        if count > MAX_PATTERNS:
            raise InvalidDefinition(f"{_pointer(path)}: the schema has more than {MAX_PATTERNS} patterns")
        size = automaton_kib(pattern)
        if size is None:
            raise InvalidDefinition(
                f"not a valid JSON Schema: {_pointer(path)}: the pattern {pattern[:80]!r} is none, needs backtracking, "
                f"or has an automaton of more than {MAX_AUTOMATON_KIB} KiB; use shorter counted repetitions, and no "
                "look-around or back-reference"
            )
        total += size
        if total > MAX_PATTERNS_KIB:
            raise InvalidDefinition(
                f"{_pointer(path)}: the automata of the schema's patterns have more than {MAX_PATTERNS_KIB} KiB "
                "together; use fewer patterns or shorter counted repetitions"
            )


def memory_kib(schema: Node) -> int:
    """Return the memory in KiB that the patterns of a checked schema may use: automata, and caches both ways."""
    return sum((automaton_kib(pattern) or 0) + 2 * STATES_KIB for _, pattern in _patterns(schema))


def _pointer(path: Path) -> str:
    return "".join(f"/{part}" for part in path)[:300]


def _patterns(schema: Node) -> Iterator[tuple[Path, str]]:
    waiting: list[tuple[Path, Node]] = [((), schema)]
    while waiting:
        path, node = waiting.pop()
        pattern, by_pattern = node.get("pattern"), node.get("patternProperties")
        if isinstance(pattern, str):
            yield (*path, "pattern"), pattern
        if isinstance(by_pattern, Mapping):
            yield from (((*path, "patternProperties", name), name) for name in cast("Node", by_pattern))
        waiting.extend(
            ((*path, *below), cast("Node", inner)) for _, below, inner in subschemas(node) if isinstance(inner, Mapping)
        )
