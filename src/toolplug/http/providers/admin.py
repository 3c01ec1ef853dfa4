"""`/v1/providers`, `/v1/reload`, `/v1/configuration` and `/v1/explain`: what an operator sees and changes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Literal, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict

from toolplug.catalog.call import ADMIN, OPERATOR
from toolplug.catalog.text import pluralize
from toolplug.cluster.processes import RunningProcess
from toolplug.config.units import timestamp
from toolplug.errors import ConfigError, Problem, StoreError
from toolplug.host.admin.admin import LastReload, ProcessReload
from toolplug.host.admin.reload import Reloaded
from toolplug.host.explain_gates import VerdictWord
from toolplug.host.file.values import ValueSource
from toolplug.http.auth.authentication import viewer_of
from toolplug.http.bodies.request_body import OrjsonResponse
from toolplug.http.errors import HttpProblem, ProblemAnswer, invalid_request
from toolplug.http.requests import HostRequest, acting, query_fields, requested_session
from toolplug.http.routing import READ, TENANT, Parameter, answers, route
from toolplug.http.tools import AGENT, SESSION
from toolplug.providers.entry import ProviderRecord, ProviderState


class ProviderAnswer(TypedDict):
    """One provider as an operator sees it."""

    key: str
    type: str
    state: ProviderState
    reason: str
    fix: str
    tools: list[str]
    routes: list[str]
    distribution: str
    version: str


class ProcessAnswer(TypedDict):
    """One process of a shared store; those whose digests differ serve different configuration files."""

    process: str
    host: str
    pid: int
    since: str
    configuration: Annotated[str, Field(description="a digest of what its file sets, empty while it is not known")]


class ProviderList(TypedDict):
    """Every provider of this process, in the order of the configuration, then those that are only installed.

    `processes` is for `admin` only: the processes of a shared store, each with its own providers.
    """

    providers: list[ProviderAnswer]
    processes: NotRequired[list[ProcessAnswer]]


class ReloadedProviders(TypedDict):
    """What a reload did, by provider key."""

    started: list[str]
    kept: list[str]
    stopped: list[str]


class ProcessReloadAnswer(ReloadedProviders):
    """What a reload did in one process of a shared store; one with problems goes on as before."""

    process: str
    problems: list[ProblemAnswer]


class ReloadAnswer(ReloadedProviders):
    """What a reload did in the process that was asked, and of a shared store in each process, this one first."""

    processes: NotRequired[list[ProcessReloadAnswer]]


class GateAnswer(TypedDict):
    """One gate on the way of a call, what it says to the caller, and the line or call that decided."""

    gate: str
    verdict: Annotated[VerdictWord, Field(description="asks: passes once a person has approved the call")]
    detail: str
    origin: str


class SettingAnswer(TypedDict):
    """The effective value of one setting, and the line or default that it came from."""

    name: str
    value: str
    origin: str


class ExplainAnswer(TypedDict):
    """Why a call of this tool would run for the caller, or not; `reason` is empty where it passes.

    `nearest` are the names probably meant where nothing is called so, and `homes` says of each where it lives.
    """

    name: str
    found: bool
    callable: bool
    verdict: VerdictWord
    reason: str
    provider: str
    gates: list[GateAnswer]
    settings: list[SettingAnswer]
    nearest: list[str]
    homes: dict[str, str]


class ValueAnswer(TypedDict):
    """One value of the running configuration."""

    path: str
    value: Annotated[str, Field(description="*** for a secret; what refers to the environment as it is written")]
    source: ValueSource
    origin: Annotated[str, Field(description="file and line, default, or the request that has set it")]
    secret: bool


class ValueChangeAnswer(TypedDict):
    """One value that a reload has changed."""

    path: str
    kind: Literal["added", "removed", "changed"]
    before: str
    after: str
    origin: Annotated[str, Field(description="file and line; of a removed value, where it was")]


class LastReloadAnswer(TypedDict):
    """The last reload of the process. A refused one has problems, and has changed nothing."""

    at: str
    by: str
    applied: bool
    changes: list[ValueChangeAnswer]
    providers: ReloadedProviders
    problems: list[ProblemAnswer]


class ConfigurationAnswer(TypedDict):
    """The running configuration, in the order of its sections.

    `lastReload` is null before the first reload, and without the scope `operator`.
    """

    file: str
    values: list[ValueAnswer]
    lastReload: LastReloadAnswer | None


_TOOL = Parameter("tool", "the tool's canonical or wire name", required=True)


@route("GET", "/v1/providers", READ, "Every provider and its state")
@answers(ProviderList)
async def list_providers(request: HostRequest) -> OrjsonResponse[ProviderList]:
    """Answer every provider with its state, the reason, and what to do about it.

    The text of an exception is for `admin` only. A credential of agents is shown those that they can reach.
    """
    host, principal = request.state["host"], request.state["principal"]
    reach, operates = host.reach(principal), principal.has_scope(ADMIN)
    shown = [
        _fields(record, operates=operates)
        for record in host.records()
        if reach is None or record.key in reach.providers
    ]
    body: ProviderList = {"providers": shown}
    if operates and host.store.shared:
        with suppress(StoreError):  # the providers of this process are known without the store
            body["processes"] = [_process(name, process) for name, process in (await host.admin.processes()).items()]
    return OrjsonResponse(body)


@route("POST", "/v1/providers/{key}/enable", OPERATOR, "Start a provider")
@answers(ProviderAnswer, errors=(404, 422))
async def enable_provider(request: HostRequest) -> OrjsonResponse[ProviderAnswer]:
    """Start a provider until the next start or reload. Raises `HttpProblem` and `NoSuchProvider`."""
    key = request.path_params["key"]
    try:
        await request.state["host"].enable(key, **acting(request))
    except ConfigError as error:
        raise _config_invalid(error) from None
    return _record_response(request, key)


@route("POST", "/v1/providers/{key}/disable", OPERATOR, "Stop a provider")
@answers(ProviderAnswer, errors=(404,))
async def disable_provider(request: HostRequest) -> OrjsonResponse[ProviderAnswer]:
    """Stop a provider until the next start or reload; what runs ends. Raises `NoSuchProvider`."""
    key = request.path_params["key"]
    await request.state["host"].disable(key, **acting(request))
    return _record_response(request, key)


@route("POST", "/v1/reload", OPERATOR, "Read the configuration again")
@answers(ReloadAnswer, errors=(422,))
async def reload(request: HostRequest) -> OrjsonResponse[ReloadAnswer]:
    """Read the configuration again; then the other processes of a shared store read theirs.

    Raises `HttpProblem` with every problem of this process's configuration; then nothing has changed anywhere.
    """
    host = request.state["host"]
    try:
        done = await host.reload(**acting(request))
    except ConfigError as error:
        raise _config_invalid(error) from None
    body: ReloadAnswer = {**_describe_reload(done)}
    if host.store.shared:
        others = await host.admin.reload_others(by=request.state["principal"])
        outcomes = {host.admin.process: ProcessReload(done), **others}
        body["processes"] = [_process_reload(process, outcome) for process, outcome in outcomes.items()]
    return OrjsonResponse(body)


def _process(name: str, process: RunningProcess) -> ProcessAnswer:
    return {
        "process": name,
        "host": process.host,
        "pid": process.pid,
        "since": timestamp(process.since),
        "configuration": process.config,
    }


def _record_response(request: HostRequest, key: str) -> OrjsonResponse[ProviderAnswer]:
    record = next(record for record in request.state["host"].records() if record.key == key)
    return OrjsonResponse(_fields(record, operates=True))


def _fields(record: ProviderRecord, *, operates: bool) -> ProviderAnswer:
    return {
        "key": record.key,
        "type": record.type,
        "state": record.state,
        "reason": record.reason if operates else record.summary or record.reason,
        "fix": record.fix,
        "tools": [*record.tools],
        "routes": [*record.routes],
        "distribution": record.distribution,
        "version": record.version,
    }


def _config_invalid(error: ConfigError) -> HttpProblem:
    message = f"the configuration has {pluralize(len(error.problems), 'problem')}; nothing was changed"
    problems = [asdict(problem) for problem in error.problems]
    return HttpProblem(422, "config_invalid", message, extra={"problems": problems})


@route("GET", "/v1/configuration", ADMIN, "The running configuration, with origins")
@answers(ConfigurationAnswer)
async def get_configuration(request: HostRequest) -> OrjsonResponse[ConfigurationAnswer]:
    """Answer every value with its origin, without secrets, as it applies to the caller's tenant; and the last reload.

    A value that was set at run time takes the place of that of the file. The keys of other tenants, their names in
    rules, and the last reload, which may name both, are for `operator`.
    """
    host, principal = request.state["host"], request.state["principal"]
    last = host.last_reload if principal.has_scope(OPERATOR) else None
    body: ConfigurationAnswer = {
        "file": host.source_name,
        "values": [
            {
                "path": value.path,
                "value": value.text,
                "source": value.source,
                "origin": value.origin,
                "secret": value.secret,
            }
            for value in host.configured_values(principal)
        ],
        "lastReload": None if last is None else _last_reload(last),
    }
    return OrjsonResponse(body)


def _last_reload(last: LastReload) -> LastReloadAnswer:
    return {
        "at": timestamp(last.at),
        "by": last.by,
        "applied": not last.problems,
        "changes": [
            {"path": path, "kind": kind, "before": before, "after": after, "origin": origin}
            for path, kind, before, after, origin in last.changes
        ],
        "providers": _describe_reload(last.providers),
        "problems": [_problem(problem) for problem in last.problems],
    }


def _process_reload(process: str, outcome: ProcessReload) -> ProcessReloadAnswer:
    problems = [_problem(problem) for problem in outcome.problems]
    return {"process": process, **_describe_reload(outcome.done), "problems": problems}


def _problem(problem: Problem) -> ProblemAnswer:
    return cast("ProblemAnswer", asdict(problem))


def _describe_reload(done: Reloaded) -> ReloadedProviders:
    return {"started": [*done.started], "kept": [*done.kept], "stopped": [*done.stopped]}


@route("GET", "/v1/explain", ADMIN, "Why a call would run or not", parameters=(_TOOL, AGENT, SESSION, TENANT))
@answers(ExplainAnswer, errors=(400, 404))
async def explain(request: HostRequest) -> OrjsonResponse[ExplainAnswer]:
    """Answer for the caller's own credential, in the tenant of the query.

    Raises `HttpProblem`, and `AccessError` for the session.
    """
    state = request.state
    query = query_fields(request)
    tool = query.get("tool")
    if not tool:
        raise invalid_request("the query lacks 'tool', the name of the tool to explain", "tool")
    viewer = viewer_of(request)
    session = await requested_session(request, viewer.tenant)
    found = state["host"].explain(tool, viewer, agent=query.get("agent") or None, session=session)
    return OrjsonResponse(cast("ExplainAnswer", found.fields))
