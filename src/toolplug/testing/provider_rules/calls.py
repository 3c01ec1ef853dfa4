"""Rules for calls of tools, prompts and resources: examples, invalid arguments, cancellation, concurrency."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from typing import NamedTuple, Self, cast
from urllib.parse import quote

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.definition import ToolDefinition
from toolplug.catalog.exact_json import as_object
from toolplug.catalog.offering import OfferedEntry
from toolplug.catalog.plan import Plan
from toolplug.catalog.schema import Schema
from toolplug.errors import ConfigError
from toolplug.execution.results import CONTRADICTIONS
from toolplug.execution.run import run
from toolplug.testing.broken_rule import BrokenRule
from toolplug.testing.provider_rules.subject import CONCURRENT, Started, Subject, start_subject

# The first that a schema refuses is taken: a value of each kind, and one that has a kind inside.
_WRONG: tuple[object, ...] = ({"wrong": [True]}, ["wrong"], "something wrong", -0.5, True, None)
_EXTRA = "not_an_argument"
_LOG = logging.getLogger("toolplug.execution")


class Mutation(NamedTuple):
    """Arguments that a tool must refuse, and how they differ from an example."""

    what: str
    arguments: Mapping[str, object]


def mutations(schema: Schema, example: Mapping[str, object]) -> Iterator[Mutation]:
    """Yield the example without a required argument, with a value that the schema refuses, with an unknown argument.

    Arguments that the schema does not describe are not changed; a schema that allows unknown ones is given none.
    """
    described = schema.value
    required = cast("Collection[str]", described.get("required", ()))  # the schema has compiled
    for name in required:
        if name in example:
            yield Mutation(f"without {name!r}", {key: value for key, value in example.items() if key != name})
    known = as_object(described.get("properties"))
    for name in example:
        if name in known:
            wrong = (Mutation(f"with {name!r} as {value!r}", {**example, name: value}) for value in _WRONG)
            # One is enough: each mutation is a call of the tool.
            yield from [item for item in wrong if schema.refusals(item.arguments)][:1]
    if "additionalProperties" not in described or described["additionalProperties"] is False:
        yield Mutation(f"with an argument {_EXTRA!r} that it does not have", {**example, _EXTRA: 1})


_TURNS = (1, 3)
"""Iterations of the event loop after which the caller is cancelled."""

FAIR = frozenset({ToolStatus.SUCCESS, ToolStatus.TOOL_ERROR, ToolStatus.LIMITED})
"""Valid results of a repeated example: a note cannot be deleted twice."""


async def pressure_rules(run: Started) -> list[BrokenRule]:
    """Cancel a call of each example, then make many calls at once."""
    broken: list[BrokenRule] = []
    for name, arguments in run.examples():
        broken += await _check_cancelled(run, name, arguments) or await _at_once(run, name, arguments)
    return broken


async def cancellation_rules(subject: Subject) -> list[BrokenRule]:
    """Cancel a call of each example on an instance of its own, before anything waits for one to end.

    A call that does not end stays behind. It is taken out of asyncio's books, so that `asyncio.run` ends all the same.
    """
    before = asyncio.all_tasks()
    try:
        async with start_subject(subject) as run:
            broken = [
                rule for name, arguments in run.examples() for rule in await _check_cancelled(run, name, arguments)
            ]
    except ConfigError:
        return []  # the next rules say why it does not start
    if broken:
        for task in asyncio.all_tasks() - before:
            asyncio._unregister_task(task)  # pyright: ignore[reportAttributeAccessIssue]  documented in "Extending"
    return broken


async def _check_cancelled(run: Started, name: str, arguments: Mapping[str, object]) -> list[BrokenRule]:
    if await cancelled_after(run, lambda: run.call(name, arguments)):
        return []
    what = f"still runs {run.subject.within_s:g} s after its caller was cancelled"
    fix = "let CancelledError through; a synchronous tool must end on its own"
    return [BrokenRule("cancellation", f"tool {name!r}", what, fix)]


async def cancelled_after(run: Started, call: Callable[[], Coroutine[object, object, ToolResult]]) -> bool:
    """Cancel the caller of a call early and later; return whether the provider's code ended each time."""
    for turns in _TURNS:
        task = asyncio.create_task(call())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        if not await run.quiet():
            return False
    return True


async def _at_once(run: Started, name: str, arguments: Mapping[str, object]) -> list[BrokenRule]:
    ids = [f"call-{number}" for number in range(CONCURRENT)]
    results = await asyncio.gather(*(run.call(name, arguments, call_id=call_id) for call_id in ids))
    failed = [result for result in results if result.status not in FAIR]
    if not failed:
        return []
    what = f"of {CONCURRENT} calls at once {len(failed)} failed, the first with {failed[0].status}: {failed[0].output}"
    fix = "keep nothing of one call on the instance where another call finds it"
    return [BrokenRule("concurrency", f"tool {name!r}", what, fix)]


NO_TOOL = "no_tool_has_this_name"


async def call_rules(run: Started) -> list[BrokenRule]:
    """Check single calls: first every example, in order, then invalid arguments."""
    broken = [*_check_names(run), *await _unknown(run)]
    for name, arguments in run.examples():
        broken += await _example(run, name, arguments)
    for name, arguments in run.examples():
        broken += await _wrong_arguments(run, run.registry.catalog[name].definition, arguments)
    return broken


def _check_names(run: Started) -> list[BrokenRule]:
    """Check that each tool has an example, each example a tool, and that `can_execute` agrees with `tools`."""
    subject, provider = run.subject, run.generation.provider
    listed = [item.name for item in provider.tools()]
    offering = run.generation.offering
    offered = {*offering.prompts, *offering.resources, *offering.templates}
    given = [*subject.calls, *(name for name in subject.uncalled if name in listed or name not in offered)]
    broken = [
        BrokenRule("examples", f"tool {name!r}", "has no example call", "give its arguments in calls=, or uncalled=")
        for name in listed
        if name not in given
    ]
    broken += [
        BrokenRule("examples", f"example {name!r}", "is no tool of it", f"it lists {', '.join(listed) or 'nothing'}")
        for name in given
        if name not in listed
    ]
    broken += [
        BrokenRule("can-execute", f"tool {name!r}", "is listed but can_execute() refuses it", "say what tools() says")
        for name in listed
        if not provider.can_execute(name)
    ]
    if provider.can_execute(NO_TOOL):
        what = f"can_execute({NO_TOOL!r}) is true, and no tool is called that"
        broken.append(BrokenRule("can-execute", "any name", what, "say what tools() says"))
    return broken


async def _unknown(run: Started) -> list[BrokenRule]:
    result = await run.call(NO_TOOL, {})
    if result.status is ToolStatus.UNKNOWN_TOOL:
        return []
    return [BrokenRule("unknown-tool", f"tool {NO_TOOL!r}", f"answers {result.status}", "list it, or do not run it")]


class _Contradictions(logging.Handler):
    """Collects, inside `with`, where results contradict the output types of their tools."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __enter__(self) -> Self:
        _LOG.addHandler(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _LOG.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, CONTRADICTIONS):
            self.found.append(getattr(record, CONTRADICTIONS))


async def _example(run: Started, name: str, arguments: Mapping[str, object]) -> list[BrokenRule]:
    where = f"example of tool {name!r}"
    with _Contradictions() as contradictions:
        result = await run.call(name, arguments)
    if contradictions.found:
        fix = "return what the annotation says, or annotate what it returns"
        return [BrokenRule("output", where, f"is not of its output type: {contradictions.found[0]}", fix)]
    if result.is_error:
        fix = "fix the tool or the example; its log says where it failed"
        return [BrokenRule("calls", where, f"ends with {result.status}: {result.output}", fix)]
    return []


async def _wrong_arguments(run: Started, definition: ToolDefinition, example: Mapping[str, object]) -> list[BrokenRule]:
    broken: list[BrokenRule] = []
    for what, arguments in mutations(definition.parameters, example):
        result = await run.call(definition.name, arguments)
        if result.status is not ToolStatus.INVALID_ARGUMENTS:
            fix = "let the schema refuse it: required, types, additionalProperties"
            where = f"tool {definition.name!r} {what}"
            broken.append(BrokenRule("invalid-arguments", where, f"runs and answers {result.status}", fix))
    return broken


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
            broken += await _wrong_request(started, request) + await _under_pressure(started, request)
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


async def _wrong_request(started: Started, request: TrialRequest) -> list[BrokenRule]:
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
