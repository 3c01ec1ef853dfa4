"""`toolplug eval`: which tool a model chooses for a sentence. No tool is called, except to search for others."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import orjson
import typer
from pydantic import BaseModel, ConfigDict, Field

from toolplug.catalog.call import CallContext, ToolCall, text_of_result
from toolplug.catalog.catalog import Catalog
from toolplug.cli.event_loop import async_command, enter_host
from toolplug.cli.options import CallerOptions, config_file, operator
from toolplug.cli.output import echo, print_json, print_progress, print_table
from toolplug.config.document import Document, Section, read_document
from toolplug.config.nearest import name_hint
from toolplug.config.problems import validate_section
from toolplug.errors import BackendFailed, ConfigError, InvalidArguments, Problem
from toolplug.execution.executor import ModelTools
from toolplug.host.host import Host, open_host
from toolplug.parts.responses.answers.calls import CallAssembler, ModelCall, as_tool_call
from toolplug.parts.responses.backend import Backend
from toolplug.parts.responses.running import ResponsesService
from toolplug.search.tools import CALL_TOOL, SEARCH_TOOLS, target_call
from toolplug.signatures.values import decode_arguments

AT_ONCE = 4
"""Questions that the model is asked at the same time."""
MOST_SEARCHES = 3
"""Times that the model may search for tools before it chooses one."""
NO_TOOL = "no tool"
_SHOWN = 60

app: typer.Typer = typer.Typer()


class Case(BaseModel):
    """One sentence, and the tool that a model should choose for it.

    * `tool`: its name, or several of which each is right; null if no tool should be called
    * `arguments`: values that the call must have; others are free
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    ask: Annotated[str, Field(min_length=1)]
    tool: str | tuple[str, ...] | None
    arguments: dict[str, Any] = {}

    @property
    def expected_tools(self) -> tuple[str, ...]:
        """The names of the tools that are right; none if no tool is."""
        return (self.tool,) if isinstance(self.tool, str) else self.tool or ()


class Cases(BaseModel):
    """A file of cases; `instructions` are sent with each sentence, as the system message."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    instructions: str = ""
    cases: Annotated[tuple[Case, ...], Field(min_length=1)]


class Outcome(NamedTuple):
    """What the model did in one case. `called` is empty if it called no tool; `why` says what is wrong, if anything."""

    case: Case
    called: str = ""
    arguments: Mapping[str, object] = {}
    why: str = ""


class _Asking(NamedTuple):
    """What every case needs: the model's server, and the tools of the caller."""

    backend: Backend
    model: str | None
    instructions: str
    tools: ModelTools
    catalog: Catalog
    context: CallContext

    async def outcome(self, case: Case) -> Outcome:
        """Ask the model. Raises `BackendFailed`."""
        asked = [{"role": "system", "content": self.instructions}] if self.instructions else []
        messages: list[dict[str, Any]] = [*asked, {"role": "user", "content": case.ask}]
        calls = await self._calls(messages)
        searches = 0
        while calls and searches < MOST_SEARCHES and all(call.name == SEARCH_TOOLS for call in calls):
            functions = [as_tool_call(call.given, call.name, call.arguments, call.fields.value) for call in calls]
            results = await asyncio.gather(*(self.tools.execute(_tool_call(call), self.context) for call in calls))
            messages += [
                {"role": "assistant", "content": None, "tool_calls": functions},
                *({"role": "tool", "tool_call_id": it.call_id, "content": text_of_result(it)} for it in results),
            ]
            calls = await self._calls(messages)
            searches += 1
        return _judge(case, _tool_call(calls[0]) if calls else None, self.catalog)

    async def _calls(self, messages: list[dict[str, Any]]) -> list[ModelCall]:
        """Return the calls of the model's answer, with the names that it gave."""
        model = {} if self.model is None else {"model": self.model}
        question = {**model, "messages": messages, "tools": orjson.loads(self.catalog.render("chat"))}
        assembler = CallAssembler(lambda name: self.catalog.find(name) is not None)
        async with aclosing(self.backend.ask(question, stream=False)) as deltas:
            async for delta in deltas:
                for part in delta.calls:
                    assembler.add(part)
        assembler.end(is_certain=True)
        return assembler.calls


def _tool_call(call: ModelCall) -> ToolCall:
    return ToolCall(call.given, call.name, call.arguments)


@async_command(app, "eval")
async def evaluate(
    options: CallerOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The cases, as YAML.")],
    model: Annotated[str | None, typer.Option("--model", help="Ask this model of `responses.backend`.")] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, max=100, help="Ask each question so often.")] = 1,
    least: Annotated[
        float, typer.Option("--min", min=0.0, max=1.0, help="Exit 1 if a smaller share of the answers is right.")
    ] = 1.0,
) -> int:
    """Ask the configured model which tool it would call, and compare that with a file of cases.

    Each case has a sentence and the name of the right tool: `cases: [{ask: What is the weather in Cork?, tool:
    get_weather}]`. `tool` may be a list, or null where no tool is right; `arguments` are those that the call must have.
    Nothing is called, except `search_tools` where tools are searched.

    Example: toolplug eval cases.yaml --repeat 3 --min 0.9
    """
    document = read_document(file)
    cases = validate_section(Section(document=document, path=(), value=document.value), Cases)
    async with enter_host(open_host(config_file(options.config), serving=False)) as host:
        asking = await _asking(host, options, cases, model)
        _check_names(document, cases, asking.catalog)
        outcomes = await _outcomes(asking, [case for case in cases.cases for _ in range(repeat)])
        name = model or asking.backend.default_model
    right = sum(not outcome.why for outcome in outcomes)
    if options.as_json:
        print_json({"model": name, "right": right, "of": len(outcomes), "cases": [*map(_fields, outcomes)]})
    else:
        print_table(("asked", "expected", "called", "result"), [*map(_row, outcomes)])
        echo(f"\n{right} of {len(outcomes)} right")
        for expected, called, times in _confusions(outcomes):
            echo(f"{times} × {called} instead of {expected}")
    return int(right < least * len(outcomes))


async def _asking(host: Host, options: CallerOptions, cases: Cases, model: str | None) -> _Asking:
    """Raise `ConfigError` without a model's server, or if the caller has no tools."""
    caller, agent, session = operator(options.tenant), options.agent, options.session
    if session is not None:
        await host.sessions.find(session, options.tenant)
    responses = host.part(ResponsesService)
    if responses is None:
        hint = "add responses: {backend: {base_url: …, model: …}}"
        raise ConfigError([Problem(code="no_backend", message="there is no model to ask", path="responses", hint=hint)])
    catalog = await host.catalog_for(caller, agent=agent, session=session)
    if not catalog:
        hint = "`toolplug tools` lists what there is; enable a provider, or name an agent with --agent"
        raise ConfigError([Problem(code="no_tools", message="there are no tools to choose from", hint=hint)])
    tools = host.executor_for(caller, agent=agent, session=session)
    context = CallContext(caller, session, agent)
    return _Asking(await responses.backend(), model, cases.instructions, tools, catalog, context)


def _check_names(document: Document, cases: Cases, catalog: Catalog) -> None:
    """Raise `ConfigError` for every name in the cases that is no tool of the caller."""
    problems = [
        document.problem(
            ("cases", index, "tool"),
            code="unknown_tool",
            message=f"there is no tool {name!r} here",
            hint=name_hint(name, catalog),
        )
        for index, case in enumerate(cases.cases)
        for name in case.expected_tools
        if catalog.find(name) is None
    ]
    if problems:
        raise ConfigError(problems)


async def _outcomes(asking: _Asking, cases: list[Case]) -> list[Outcome]:
    """Ask all questions, and return the outcomes in order. Raises `BackendFailed` if the first has no answer."""
    first = await asking.outcome(cases[0])
    places, done = asyncio.Semaphore(AT_ONCE), 1

    async def ask_case(case: Case) -> Outcome:
        nonlocal done
        async with places:
            try:
                return await asking.outcome(case)
            except BackendFailed as error:
                return Outcome(case, why=f"no answer: {error}")
            finally:
                done += 1
                if sys.stderr.isatty():
                    print_progress(done, len(cases))

    return [first, *await asyncio.gather(*map(ask_case, cases[1:]))]


def _judge(case: Case, call: ToolCall | None, catalog: Catalog) -> Outcome:
    """Compare the model's first call with the case."""
    if call is None:
        return Outcome(case, why="" if not case.expected_tools else "no tool was called")
    target = target_call(call) if call.name == CALL_TOOL else call
    call = call if target is None else target
    tool = catalog.find(call.name)
    name = call.name if tool is None else tool.definition.name
    try:
        arguments = decode_arguments(call.arguments)
    except InvalidArguments as error:
        return Outcome(case, name, why=f"the arguments are no JSON object: {error}")
    missing = {key for key, value in case.arguments.items() if key not in arguments or arguments[key] != value}
    if not any(expected in (name, call.name) for expected in case.expected_tools):
        why = "another tool was called"
    elif missing:
        why = f"the arguments differ: {', '.join(f'{key}={arguments.get(key)!r}' for key in sorted(missing))}"
    else:
        why = ""
    return Outcome(case, name, arguments, why)


def _confusions(outcomes: Iterable[Outcome]) -> Iterator[tuple[str, str, int]]:
    """Yield what was expected, what was called instead, and how often; the most frequent first."""
    counts: dict[tuple[str, str], int] = {}
    for outcome in outcomes:
        if outcome.why and outcome.called not in outcome.case.expected_tools:
            pair = (" or ".join(outcome.case.expected_tools) or NO_TOOL, outcome.called or NO_TOOL)
            counts[pair] = counts.get(pair, 0) + 1
    for (expected, called), times in sorted(counts.items(), key=lambda item: -item[1]):
        yield expected, called, times


def _row(outcome: Outcome) -> tuple[str, str, str, str]:
    asked = " ".join(outcome.case.ask.split())
    shown = asked if len(asked) <= _SHOWN else f"{asked[: _SHOWN - 1]}…"
    result = f"wrong: {outcome.why}" if outcome.why else "right"
    return shown, " or ".join(outcome.case.expected_tools) or NO_TOOL, outcome.called or NO_TOOL, result


def _fields(outcome: Outcome) -> dict[str, object]:
    return {
        "ask": outcome.case.ask,
        "expected": list(outcome.case.expected_tools),
        "called": outcome.called or None,
        "arguments": outcome.arguments,
        "right": not outcome.why,
        "why": outcome.why or None,
    }
