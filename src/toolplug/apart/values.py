"""The values of calls and providers as JSON: callers, contexts, results, definitions, hooks, errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator

from toolplug.catalog.call import (
    EMPTY,
    CallContext,
    CallerAuth,
    CannotAsk,
    Credentials,
    Deadline,
    NobodyToAsk,
    Principal,
    ToolCall,
    ToolResult,
    ToolStatus,
    ask_nobody,
)
from toolplug.catalog.definition import Hosted, HostedItem, ToolDefinition, ToolHints, ToolRef
from toolplug.catalog.exact_json import as_object, dump_json, load_json, load_own_json
from toolplug.catalog.schema import Schema
from toolplug.catalog.text import clean_text
from toolplug.crashes import outline_error
from toolplug.errors import (
    InvalidArguments,
    InvalidDefinition,
    InvalidJson,
    ProviderError,
    QuotaExceeded,
    RecordDamaged,
    StoreConflict,
    StoredBytesExceeded,
    StoreError,
    StoreMisused,
    StoreRefused,
    StoreUnavailable,
    ToolError,
    ToolplugError,
    ToolUnavailable,
)
from toolplug.providers.entry import ProviderState
from toolplug.providers.provider import SignInEndpoints
from toolplug.signatures.values import encode_value

Head = dict[str, Any]
"""The head of a message that was read; its values are what the other side says."""
NOT_VALID = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What it raises to use such a value: the last is of numbers that are infinite, or too large for a float."""


class ProcessCrash(ToolplugError):
    """Code in the process of a provider raised something else than an error of toolplug; its type and line.

    The text of the exception, which may have arguments in it, is in the provider's log only.
    """


Text = Annotated[str, AfterValidator(clean_text)]
"""A text that is printed at terminals."""


def _read_path(text: object) -> object:
    try:
        return load_own_json(str(text).encode())
    except InvalidJson as error:
        raise ValueError(str(error)) from None


class FoundProblem(BaseModel):
    """A problem of the settings; `path` is a JSON array, and leads to a value among the provider's own."""

    path: Annotated[tuple[str | int, ...], BeforeValidator(_read_path)] | None
    code: Text
    message: Text
    hint: Text
    at_key: bool


class DescribedProvider(BaseModel):
    """What a process says of its provider before it is started; an older one has some of it not."""

    problems: tuple[FoundProblem, ...]
    secrets: frozenset[str]
    tools: tuple[str, ...]
    routes: tuple[tuple[str, str], ...]
    scopes: frozenset[str] | None
    unchecked: tuple[Text, ...]
    names_sign_in: bool = False
    data: dict[str, str] = {}
    data_refused: Text = ""


_PLAIN = {
    kind.__name__: kind
    for kind in (CannotAsk, InvalidDefinition, RecordDamaged, StoreError, StoreMisused, StoreRefused, StoreUnavailable)
}
"""Errors that are a text and nothing else."""


def encode_error(error: BaseException) -> Mapping[str, object]:
    """Return an error as JSON. Of an exception that is not toolplug's own only type and line are sent."""
    text = str(error)
    match error:
        case StoreConflict():
            fields: Mapping[str, object] = {"key": error.key, "expected": error.expected, "actual": error.actual}
        case QuotaExceeded():
            fields = {"quota": error.quota, "retry": error.retry_after_s}
        case ToolUnavailable():
            fields = {"code": error.code, "metadata": error.metadata, "retry": error.retry_after_s}
        case ToolError():
            fields = {"metadata": error.metadata, "retry": error.retry_after_s}
        case InvalidArguments():
            fields = {"lines": error.lines}
        case ProviderError():
            fields = {"state": error.state, "fix": error.fix, "summary": error.summary, "at": error.at}
        case _:
            known = next((name for name, kind in _PLAIN.items() if type(error) is kind), None)
            if known is None:
                return {"type": "ProcessCrash", "text": outline_error(error)}
            fields = {}
    kind = next((each for each in _FIELDS if isinstance(error, each)), type(error))
    return {"type": kind.__name__, "text": text, **fields}


_FIELDS = (
    StoreConflict,
    StoredBytesExceeded,
    QuotaExceeded,
    ToolUnavailable,
    ToolError,
    InvalidArguments,
    ProviderError,
)
_FAILURES = frozenset(
    (
        ProviderState.IMPORT_FAILED,
        ProviderState.CONFIG_INVALID,
        ProviderState.START_FAILED,
        ProviderState.INCOMPATIBLE,
    )
)
"""The states of a provider that does not run; another one is not for its process to say."""
_MAX_TEXT = 64 * 1024
_CALLERS = 1_000
"""Callers whose text is remembered, with their scopes; those of most hosts at once."""


def decode_error(given: object) -> Exception:
    """Return the error that the other side raised; a `ProcessCrash` for one that is not valid."""
    try:
        return _decode_error(cast("Head", given) if isinstance(given, dict) else {})
    except NOT_VALID:
        return ProcessCrash("an error that is not valid")


def _decode_error(head: Head) -> Exception:
    text = str(head.get("text", ""))[:_MAX_TEXT]
    retry = _number(head.get("retry"))
    match head.get("type"):
        case "StoreConflict":
            return StoreConflict(str(head["key"]), expected=int(head["expected"]), actual=int(head["actual"]))
        case "StoredBytesExceeded":
            return StoredBytesExceeded(str(head["quota"]), text, retry or 0.0)
        case "QuotaExceeded":
            return QuotaExceeded(str(head["quota"]), text, retry or 0.0)
        case "ToolUnavailable":
            metadata = as_object(head.get("metadata"))
            return ToolUnavailable(text, code=str(head["code"]), metadata=metadata, retry_after_s=retry)
        case "ToolError":
            return ToolError(text, metadata=as_object(head.get("metadata")), retry_after_s=retry)
        case "InvalidArguments":
            return InvalidArguments([str(line) for line in head["lines"]])
        case "ProviderError":
            # Printed at terminals, with the state of the provider.
            at = tuple(clean_text(str(part)) for part in head.get("at", ()))
            fix, summary = clean_text(str(head["fix"])), clean_text(str(head.get("summary", "")))
            state = ProviderState(head["state"])
            if state not in _FAILURES:
                raise ValueError(state)
            return ProviderError(clean_text(text), state=state, fix=fix, at=at, summary=summary)
        case str(name) if name in _PLAIN:
            return _PLAIN[name](text)
        case _:
            return ProcessCrash(text)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


# A caller makes many calls, and each would write and read the same text.
@lru_cache(_CALLERS)
def encode_principal(principal: Principal) -> str:
    """Return a caller as the text of a JSON array, without the digest of its credential."""
    agents = None if principal.agents is None else sorted(principal.agents)
    return dump_json([principal.subject, principal.tenant, sorted(principal.scopes), agents]).decode()


@lru_cache(_CALLERS)
def decode_principal(text: str) -> Principal:
    """Return a caller, in its process."""
    subject, tenant, scopes, agents = cast("list[Any]", load_json(text.encode()))
    return Principal(subject, tenant, frozenset(scopes), None if agents is None else frozenset(agents))


_CONTEXT_FIELDS = (
    "session",
    "agent",
    "idempotency_key",
    "approval",
    "options",
    "request_id",
    "credentials",
    "conversation",
    "via",
    "trace_context",
)
_CONTEXT_KEYS = frozenset(_CONTEXT_FIELDS)
# Each attribute of a named tuple takes half as long as all of these items together.
_context_values = itemgetter(*map(CallContext._fields.index, _CONTEXT_FIELDS))

_NOBODY = cast("NobodyToAsk", ask_nobody).reason


def encode_context(context: CallContext, now: float) -> Head:
    """Return a context as JSON; `now` is the time of the loop: the deadline is sent as the seconds that are left."""
    head: Head = {"who": encode_principal(context.principal)}
    values = _context_values(context)
    if any(values):
        for name, value in zip(_CONTEXT_FIELDS, values, strict=True):
            if value:
                head[name] = dict(value) if isinstance(value, Mapping) else value  # pyright: ignore[reportUnknownArgumentType]
    deadline = context.deadline
    if deadline is not None:
        head["left"] = deadline - now
        if isinstance(deadline, Deadline):
            head["within"] = deadline.within_s
    if context.user_auth is not None:
        head["auth"] = context.user_auth[1:]
    if isinstance(context.ask, NobodyToAsk):
        # Said also where it is the usual reason: what is not said has a user.
        head["nobody"] = context.ask.reason
    return head


async def _no_credential(context: CallContext, refused: str) -> str:
    raise ToolUnavailable("the call has ended", code="call_ended")


def decode_context(head: Head, now: float) -> CallContext:
    """Return a context in the process of the provider, without `report` and `ask` where the caller has a user."""
    deadline: float | None = None
    if "within" in head:
        deadline = Deadline(now + head["left"])
        deadline.within_s = head["within"]
    elif "left" in head:
        deadline = now + head["left"]
    context = CallContext(decode_principal(head["who"]), deadline=deadline)
    given = {} if _CONTEXT_KEYS.isdisjoint(head) else {name: head[name] for name in _CONTEXT_FIELDS if name in head}
    if "credentials" in given:
        given["credentials"] = Credentials(given["credentials"])
    if "via" in given:
        given["via"] = tuple(given["via"])
    if "auth" in head:
        # The process that runs the call puts its own way to the host in place of this one, which has none.
        given["user_auth"] = CallerAuth(_no_credential, *head["auth"])
    if "nobody" in head and head["nobody"] != _NOBODY:
        given["ask"] = NobodyToAsk(head["nobody"])
    return context._replace(**given) if given else context


def decode_sign_in(given: Sequence[Any]) -> SignInEndpoints:
    *urls, scopes = given
    return SignInEndpoints(*map(str, urls), scopes=tuple(map(str, scopes)))


def encode_call(call: ToolCall) -> Head:
    """Return a call as JSON, for hooks."""
    given = call.arguments
    text = given.decode("utf-8", "replace") if isinstance(given, bytes) else given
    return {"call_id": call.id, "name": call.name, "arguments": dict(text) if isinstance(text, Mapping) else text}


def decode_call(head: Head) -> ToolCall:
    """Return a call, for hooks."""
    return ToolCall(head["call_id"], head["name"], head["arguments"])


def encode_result(result: ToolResult, *, as_value: bool = False) -> tuple[Head, bytes]:
    """Return head and text of a result. `as_value`: its text is the JSON of its value, which is not sent twice."""
    head: Head = {"status": str(result.status)}
    if as_value:
        head["value"] = True
    elif result.structured is not None:
        head["structured"] = result.structured
    if result.parts:
        head["parts"] = [dict(part) for part in result.parts]
    if result.metadata:
        head["metadata"] = dict(result.metadata)
    if result.retry_after_s is not None:
        head["retry"] = result.retry_after_s
    return head, result.output.encode("utf-8", "surrogatepass")


_SUCCESS = ToolStatus.SUCCESS.value
_RESULT_FIELDS = frozenset(("structured", "parts", "metadata", "retry"))


def decode_result(head: Head, body: bytes) -> object:
    """Return what the tool returned, as the host's pipeline takes it: a text, a JSON value, or a `ToolResult`.

    Raises `ValueError` for a status that there is not, and `InvalidJson`.
    """
    if head["status"] == _SUCCESS and _RESULT_FIELDS.isdisjoint(head):
        return load_json(body) if "value" in head else body.decode()
    structured = load_json(body) if "value" in head else head.get("structured")
    return ToolResult(
        output=body.decode(),
        status=ToolStatus(head["status"]),
        structured=structured,
        parts=tuple(as_object(part) for part in head.get("parts", ())),
        metadata=as_object(head.get("metadata")),
        retry_after_s=_number(head.get("retry")),
    )


def whole_result(head: Head, call: ToolCall) -> ToolResult:
    """Return a result that was sent for a hook."""
    return ToolResult(
        call.id,
        call.name,
        head["output"],
        ToolStatus(head["status"]),
        head.get("structured"),
        tuple(head.get("parts", ())),
        as_object(head.get("metadata")),
        _number(head.get("retry")),
    )


def encode_definition(tool: ToolDefinition) -> Head:
    head: Head = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters.value,
        "output": None if tool.output_schema is None else tool.output_schema.value,
        "hints": list(tool.hints),
        "timeout_s": tool.timeout_s,
        "title": tool.title,
        "icons": [dict(icon) for icon in tool.icons],
        "meta": dict(tool.meta),
        "ref": list(tool.ref),
    }
    if tool.hosted is not None:
        stubs, options, item = tool.hosted
        shown = None if item is None else [item.type, item.events, dict(item.fields), item.on_include, item.at_end]
        head["hosted"] = [stubs, None if options is None else options.value, shown]
    return head


def decode_definition(head: Head) -> ToolDefinition:
    """Return the definition of a tool. Raises `InvalidDefinition` and `TypeError` for one that is not valid."""
    hosted = None
    if "hosted" in head:
        stubs, options, item = head["hosted"]
        shown = (
            None if item is None else HostedItem(str(item[0]), tuple(item[1]), item[2], tuple(item[3]), item[4] is True)
        )
        schema = None if options is None else Schema(options)
        hosted = Hosted(tuple(stubs), schema, shown)
    return ToolDefinition(
        name=str(head["name"]),
        description=str(head["description"]),
        parameters=head["parameters"],
        output_schema=head["output"],
        hints=ToolHints(*head["hints"]),
        hosted=hosted,
        timeout_s=_number(head["timeout_s"]),
        title=str(head["title"]),
        icons=tuple(as_object(icon) for icon in head["icons"]),
        meta=as_object(head["meta"]),
        ref=ToolRef(*head["ref"]) if "ref" in head else None,
    )


def shown_definition(head: Head | None) -> ToolDefinition | None:
    """Return the definition of the tool of a call, for hooks."""
    return None if head is None else decode_definition(head)


def own_definition(head: Head) -> ToolDefinition:
    """Return the definition of a tool that a process lists; who it is from is not for the process to say."""
    return decode_definition({name: value for name, value in head.items() if name != "ref"})


def fit_result(result: ToolResult, limit: int) -> ToolResult:
    """Return the result without parts, then structured content, that would make its message longer than `limit`."""
    head, body = encode_result(result)
    if len(dump_json(head)) + len(body) <= limit:
        return result
    for name, what in (("parts", "parts"), ("structured", "structured content"), ("metadata", "metadata")):
        value = getattr(result, name)
        if value:
            size = len(dump_json(list(value) if name == "parts" else value))
            empty: object = {"parts": (), "structured": None, "metadata": EMPTY}[name]
            output = f"{result.output}\n[left out: {size} bytes of {what}]"
            result = result._replace(**{name: empty, "output": output})
            head, body = encode_result(result)
            if len(dump_json(head)) + len(body) <= limit:
                return result
    return result._replace(output=result.output[: limit // 8])


def is_text_of(text: str, value: object) -> bool:
    """Return whether the text is the JSON of the value, as results have it."""
    return encode_value(value) == text
