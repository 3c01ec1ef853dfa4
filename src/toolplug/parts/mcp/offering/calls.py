"""Lists, prompts, resources and completions of an offering, for one caller.

A caller's offering has only what it may see: a hidden entry and an unknown one have one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson

from toolplug.catalog.call import CallContext, ToolCall, ToolResult, ToolStatus
from toolplug.catalog.exact_json import as_object
from toolplug.catalog.offering import OfferedEntry, OfferedKind, Offering
from toolplug.catalog.plan import Plan
from toolplug.execution.run import run
from toolplug.parts.mcp.client.plans import RPC_CODE
from toolplug.parts.mcp.content import first_page
from toolplug.parts.mcp.discovery.offers import MAX_URI_BYTES
from toolplug.parts.mcp.serving.server_endpoint import INTERNAL_ERROR, INVALID_PARAMS
from toolplug.runtime.tasks import in_slices

MAX_INSTRUCTIONS = 32_768
"""Characters of the instructions of all servers together; later ones are left out."""

RESOURCE_NOT_FOUND = -32002
"""Of versions before 2026-07-28, which has `INVALID_PARAMS` for it."""

METHOD_NOT_FOUND = -32601
"""The answer of a server that completes nothing to `completion/complete`."""

_NO_VALUES: Mapping[str, object] = {"completion": {"values": ()}}

_PASSED_ON = frozenset({INVALID_PARAMS, INTERNAL_ERROR, RESOURCE_NOT_FOUND})

Match = Callable[[str, str], Mapping[str, object] | None]
"""Returns the variables of a URI by a URI template, None if it does not match."""


class RequestRefused(Exception):
    """The answer to a request for a prompt, a resource or a completion is an error."""

    def __init__(self, code: int, message: str, data: Mapping[str, object] | None = None) -> None:
        self.code = code
        self.data = data
        super().__init__(message)


def offering_page(
    offering: Offering, kind: OfferedKind, cursor: str | None
) -> tuple[list[dict[str, object]], str | None]:
    """Return the first page, or the page of a cursor, which is the key of the last entry before it, and the next one.

    Raises `RequestRefused` for a cursor that the offering has no place for.
    """
    listed = offering.list_entries(kind)
    keys = iter(listed)
    if cursor is not None and cursor not in keys:  # the search leaves the iterator behind the cursor
        raise RequestRefused(INVALID_PARAMS, "Invalid cursor; list again from the beginning")
    return first_page(((key, listed[key]) for key in keys), lambda entry: len(orjson.dumps(entry)))


def instructions_of(offering: Offering) -> str | None:
    """Return the instructions of an offering's servers, each under its toolset's prefix; None if there are none."""
    sections: list[str] = []
    size = 0
    for prefix, text in offering.instructions:
        section = f"# {prefix}\n\n{text}" if prefix else text
        size += len(section)
        if size <= MAX_INSTRUCTIONS:
            sections.append(section)
    return "\n\n".join(sections) or None


async def get_prompt(
    offering: Offering, name: str, arguments: Mapping[str, object], call_id: str, context: CallContext
) -> Mapping[str, object]:
    """Return MCP's result of `prompts/get`; the name is canonical or a wire name. Raises `RequestRefused`."""
    prompt = offering.prompt(name)
    if prompt is None:
        raise RequestRefused(INVALID_PARAMS, f'no prompt "{name}"')
    return await _ask(prompt.plan, "prompt", ToolCall(call_id, name, arguments), context)


async def read_resource(
    offering: Offering, uri: str, match: Match, call_id: str, context: CallContext
) -> Mapping[str, object]:
    """Return MCP's result of `resources/read`. Raises `RequestRefused`, for an unknown URI `RESOURCE_NOT_FOUND`."""
    found, variables = await resource_of(offering, uri, match)
    call = ToolCall(call_id, uri, {"uri": uri, "variables": variables})
    return await _ask(found.plan, "resource", call, context, {"uri": uri})


async def resource_of(offering: Offering, uri: str, match: Match) -> tuple[OfferedEntry, Mapping[str, object]]:
    """Return the resource of a URI, else the first template that matches it, with its variables.

    A URI over 2 KiB matches no template: matching takes a millisecond at 2 KiB. Raises `RequestRefused`.
    """
    found = offering.resources.get(uri)
    if found is not None:
        return found, {}
    templates = offering.templates.values() if len(uri) <= MAX_URI_BYTES else ()
    async for template in in_slices(templates):
        variables = match(template.key, uri)
        if variables is not None:
            return template, variables
    raise RequestRefused(RESOURCE_NOT_FOUND, f'no resource "{uri}"', {"uri": uri})


async def complete(
    offering: Offering,
    reference: tuple[OfferedKind, str],
    argument: tuple[str, str],
    given: Mapping[str, str],
    call_id: str,
    context: CallContext,
) -> Mapping[str, object]:
    """Return MCP's result of `completion/complete`, without values if the entry or its server completes nothing.

    `reference` is a prompt's name or a template's URI template, `argument` its name and the text so far, `given` the
    other arguments. Raises `RequestRefused`.
    """
    kind, key = reference
    found = offering.prompt(key) if kind == "prompts" else offering.templates.get(key) or offering.resources.get(key)
    what = "prompt" if kind == "prompts" else "resource"
    if found is None:
        raise RequestRefused(INVALID_PARAMS, f'no {what} "{key}"')
    if found.completion is None:
        return _NO_VALUES
    name, value = argument
    call = ToolCall(call_id, key, {"argument": name, "value": value, "context": dict(given)})
    result = await run(found.completion, call, context)
    if result.metadata.get(RPC_CODE) == METHOD_NOT_FOUND:
        # The host offers completions for all of its servers at once, so a client asks for those of each.
        return _NO_VALUES
    return _answer(found.completion, what, call, result)


async def _ask(
    plan: Plan, what: str, call: ToolCall, context: CallContext, data: Mapping[str, object] | None = None
) -> Mapping[str, object]:
    return _answer(plan, what, call, await run(plan, call, context), data)


def _answer(
    plan: Plan, what: str, call: ToolCall, result: ToolResult, data: Mapping[str, object] | None = None
) -> Mapping[str, object]:
    """Return what a request was answered with. Raises `RequestRefused`."""
    if result.status is ToolStatus.SUCCESS and (answer := as_object(result.structured)):
        return answer
    if result.status is ToolStatus.UNKNOWN_TOOL:  # its source was switched off in the meantime
        raise RequestRefused(INVALID_PARAMS, f'no {what} "{call.name}"', data)
    raise RequestRefused(_code(result), _words(what, call.name, result, plan), data)


def _code(result: ToolResult) -> int:
    if result.status is ToolStatus.INVALID_ARGUMENTS:
        return INVALID_PARAMS
    code = result.metadata.get(RPC_CODE)
    return code if isinstance(code, int) and code in _PASSED_ON else INTERNAL_ERROR


def _words(what: str, name: str, result: ToolResult, plan: Plan) -> str:
    """Return the text of a failed result, which speaks of a tool, for a prompt or resource."""
    if result.status is ToolStatus.SUCCESS:  # too large to keep its structure
        return f'{what} "{name}" has more than {plan.max_result_bytes} bytes'
    if result.status is ToolStatus.PANIC:
        return f'internal error: {what} "{name}" failed'
    return result.output.replace(f'tool "{name}"', f'{what} "{name}"', 1)
