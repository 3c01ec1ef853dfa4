"""The guard: a plugin with two hooks, one before each call and one for each result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, cast

from prometheus_client import Counter
from prometheus_client.registry import Collector

from toolplug import FunctionProvider, ProviderContext, ToolCall, ToolDefinition, ToolResult, ToolStatus, WouldRefuse
from toolplug_guard.masking import Masker
from toolplug_guard.patterns import KINDS, Detector, Kind, compile_pattern
from toolplug_guard.rules import CompiledRule, broken_rule
from toolplug_guard.settings import Settings

INLINE_BYTES = 2 * 1024
"""Larger arguments and results are searched in a thread, so that no pattern delays other calls."""


class _Kinds(NamedTuple):
    """What is looked for in the results of some tools; `block` has the kinds that withhold a result."""

    detector: Detector
    block: frozenset[str]


class Guard(FunctionProvider):
    """Masks secrets and personal data in the results of all tools, and refuses calls by rules.

    If a check fails, the host refuses the call or withholds its result: nothing passes unchecked.
    """

    Config = Settings
    config: Settings

    async def start(self, site: ProviderContext) -> None:
        """Compile the patterns and create the metrics."""
        settings, self._site = self.config, site
        own = {name: Kind(name, compile_pattern(pattern)) for name, pattern in settings.patterns.items()}
        self._kinds = {**KINDS, **own}
        self._rules = [CompiledRule.of(rule) for rule in settings.rules]
        self._masks = [(item.tool, self._compile(item.mask, item.block)) for item in settings.overrides]
        self._masks.append(("*", self._compile(settings.mask, settings.block)))
        self._masked = Counter("guard_masked", "Texts masked in results, by kind.", ["kind"], registry=None)
        self._blocked = Counter("guard_blocked", "Results withheld, by kind.", ["kind"], registry=None)
        self._refused = Counter("guard_refused", "Calls refused by a rule.", registry=None)

    def collectors(self) -> Sequence[Collector]:
        return (self._masked, self._blocked, self._refused)

    async def diagnose(self) -> Sequence[str]:
        """Return the rules that are only watched."""
        return [
            f"the rule for {item.rule.tool!r} ({item.rule.reason}) is only watched: every call passes"
            for item in self._rules
            if item.rule.watch
        ]

    async def before_call(self, call: ToolCall, tool: ToolDefinition) -> str | WouldRefuse | None:
        """Refuse the call if a rule forbids it; of watched rules only, say what they would have done."""
        rules = [item for item in self._rules if _names(tool, item.rule.tool)]
        if not rules:
            return None
        if _is_small(call.arguments):
            rule = broken_rule(rules, call.arguments)
        else:
            rule = await self._site.in_thread(broken_rule, rules, call.arguments)
        if rule is None:
            return None
        if rule.watch:
            return WouldRefuse(rule.reason)
        self._refused.inc()
        return rule.reason

    async def change_result(self, result: ToolResult, tool: ToolDefinition) -> ToolResult | None:
        """Mask the result, or withhold it."""
        kinds = next(kinds for pattern, kinds in self._masks if _names(tool, pattern))
        if kinds is None:
            return None
        masker = Masker(kinds.detector, self.config.replacement)
        if _is_small([result.output, *result[4:7]]):
            masked = masker.result(result)
        else:
            masked = await self._site.in_thread(masker.result, result)
        blocking = sorted(kinds.block & masker.found.keys())
        for kind in blocking:
            self._blocked.labels(kind).inc()
        if blocking:
            return _withhold(result, blocking)
        for kind, count in masker.found.items():
            self._masked.labels(kind).inc(count)
        return masked if masker.found else None

    def _compile(self, mask: Sequence[str], block: Sequence[str]) -> _Kinds | None:
        names = dict.fromkeys((*mask, *block))
        return _Kinds(Detector([self._kinds[name] for name in names]), frozenset(block)) if names else None


def _names(tool: ToolDefinition, pattern: str) -> bool:
    """Return whether a glob names the tool: by its name in the caller's catalog, or as `source.name`.

    A provider's tool is also named by its own name, which no toolset changes. So `search` is the tool of a provider,
    and not the tool `search` of the MCP server `docs`, which is `docs.search`.
    """
    kind, source, name, _ = tool.ref
    names = (tool.name, f"{source}.{name}", *([name] if kind == "native" else []))
    return any(fnmatchcase(each, pattern) for each in names)


def _withhold(result: ToolResult, kinds: Sequence[str]) -> ToolResult:
    text = f"the result is withheld: it has {', '.join(kinds)}"
    return ToolResult(result.call_id, result.name, text, ToolStatus.TOOL_ERROR)


def _is_small(value: object) -> bool:
    """Return whether a value has at most `INLINE_BYTES` characters, keys and items; no more of it is looked at."""
    left, waiting = INLINE_BYTES, [value]
    while waiting and left >= 0:
        item = waiting.pop()
        if isinstance(item, str | bytes):
            left -= len(item)
        elif isinstance(item, Mapping):
            pairs = cast("Mapping[object, object]", item)
            left -= len(pairs)
            if left >= 0:
                waiting += [*pairs.keys(), *pairs.values()]
        elif isinstance(item, list | tuple):
            items = cast("Sequence[object]", item)
            left -= len(items)
            if left >= 0:
                waiting += items
        elif not isinstance(item, int | float | None):
            return False  # nobody knows how much it is
        else:
            left -= 8
    return left >= 0
