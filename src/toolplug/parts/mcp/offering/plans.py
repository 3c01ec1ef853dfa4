"""Plans of a server's prompts and resources, which ask the server over a connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.exact_json import as_object
from toolplug.catalog.offering import EMPTY_OFFERING, Follow, Instructions, OfferedEntry, Offering
from toolplug.catalog.plan import Plan
from toolplug.catalog.text import clean_text, in_one_line
from toolplug.parts.mcp.client.connection_strategies import ConnectionStrategy, SwitchedConnection
from toolplug.parts.mcp.client.plans import ServerPlanner, refusals_in_words
from toolplug.parts.mcp.discovery.offers import NO_OFFERS, FoundOffers
from toolplug.parts.mcp.limits import MAX_MESSAGE_BYTES

GET_PROMPT = "prompts/get"
READ_RESOURCE = "resources/read"
COMPLETE = "completion/complete"

_VIEW = "ui://"
MAX_COMPLETIONS = 100
_MAX_COMPLETION = 1_024
_OWN_META = ("io.modelcontextprotocol/", "toolplug/")

Parameters = Callable[[ToolCall], Mapping[str, object]]


def planned_offers(
    found: FoundOffers, planner: ServerPlanner, reach: SwitchedConnection, follow: Follow | None = None
) -> Offering:
    """Return what a server offers besides its tools, under its own names; nothing if its policy is `disable`.

    The policy `deny` refuses prompts and resources as it refuses tools. With `ask` they are not asked about: nothing is
    done but to read.
    """
    if found == NO_OFFERS or planner.hides_all:
        return EMPTY_OFFERING
    requests = _Requests(planner, reach)
    prompts = {str(item["name"]): requests.prompt(item) for item in found.prompts}
    resources = {str(item["uri"]): requests.resource("uri", item, follow) for item in found.resources}
    templates = {str(item["uriTemplate"]): requests.resource("uriTemplate", item, follow) for item in found.templates}
    instructions = (Instructions("", found.instructions),) if found.instructions else ()
    return Offering(prompts=prompts, resources=resources, templates=templates, instructions=instructions)


class _Requests:
    """Builds the plans of one server's prompts and resources, over one connection."""

    def __init__(self, planner: ServerPlanner, reach: SwitchedConnection) -> None:
        self._planner = planner
        self._reach = reach

    def prompt(self, item: Mapping[str, object]) -> OfferedEntry:
        """Return a prompt with its plans."""
        name = str(item["name"])
        fields = {key: value for key, value in item.items() if key != "name"}
        get = self._plan(GET_PROMPT, name, lambda call: {"name": name, "arguments": call.arguments}, _as_sent)
        reference = {"type": "ref/prompt", "name": name}
        completion = self._completion(name, reference) if item.get("arguments") else None
        return OfferedEntry(key=name, fields=fields, plan=get, completion=completion)

    def resource(self, key: str, item: Mapping[str, object], follow: Follow | None) -> OfferedEntry:
        """Return a resource, or template, with its plans."""
        uri = str(item[key])
        read = self._plan(READ_RESOURCE, uri, lambda call: {"uri": as_object(call.arguments)["uri"]}, _as_sent)
        reference = {"type": "ref/resource", "uri": uri}
        completion = self._completion(uri, reference) if key == "uriTemplate" else None
        if uri.startswith(_VIEW):  # shown by the model's program, never sent to the model
            read = replace(read, max_result_bytes=max(read.max_result_bytes, MAX_MESSAGE_BYTES))
        return OfferedEntry(key=uri, fields=item, plan=read, completion=completion, follow=follow)

    def _completion(self, name: str, reference: Mapping[str, object]) -> Plan:
        def parameters(call: ToolCall) -> Mapping[str, object]:
            given = as_object(call.arguments)
            asked = {"ref": reference, "argument": {"name": given["argument"], "value": given["value"]}}
            context = given.get("context")
            return {**asked, "context": {"arguments": context}} if context else asked

        return self._plan(COMPLETE, name, parameters, _read_completion)

    def _plan(
        self,
        method: str,
        name: str,
        parameters: Parameters,
        result: Callable[[Mapping[str, object]], Mapping[str, object]],
    ) -> Plan:
        return self._planner.request(method, name, _asking(self._reach, method, parameters, result), self._reach)


def _asking(
    reach: SwitchedConnection,
    method: str,
    parameters: Parameters,
    result: Callable[[Mapping[str, object]], Mapping[str, object]],
) -> Callable[[ToolCall, CallContext], Awaitable[ToolResult]]:
    async def target(call: ToolCall, context: CallContext, /) -> ToolResult:
        async def ask_over(line: ConnectionStrategy, headers: Mapping[str, str]) -> Mapping[str, object]:
            return await line.ask(lambda connection: connection.request(method, parameters(call), headers))

        with refusals_in_words(coded=True):
            answer = await reach.ask_as(context, ask_over)
        return ToolResult(structured=dict(result(answer)))

    return target


def _as_sent(answer: Mapping[str, object]) -> Mapping[str, object]:
    """Return messages or contents, without what speaks of the server and of caching."""
    kept = {key: answer[key] for key in ("description", "messages", "contents") if key in answer}
    meta = {key: value for key, value in as_object(answer.get("_meta")).items() if not key.startswith(_OWN_META)}
    return {**kept, "_meta": meta} if meta else kept


def _read_completion(answer: Mapping[str, object]) -> Mapping[str, object]:
    """Return the values of a completion, cleaned and cut; people see them."""
    completion = as_object(answer.get("completion"))
    values = cast("Sequence[object]", completion.get("values", ()))
    texts = [in_one_line(clean_text(value[:_MAX_COMPLETION])) for value in values if isinstance(value, str)]
    counts = {key: completion[key] for key in ("total", "hasMore") if completion.get(key) is not None}
    return {"completion": {"values": texts[:MAX_COMPLETIONS], **counts}}
