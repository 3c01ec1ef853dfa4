"""Rules for prompts and resources: texts, examples, invalid arguments, completions, cancellation, concurrency."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast
from urllib.parse import quote

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.exact_json import as_object
from toolplug.catalog.offering import OfferedEntry
from toolplug.catalog.plan import Plan
from toolplug.catalog.schema import Schema
from toolplug.execution.run import run
from toolplug.testing.broken_rule import BrokenRule
from toolplug.testing.provider_rules.calls import FAIR, cancelled_after, mutations
from toolplug.testing.provider_rules.subject import CONCURRENT, Started

Given = Mapping[str, object]

_NOTHING: Given = {}
_VARIABLE = re.compile(r"\{\+?([^{}]*)\}")


class TrialRequest(NamedTuple):
    """An example of `prompts/get` or `resources/read`, or a completion."""

    where: str
    plan: Plan
    name: str
    arguments: Given

    async def send(self, started: Started, arguments: Given | None = None) -> ToolResult:
        """Make it, by default with its own arguments."""
        call = ToolCall("call", self.name, self.arguments if arguments is None else arguments)
        return await run(self.plan, call, CallContext(principal=started.subject.principal))


def requests(started: Started) -> list[TrialRequest]:
    """Return the examples of everything that the provider offers: what takes no arguments needs none."""
    subject, offering = started.subject, started.generation.offering
    found: list[TrialRequest] = []
    for name, item in offering.prompts.items():
        given = subject.prompts.get(name, None if _list_required(item) else _NOTHING)
        if given is not None and name not in subject.uncalled:
            found.append(TrialRequest(f"prompt {name!r}", item.plan, name, given))
    for key, item in _readable(started):
        given = subject.resources.get(key, None if _VARIABLE.search(key) else _NOTHING)
        if given is not None and key not in subject.uncalled:
            uri = _fill(key, given)
            found.append(TrialRequest(f"resource {key!r}", item.plan, uri, {"uri": uri, "variables": given}))
    return found


async def offer_rules(started: Started) -> list[BrokenRule]:
    """Check the texts of prompts and resources, then every example, also under pressure, and completions."""
    broken = [*_check_descriptions(started), *_check_examples(started)]
    for request in requests(started):
        result = await request.send(started)
        if result.status is ToolStatus.SUCCESS:
            broken += await _wrong_arguments(started, request) + await _under_pressure(started, request)
            continue
        fix = "fix it or its example; its log says where it failed"
        what = f"ends with {result.status}: {result.output}"
        broken.append(BrokenRule("offers", f"example of {request.where}", what, fix))
    return broken + await _completions(started)


def listed_offers(started: Started) -> list[tuple[str, Given]]:
    """Return what MCP clients are listed."""
    offers = [*started.generation.offering.prompts.items(), *_readable(started)]
    return [(key, item.fields) for key, item in offers]


def _readable(started: Started) -> list[tuple[str, OfferedEntry]]:
    offering = started.generation.offering
    return [*offering.resources.items(), *offering.templates.items()]


def _arguments(prompt: OfferedEntry) -> list[Given]:
    return [as_object(item) for item in cast("Sequence[object]", prompt.fields.get("arguments", ()))]


def _list_required(prompt: OfferedEntry) -> list[str]:
    return [str(item["name"]) for item in _arguments(prompt) if item["required"]]


def _fill(template: str, given: Given) -> str:
    """Return the URI of these values of the variables."""
    uri = template
    for name, value in given.items():
        uri = uri.replace(f"{{{name}}}", quote(str(value), safe="")).replace(f"{{+{name}}}", quote(str(value)))
    return uri


def _check_descriptions(started: Started) -> Iterator[BrokenRule]:
    described = [(f"prompt {name!r}", item) for name, item in started.generation.offering.prompts.items()]
    described += [(f"resource {key!r}", item) for key, item in _readable(started)]
    for where, item in described:
        if not str(item.fields.get("description", "")).strip():
            yield BrokenRule("descriptions", where, "has no description", "write a docstring: clients show it")


def _check_examples(started: Started) -> Iterator[BrokenRule]:
    """Yield what needs an example and has none, and each example of nothing."""
    subject, prompts = started.subject, started.generation.offering.prompts
    for name, prompt in prompts.items():
        if _list_required(prompt) and name not in (*subject.prompts, *subject.uncalled):
            fix = "give its arguments in prompts=, or uncalled="
            yield BrokenRule("examples", f"prompt {name!r}", "has no example", fix)
    for key in started.generation.offering.templates:
        if key not in (*subject.resources, *subject.uncalled):
            fix = "give values of its variables in resources=, or uncalled="
            yield BrokenRule("examples", f"resource {key!r}", "has no example", fix)
    keys = [key for key, _ in _readable(started)]
    for what, given, known in (("prompt", subject.prompts, [*prompts]), ("resource", subject.resources, keys)):
        for name in given:
            if name not in known:
                fix = f"it lists {', '.join(known) or 'nothing'}"
                yield BrokenRule("examples", f"example {name!r}", f"is no {what} of it", fix)


async def _wrong_arguments(started: Started, request: TrialRequest) -> list[BrokenRule]:
    """Check that a prompt refuses arguments that do not fit those that it lists."""
    prompt = started.generation.offering.prompts.get(request.name)
    # A resource may have the name of a prompt.
    if prompt is None or prompt.plan is not request.plan:
        return []
    properties = {str(item["name"]): {"type": "string"} for item in _arguments(prompt)}
    schema = {
        "type": "object",
        "properties": properties,
        "required": _list_required(prompt),
        "additionalProperties": False,
    }
    broken: list[BrokenRule] = []
    for what, arguments in mutations(Schema(schema), request.arguments):
        result = await request.send(started, arguments)
        if result.status is not ToolStatus.INVALID_ARGUMENTS:
            fix = "let the schema refuse it: required, types, additionalProperties"
            what_runs = f"runs and answers {result.status}"
            broken.append(BrokenRule("invalid-arguments", f"{request.where} {what}", what_runs, fix))
    return broken


async def _under_pressure(started: Started, request: TrialRequest) -> list[BrokenRule]:
    """Cancel the request, then make it many times at once."""
    if not await cancelled_after(started, lambda: request.send(started)):
        what = f"still runs {started.subject.within_s:g} s after its caller was cancelled"
        fix = "let CancelledError through; a synchronous method must end on its own"
        return [BrokenRule("cancellation", request.where, what, fix)]
    results = await asyncio.gather(*(request.send(started) for _ in range(CONCURRENT)))
    failed = [result for result in results if result.status not in FAIR]
    if not failed:
        return []
    what = f"of {CONCURRENT} requests at once {len(failed)} failed, the first with {failed[0].status}"
    fix = "keep nothing of one request on the instance where another one finds it"
    return [BrokenRule("concurrency", request.where, f"{what}: {failed[0].output}", fix)]


async def _completions(started: Started) -> list[BrokenRule]:
    """Complete an empty text for each argument of prompts and each variable."""
    offers = [
        (f"prompt {name!r}", item, [str(argument["name"]) for argument in _arguments(item)])
        for name, item in started.generation.offering.prompts.items()
    ]
    offers += [(f"resource {key!r}", item, _VARIABLE.findall(key)) for key, item in _readable(started)]
    broken: list[BrokenRule] = []
    for where, item, names in offers:
        for name in names if item.completion is not None else ():
            request = TrialRequest(where, cast("Plan", item.completion), item.key, {"argument": name, "value": ""})
            result = await request.send(started)
            if result.status is not ToolStatus.SUCCESS:
                fix = "return texts for any text that a user has typed, also an empty one"
                what = f"ends with {result.status}: {result.output}"
                broken.append(BrokenRule("completions", f"completion of {name!r} of {where}", what, fix))
    return broken
