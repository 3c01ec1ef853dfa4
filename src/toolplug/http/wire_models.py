"""What goes over the wire under `/v1` as pydantic models: they read bodies and describe themselves in OpenAPI."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue
from pydantic.json_schema import SkipJsonSchema

from toolplug.catalog.call import ToolStatus
from toolplug.host.gates import Verdict
from toolplug.providers.entry import ProviderState

MAX_TIMEOUT_MS = 300_000
MAX_ID = 256
MAX_NAME = 256
MAX_TOOLSETS = 256

ErrorType = Literal[
    "invalid_request", "forbidden", "not_found", "conflict", "too_many_requests", "server_error", "model_error"
]


def absent(schema: dict[str, JsonValue]) -> None:
    """Describe a field that is left out rather than sent as null: it has no default."""
    del schema["default"]


class CallBody(BaseModel, extra="forbid", strict=True, frozen=True):
    """One tool call."""

    id: Annotated[str | None, Field(max_length=MAX_ID, description="comes back as call_id; made up when absent")] = None
    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME, description="the tool's canonical or wire name")]
    arguments: Annotated[dict[str, object] | str, Field(description="an object, or its JSON text")] = "{}"
    agent: Annotated[str | None, Field(description="whose tools: an agent's")] = None
    session: Annotated[str | None, Field(description="whose tools: those of this session as well")] = None
    toolsets: list[str] | None = Field(
        None, max_length=MAX_TOOLSETS, description="among the agent's; all of them when absent or empty"
    )
    options: dict[str, object] | None = Field(None, description="options of the built-in stub that stands for the tool")
    approval: Annotated[str | None, Field(description="the approval under which the call is repeated")] = None
    timeoutMs: int | None = Field(None, ge=1, le=MAX_TIMEOUT_MS, description="only shortens the tool's own time")  # noqa: N815  the contract's own name


class CallAnswer(BaseModel, extra="forbid"):
    """How a tool call ended."""

    call_id: str
    output: Annotated[str, Field(description="the text that the model sees")]
    is_error: bool
    status: ToolStatus
    structured: object = Field(
        None, description="the JSON value behind the output; absent for plain text", json_schema_extra=absent
    )
    metadata: dict[str, object]
    retry_after_s: float | SkipJsonSchema[None] = Field(
        None, description="after so many seconds the same call may work", json_schema_extra=absent
    )


class ToolList(BaseModel):
    """The caller's tools in one dialect."""

    tools: list[dict[str, object]]


class Health(BaseModel):
    """That the process lives."""

    status: Literal["ok"]


class Readiness(BaseModel):
    """Whether calls can be served, and if not, why."""

    status: Literal["ready", "not_ready"]
    reasons: list[str]


class ProviderAnswer(BaseModel):
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


class ProviderList(BaseModel):
    """Every provider, in the order of the configuration, then those that are only installed."""

    providers: list[ProviderAnswer]


class ReloadAnswer(BaseModel):
    """What a reload did, by provider key."""

    started: list[str]
    kept: list[str]
    stopped: list[str]


class GateAnswer(BaseModel):
    """One gate on the way of a call, what it says to the caller, and the line or call that decided."""

    gate: str
    verdict: Annotated[Verdict, Field(description="ask: open once a person has approved the call")]
    detail: str
    origin: str


class SettingAnswer(BaseModel):
    """The effective value of one knob, and the line or default that it came from."""

    knob: str
    value: str
    origin: str


class ExplainAnswer(BaseModel):
    """Why a call of this tool would run for the caller, or not.

    `nearest` are the names probably meant where nothing is called so, and `homes` says of each where it lives.
    """

    name: str
    found: bool
    callable: bool
    provider: str
    gates: list[GateAnswer]
    settings: list[SettingAnswer]
    nearest: list[str]
    homes: dict[str, str]


class Error(BaseModel):
    """What went wrong."""

    type: ErrorType
    code: str
    message: str
    param: str | None
    request_id: str


class ProblemAnswer(BaseModel):
    """One thing that is wrong with the configuration, and how to mend it."""

    file: str
    line: int
    column: int
    path: str
    code: str
    message: str
    hint: str


class ErrorAnswer(BaseModel):
    """The answer to a request that failed; `problems` beside a configuration that is wrong."""

    error: Error
    problems: list[ProblemAnswer] = []
