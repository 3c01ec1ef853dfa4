"""What goes over the wire under `/api/sessions` as pydantic models: camelCase, as docs/reference/sessions.md has it."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, Self, cast

from pydantic import AliasChoices, BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from toolplug.catalog.exact_json import Answer
from toolplug.http.bodies.request_body import CamelBody
from toolplug.http.errors import Error
from toolplug.http.tools import MAX_ID, MAX_NAME, MAX_TIMEOUT_MS, Arguments, CallAnswer
from toolplug.parts.sessions.limits import MAX_CAPABILITIES, MAX_ENVIRONMENT_KEYS, MAX_TOOLS, MAX_TTL_S, MIN_TTL_S
from toolplug.parts.sessions.queued_calls import QueuedStatus
from toolplug.parts.sessions.tools.negotiation import FailedToolAnswer
from toolplug.parts.sessions.tools.session_tool import CapabilityLevel, CapabilityType, PluginStatus

MAX_REASON = 1000
MAX_ERROR_FIELDS = 100
PLUGIN_TYPE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

PluginType = Annotated[str, Field(pattern=PLUGIN_TYPE, description="the kind of application")]
JsonObject = dict[str, object]


class CreateBody(CamelBody):
    """A new session."""

    plugin_type: PluginType | None = None
    ttl_seconds: int | None = Field(
        None, ge=MIN_TTL_S, le=MAX_TTL_S, description="how long the session lives after its plugin's last sign"
    )


class Created(Answer):
    """A new session. The token opens the plugin's routes of this session; it is shown this once."""

    code: Annotated[str, Field(description="the session's address; no credential")]
    pluginToken: str
    ttl: Annotated[float, Field(description="seconds")]
    expiresAt: str
    streamUrl: str
    mcpUrl: str


class CapabilityAnswer(Answer):
    """One thing that an application can do."""

    type: CapabilityType
    level: CapabilityLevel
    resources: list[object]


class SessionAnswer(Answer):
    """One live session."""

    code: str
    pluginType: str
    capabilities: list[CapabilityAnswer]
    registered: bool
    toolCount: int
    pluginStatus: PluginStatus
    revision: int
    streams: Annotated[int, Field(description="open event streams")]
    expiresAt: str


class SessionList(Answer):
    """The live sessions of the caller's tenant, the oldest first."""

    sessions: list[SessionAnswer]


class SeenToolAnswer(Answer):
    """A tool of a kind of application; the description is cut."""

    name: str
    description: str


class SessionTypeAnswer(Answer):
    """A kind of application that has lent tools, as one of its sessions was registered last."""

    pluginType: str
    live: Annotated[int, Field(description="its sessions that are open now")]
    toolCount: int
    tools: Annotated[list[SeenToolAnswer], Field(description="the first 50")]
    capabilities: list[str]
    firstSeen: str
    lastSeen: str


class SessionTypeList(Answer):
    """The kinds of applications of the caller's tenant, the one that was seen last first."""

    sessionTypes: list[SessionTypeAnswer]


class RegisterBody(CamelBody):
    """The whole set of tools that an application lends."""

    plugin_type: Annotated[PluginType | None, Field(description="that of the session when absent")] = None
    tools: list[object] | None = Field(
        None,
        max_length=MAX_TOOLS,
        description="each {name, description?, inputSchema?, outputSchema?, annotations?, requires?}; without "
        "inputSchema it takes no arguments",
    )
    available_tools: list[object] | None = Field(None, max_length=MAX_TOOLS, description="the same as tools")
    session_code: Annotated[str | None, Field(description="that of the path, where it is sent")] = None
    capabilities: list[object] = Field(
        [],
        max_length=MAX_CAPABILITIES,
        description="each {type, level, resources?}; negotiated before any tool is taken",
    )
    environment: Annotated[
        JsonObject, Field(max_length=MAX_ENVIRONMENT_KEYS, description="what the application says of itself")
    ] = {}  # noqa: RUF012  pydantic copies it
    atomic: Annotated[bool, Field(description="all tools or none")] = False


class CleanedToolAnswer(Answer):
    """A tool that was taken without invisible characters, and without what is no JSON Schema."""

    toolName: str
    removed: Annotated[list[str], Field(description="each as `/path: why`")]


CleanedTools = Annotated[list[CleanedToolAnswer], Field(description="those from which something was removed")]


class SessionLimitsAnswer(Answer):
    """What the host allows a session."""

    maxTools: int
    maxUpdatesPerMinute: int
    maxWaitingCalls: int


class SessionConfiguration(Answer):
    """How the host holds a session."""

    pluginType: str
    capabilities: list[CapabilityAnswer]
    environment: JsonObject
    limits: SessionLimitsAnswer
    ttlSeconds: float
    graceSeconds: float
    heartbeatSeconds: float


class RegisterAnswer(Answer):
    """What was registered, and what could not be."""

    success: bool
    registeredTools: list[str]
    failedTools: list[FailedToolAnswer]
    sessionConfiguration: SessionConfiguration
    revision: int
    cleanedTools: NotRequired[CleanedTools]


_Definitions = Annotated[list[object], Field(max_length=MAX_TOOLS)]


class ToolUpdates(CamelBody):
    """What changes of a set of tools; `modified` names tools by the name in their definition."""

    added: _Definitions = []  # noqa: RUF012  pydantic copies it
    removed: Annotated[list[str], Field(max_length=MAX_TOOLS)] = []  # noqa: RUF012  pydantic copies it
    modified: _Definitions = []  # noqa: RUF012  pydantic copies it


class UpdateBody(CamelBody):
    """A change of the tools that an application lends: all of it or nothing."""

    tool_updates: ToolUpdates
    reason: Annotated[str, Field(max_length=MAX_REASON, description="passed on to every client")] = ""


class ToolUpdatesAnswer(Answer):
    """What has changed, with the definitions as they are kept."""

    added: list[JsonObject]
    removed: list[str]
    modified: list[JsonObject]


class UpdateAnswer(Answer):
    """What an update changed; nothing: the revision is the one before."""

    success: bool
    revision: int
    updates: ToolUpdatesAnswer
    cleanedTools: NotRequired[CleanedTools]


class Metadata(Answer):
    """A session as its clients see it; each tool says whether it is `available`, and if not, the `reason`."""

    apiVersion: Literal["2.0.0"]
    sessionId: str
    pluginType: str
    pluginStatus: PluginStatus
    capabilities: list[CapabilityAnswer]
    tools: list[JsonObject]
    environment: JsonObject
    toolCount: int
    revision: int
    registered: bool
    lastUpdated: str
    expiresAt: str


class SessionCallBody(CamelBody):
    """One call of a tool of the session, or of a provider's."""

    id: str | None = Field(
        None,
        max_length=MAX_ID,
        validation_alias=AliasChoices("id", "requestId"),
        description="comes back as call_id; made up when absent",
    )
    tool: Annotated[str, Field(min_length=1, max_length=MAX_NAME, description="the tool's canonical or wire name")]
    arguments: Arguments = Field(
        "{}", validation_alias=AliasChoices("arguments", "args"), description="an object, or its JSON text"
    )
    agent: Annotated[str | None, Field(description="the agent whose tools are listed with those of the session")] = None
    approval: Annotated[str | None, Field(description="the approval under which the call is repeated")] = None
    timeout_ms: int | None = Field(
        None, ge=1, le=MAX_TIMEOUT_MS, description="30,000 for a session's own tool when absent"
    )
    wait: Annotated[bool, Field(description="false: answer at once, and give the result to who asks for it")] = True


class QueuedAnswer(Answer):
    """A call that was taken; `id` is the one to ask for its result with."""

    id: str
    status: Literal["queued"]


class CallState(Answer):
    """How far a call is; `result` is there when it is done."""

    id: str
    call_id: Annotated[str, Field(description="the caller's own id")]
    status: QueuedStatus
    result: NotRequired[Annotated[CallAnswer, Field(title="Result", description="as POST /v1/tool-calls answers")]]


class ResultError(
    BaseModel, extra="ignore", strict=True, frozen=True, json_schema_extra={"maxProperties": MAX_ERROR_FIELDS}
):
    """Why a request could not be done; other fields than the message are ignored."""

    message: str

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: object) -> object:
        if isinstance(value, dict) and len(cast("dict[str, object]", value)) > MAX_ERROR_FIELDS:
            raise PydanticCustomError("too_long", "it has too many fields", {"max_length": MAX_ERROR_FIELDS})
        return cast("object", value)


class ResultBody(CamelBody):
    """A plugin's answer to a `tool-request`: exactly one of result and error, or how far it is."""

    id: str = Field(
        min_length=1,
        max_length=MAX_ID,
        validation_alias=AliasChoices("id", "requestId"),
        description="the id of the tool-request event",
    )
    result: Annotated[object, Field(description="any JSON value; null is one")] = None
    error: Annotated[str | ResultError | None, Field(description="text for the model")] = None
    progress: Annotated[float | None, Field(description="how much is done; the call goes on")] = None
    total: Annotated[float | None, Field(description="how much there is")] = None
    message: Annotated[str | None, Field(max_length=MAX_REASON, description="what is being done")] = None

    @model_validator(mode="after")
    def _one_of_three(self) -> Self:
        given = self.model_fields_set & {"result", "error", "progress"}
        if len(given) != 1:
            raise PydanticCustomError("one_of_three", "send exactly one of 'result', 'error' and 'progress'")
        kind = given.pop()
        # By the fields that were sent, not by None: `"result": null` is an answer.
        if kind != "result" and getattr(self, kind) is None:
            message = "'{kind}' must not be null; a request that gives nothing has a result, which may be"
            raise PydanticCustomError("no_null", message, {"kind": kind})
        if kind != "progress" and self.model_fields_set & {"total", "message"}:
            raise PydanticCustomError("progress_only", "'total' and 'message' need 'progress'")
        return self


class ResultAnswer(Answer):
    """The answer was passed on to the waiting caller."""

    success: bool
    id: str
    status: Literal["done", "progress"]


class HeartbeatAnswer(Answer):
    """When the session expires unless its plugin gives another sign."""

    success: bool
    expiresAt: str


class LoggedEvent(Answer):
    """One event of the session's log, without the arguments of requests."""

    id: int
    event: str
    data: JsonObject


class EventsAnswer(Answer):
    """The events after a position; `resync`: the log does not hold that position, so something may be missing."""

    events: list[LoggedEvent]
    position: int
    resync: bool


class RefusedRegistration(TypedDict):
    """A registration that failed."""

    error: Error
    failedTools: NotRequired[list[FailedToolAnswer]]
