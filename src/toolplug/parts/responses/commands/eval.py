"""`toolplug eval`: which tool a model chooses for a sentence. No tool is called, except to search for others."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, cast

import orjson
import typer
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from toolplug.catalog.call import CallContext, ToolCall, text_of_result
from toolplug.catalog.catalog import Catalog
from toolplug.catalog.exact_json import dump_json
from toolplug.cli.event_loop import async_command, enter_host
from toolplug.cli.options import CallerOptions, config_file, operator
from toolplug.cli.output import echo, print_json, print_progress, print_table
from toolplug.config.document import Document, Section, read_document
from toolplug.config.nearest import name_hint
from toolplug.config.problems import validate_section
from toolplug.errors import BackendFailed, ConfigError, InvalidArguments, Problem
from toolplug.execution.executor import ModelTools
from toolplug.host.host import Host, open_host
from toolplug.parts.responses.answers.fragments import CallAssembler, ModelCall, as_tool_call
from toolplug.parts.responses.backend import Backend
from toolplug.parts.responses.running import ResponsesService
from toolplug.search.tools import CALL_TOOL, SEARCH_TOOLS, target_call, without_search
from toolplug.signatures.values import decode_arguments

AT_ONCE = 4
"""Questions that the model is asked at the same time."""
MOST_SEARCHES = 3
"""Times that the model may search for tools before it chooses one."""
MOST_STEPS = 20
"""Steps of one case: each asks the model once more."""
NO_TOOL = "no tool"
_ARROW = " → "
_SHOWN = 60
_NO_ANSWER = "no answer: "
# Tools without a case that are named; all of them are in `--json`.
_MOST_NAMED = 10

app: typer.Typer = typer.Typer()


class Step(BaseModel):
    """One call that a model should make, and what the tool answers it with.

    * `tool`: its name, or several of which each is right; null if no tool should be called
    * `arguments`: values that the call must have; others are free
    * `answer`: what the model is told next, a text or any other value as JSON
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    tool: str | tuple[str, ...] | None
    arguments: dict[str, Any] = {}
    answer: Any = ""

    @property
    def expected_tools(self) -> tuple[str, ...]:
        """The names of the tools that are right; none if no tool is."""
        return (self.tool,) if isinstance(self.tool, str) else self.tool or ()


class Case(Step):
    """One sentence, and the tool that a model should choose for it; or the steps, which are calls in order.

    With `steps` there is no `tool`. A last step of `tool: null` says that the model should then call nothing more.
    """

    ask: Annotated[str, Field(min_length=1)]
    steps: Annotated[tuple[Step, ...], Field(max_length=MOST_STEPS)] = ()

    @model_validator(mode="before")
    @classmethod
    def _take_steps(cls, value: object) -> object:
        if not isinstance(value, Mapping) or not (given := cast("Mapping[str, object]", value)).get("steps"):
            return cast("object", value)
        if twice := sorted(given.keys() & {"tool", "arguments", "answer"}):
            raise ValueError(f"a case has steps or {twice[0]}, not both; move {twice[0]} into a step")
        return {**given, "tool": None}

    @property
    def expected(self) -> Sequence[Step]:
        """The calls that are right, in order."""
        return self.steps or (self,)


class Cases(BaseModel):
    """A file of cases; `instructions` are sent with each sentence, as the system message."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    instructions: str = ""
    cases: Annotated[tuple[Case, ...], Field(min_length=1)]


class SavedCall(BaseModel):
    """What a model called; None for no tool."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    called: str | None
    arguments: dict[str, Any] = {}


class SavedAnswer(SavedCall):
    """What a model called for one sentence; with `steps`, in each of them."""

    ask: str
    steps: tuple[SavedCall, ...] = ()


_SAVED = TypeAdapter(list[SavedAnswer])


class StepOutcome(NamedTuple):
    """What the model did in one step. `called` is empty if it called no tool; `why` says what is wrong, if anything."""

    step: Step
    called: str = ""
    arguments: Mapping[str, object] = {}
    why: str = ""


class Outcome(NamedTuple):
    """What the model did in one case, up to the first step that is wrong; `failure`: it gave no answer at all."""

    case: Case
    steps: Sequence[StepOutcome] = ()
    failure: str = ""

    @property
    def why(self) -> str:
        """What is wrong; empty if nothing is."""
        wrong = [(number, each.why) for number, each in enumerate(self.steps, 1) if each.why]
        said = [f"step {number}: {why}" if self.case.steps else why for number, why in wrong]
        return self.failure or "; ".join(said)

    @property
    def called(self) -> str:
        """The names of what was called; empty if nothing was."""
        return _ARROW.join(each.called or NO_TOOL for each in self.steps) if self.case.steps else self.steps[0].called


class _Asking(NamedTuple):
    """What every case needs: the model's server, and the tools of the caller."""

    backend: Backend
    model: str | None
    instructions: str
    tools: ModelTools
    catalog: Catalog
    context: CallContext

    async def outcome(self, case: Case) -> Outcome:
        """Ask the model, in each step anew. Raises `BackendFailed`."""
        asked = [{"role": "system", "content": self.instructions}] if self.instructions else []
        messages: list[dict[str, Any]] = [*asked, {"role": "user", "content": case.ask}]
        outcomes: list[StepOutcome] = []
        calls: list[ModelCall] = []
        for step in case.expected:
            if not calls:
                calls = await self._choose(messages)
                messages += [_message_of(calls)] if calls else []
            call = calls.pop(0) if calls else None
            outcomes.append(_judge(step, _tool_call(call) if call else None, self.catalog))
            if outcomes[-1].why or call is None:
                break  # what the tool of the next step answers is no answer to this call
            answer = step.answer if isinstance(step.answer, str) else dump_json(step.answer).decode()
            messages.append({"role": "tool", "tool_call_id": call.given, "content": answer})
        return Outcome(case, outcomes)

    async def _choose(self, messages: list[dict[str, Any]]) -> list[ModelCall]:
        """Return what the model calls after it has searched for tools, which is added to the messages."""
        calls = await self._calls(messages)
        searches = 0
        while calls and searches < MOST_SEARCHES and all(call.name == SEARCH_TOOLS for call in calls):
            results = await asyncio.gather(*(self.tools.execute(_tool_call(call), self.context) for call in calls))
            messages += [
                _message_of(calls),
                *({"role": "tool", "tool_call_id": it.call_id, "content": text_of_result(it)} for it in results),
            ]
            calls = await self._calls(messages)
            searches += 1
        return calls

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


def _message_of(calls: Iterable[ModelCall]) -> dict[str, Any]:
    """Return the message with which the model made these calls."""
    made = [as_tool_call(call.given, call.name, call.arguments, call.fields.value) for call in calls]
    return {"role": "assistant", "content": None, "tool_calls": made}


def _tool_call(call: ModelCall) -> ToolCall:
    return ToolCall(call.given, call.name, call.arguments)


@async_command(app, "eval")
async def evaluate(
    options: CallerOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The cases, as YAML.")],
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Ask this model of `responses.backend`.")
    ] = None,
    repeat: Annotated[
        int, typer.Option("--repeat", metavar="N", min=1, max=100, help="Ask each question so often.")
    ] = 1,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Write the model's answers there.", show_default=False)
    ] = None,
    saved: Annotated[
        Path | None,
        typer.Option("--saved", metavar="FILE", help="Judge these answers, and ask no model.", show_default=False),
    ] = None,
    least: Annotated[
        float,
        typer.Option(
            "--min", metavar="SHARE", min=0.0, max=1.0, help="Exit 1 if a smaller share of the answers is right."
        ),
    ] = 1.0,
) -> int:
    """Ask the configured model which tool it would call, and compare that with a file of cases.

    Each case has a sentence and the name of the right tool: `cases: [{ask: What is the weather in Cork?, tool:
    get_weather}]`. `tool` may be a list, or null where no tool is right; `arguments` are those that the call must have.
    Nothing is called, except `search_tools` where tools are searched. It says which tools no case expects. Answers that
    were written with `--save` are judged again with `--saved`, by cases that may have changed. A case may have several
    `steps` instead of a tool, each with a tool and with the `answer` that the model is given for it.

    Example: toolplug eval cases.yaml --repeat 3 --min 0.9
    """
    document = read_document(file)
    cases = validate_section(Section(document=document, path=(), value=document.value), Cases)
    async with enter_host(open_host(config_file(options.config), serving=False)) as host:
        catalog = await _catalog(host, options)
        asking = await _asking(host, options, cases, model, catalog) if saved is None else None
        _check_names(document, cases, catalog)
        asked, name = [case for case in cases.cases for _ in range(repeat)], model
        if asking is not None:
            outcomes, name = await _outcomes(asking, asked), model or asking.backend.default_model
        else:
            outcomes = _judge_saved(asked, cast("Path", saved), catalog)
    missing = _find_uncovered(cases, catalog)
    if save is not None:
        save.write_bytes(orjson.dumps(_answers(outcomes), option=orjson.OPT_INDENT_2))
    right = sum(not outcome.why for outcome in outcomes)
    if options.as_json:
        print_json(
            {
                "model": name,
                "right": right,
                "of": len(outcomes),
                "cases": [*map(_fields, outcomes)],
                "uncovered": missing,
            }
        )
    else:
        print_table(("asked", "expected", "called", "result"), [*map(_row, outcomes)])
        echo(f"\n{right} of {len(outcomes)} right")
        for expected, called, times in _confusions(outcomes):
            echo(f"{times} × {called} instead of {expected}")
        if missing:
            shown = ", ".join(missing[:_MOST_NAMED]) + (", …" if len(missing) > _MOST_NAMED else "")
            echo(f"{len(missing)} of {len(without_search(catalog))} tools are in no case: {shown}")
    return int(right < least * len(outcomes))


async def _catalog(host: Host, options: CallerOptions) -> Catalog:
    """Return the tools of the caller. Raises `ConfigError` if there are none."""
    if options.session is not None:
        await host.sessions.find(options.session, options.tenant)
    catalog = await host.catalog_for(operator(options.tenant), agent=options.agent, session=options.session)
    if not catalog:
        hint = "`toolplug tools` lists what there is; enable a provider, or name an agent with --agent"
        raise ConfigError([Problem(code="no_tools", message="there are no tools to choose from", hint=hint)])
    return catalog


async def _asking(host: Host, options: CallerOptions, cases: Cases, model: str | None, catalog: Catalog) -> _Asking:
    """Raise `ConfigError` without a model's server."""
    caller, agent, session = operator(options.tenant), options.agent, options.session
    responses = host.part(ResponsesService)
    if responses is None:
        hint = "add responses: {backend: {base_url: …, model: …}}"
        raise ConfigError([Problem(code="no_backend", message="there is no model to ask", path="responses", hint=hint)])
    tools = host.executor_for(caller, agent=agent, session=session)
    context = CallContext(caller, session, agent)
    return _Asking(await responses.backend(), model, cases.instructions, tools, catalog, context)


def _check_names(document: Document, cases: Cases, catalog: Catalog) -> None:
    """Raise `ConfigError` for every name in the cases that is no tool of the caller."""
    problems = [
        document.problem(
            ("cases", index, *(("steps", place) if case.steps else ()), "tool"),
            code="unknown_tool",
            message=f"there is no tool {name!r} here",
            hint=name_hint(name, catalog),
        )
        for index, case in enumerate(cases.cases)
        for place, step in enumerate(case.expected)
        for name in step.expected_tools
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
                return Outcome(case, failure=f"{_NO_ANSWER}{error}")
            finally:
                done += 1
                if sys.stderr.isatty():
                    print_progress(done, len(cases))

    return [first, *await asyncio.gather(*map(ask_case, cases[1:]))]


def _find_uncovered(cases: Cases, catalog: Catalog) -> list[str]:
    """Return the tools that no case expects."""
    expected = {
        id(catalog.find(name)) for case in cases.cases for step in case.expected for name in step.expected_tools
    }
    return [tool.definition.name for tool in without_search(catalog).values() if id(tool) not in expected]


def _answers(outcomes: Iterable[Outcome]) -> list[dict[str, object]]:
    """Return what the model did in each case, as `--saved` reads it; without the cases that it has not answered."""
    return [
        {"ask": each.case.ask, **_call_fields(each.steps[0])}
        if not each.case.steps
        else {"ask": each.case.ask, "called": each.called, "steps": [*map(_call_fields, each.steps)]}
        for each in outcomes
        if not each.failure
    ]


def _call_fields(step: StepOutcome) -> dict[str, object]:
    return {"called": step.called or None, "arguments": step.arguments}


def _judge_saved(cases: Iterable[Case], file: Path, catalog: Catalog) -> list[Outcome]:
    """Compare the answers of a file with the cases, those of one sentence in order. Raises `ConfigError`."""
    try:
        answers = _SAVED.validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        message = f"{file}: these are no answers that --save has written: {error}"
        raise ConfigError([Problem(code="invalid_value", message=message)]) from None
    waiting: dict[str, list[SavedAnswer]] = {}
    for answer in answers:
        waiting.setdefault(answer.ask, []).append(answer)
    outcomes: list[Outcome] = []
    for case in cases:
        left = waiting.get(case.ask)
        if not left:
            outcomes.append(Outcome(case, failure="there is no saved answer"))
            continue
        answer = left.pop(0)
        outcomes.append(Outcome(case, _judge_steps(case, answer.steps or (answer,), catalog)))
    return outcomes


def _judge_steps(case: Case, answers: Sequence[SavedCall], catalog: Catalog) -> list[StepOutcome]:
    """Compare saved calls with the steps of a case, up to the first that is wrong."""
    outcomes: list[StepOutcome] = []
    for step, answer in zip_longest(case.expected, answers[: len(case.expected)]):
        call = None if answer is None or answer.called is None else ToolCall("", answer.called, answer.arguments)
        judged = _judge(step, call, catalog)
        outcomes.append(judged if answer is not None else StepOutcome(step, why="there is no saved answer"))
        if outcomes[-1].why:
            break
    return outcomes


def _judge(step: Step, call: ToolCall | None, catalog: Catalog) -> StepOutcome:
    """Compare the model's call with the step."""
    if call is None:
        return StepOutcome(step, why="" if not step.expected_tools else "no tool was called")
    target = target_call(call) if call.name == CALL_TOOL else call
    call = call if target is None else target
    tool = catalog.find(call.name)
    name = call.name if tool is None else tool.definition.name
    try:
        arguments = decode_arguments(call.arguments)
    except InvalidArguments as error:
        return StepOutcome(step, name, why=f"the arguments are no JSON object: {error}")
    missing = {key for key, value in step.arguments.items() if key not in arguments or arguments[key] != value}
    if not any(expected in (name, call.name) for expected in step.expected_tools):
        why = "another tool was called"
    elif missing:
        why = f"the arguments differ: {', '.join(f'{key}={arguments.get(key)!r}' for key in sorted(missing))}"
    else:
        why = ""
    return StepOutcome(step, name, arguments, why)


def _confusions(outcomes: Iterable[Outcome]) -> Iterator[tuple[str, str, int]]:
    """Yield what was expected, what was called instead, and how often; the most frequent first."""
    counts: dict[tuple[str, str], int] = {}
    for outcome in (step for each in outcomes for step in each.steps):
        if outcome.why and outcome.called not in outcome.step.expected_tools:
            pair = (_name_expected(outcome.step), outcome.called or NO_TOOL)
            counts[pair] = counts.get(pair, 0) + 1
    for (expected, called), times in sorted(counts.items(), key=lambda item: -item[1]):
        yield expected, called, times


def _name_expected(step: Step) -> str:
    return " or ".join(step.expected_tools) or NO_TOOL


def _row(outcome: Outcome) -> tuple[str, str, str, str]:
    asked = " ".join(outcome.case.ask.split())
    shown = asked if len(asked) <= _SHOWN else f"{asked[: _SHOWN - 1]}…"
    result = f"wrong: {outcome.why}" if outcome.why else "right"
    expected = _ARROW.join(map(_name_expected, outcome.case.expected))
    return shown, expected, (outcome.called if outcome.steps else "") or NO_TOOL, result


def _fields(outcome: Outcome) -> dict[str, object]:
    case, first = outcome.case, outcome.steps[0] if outcome.steps else StepOutcome(outcome.case)
    steps = [
        {"expected": list(each.step.expected_tools), **_call_fields(each), "why": each.why or None}
        for each in outcome.steps
    ]
    return {
        "ask": case.ask,
        "expected": list(case.expected[0].expected_tools),
        **_call_fields(first),
        "right": not outcome.why,
        "why": outcome.why or None,
        **({"steps": steps} if case.steps else {}),
    }
