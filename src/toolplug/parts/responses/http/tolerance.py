"""What a request has that this host does not know: left out before it is validated any further, and said.

The API is OpenAI's, and its clients send what its newest version has. Known parts that are wrong are refused, and so
are known ones that change the meaning of the request and that this host does not have.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from toolplug.catalog.exact_json import as_object
from toolplug.http.bodies.foreign_requests import IgnoredParts, warning_header
from toolplug.http.errors import invalid_request
from toolplug.parts.responses.builder import ResponseAnswer
from toolplug.parts.responses.limits import MAX_ITEMS, MAX_TOOLS
from toolplug.parts.responses.request import CLIENT_ANSWERS, Item, ResponseRequest, is_known_item, is_known_part

Warnings = Sequence[Mapping[str, object]]
"""Each with a `code`, a `message`, and in most cases the place in the request, `param`."""

ADDITIONAL_TOOLS: Final = "additional_tools"
"""The type of an input item that has tools of the client."""

_LOG = logging.getLogger("toolplug.responses")


def ignored_parts() -> IgnoredParts:
    """Return an empty list of what one request has that is ignored."""
    return IgnoredParts("/v1/responses", _LOG)


def prepare_fields(ignored: IgnoredParts, fields: dict[str, object]) -> None:
    """Leave out the fields of a body that are not known, and find the tools in its items. Raises `HttpProblem`."""
    ignored.leave_out(fields, ResponseRequest)
    _add_later_tools(fields)


def _add_later_tools(fields: dict[str, object]) -> None:
    """Move the tools of `additional_tools` items to those of the request, in place of earlier ones of the same name.

    Codex sends its tools to the newest models in such an item. Raises `HttpProblem` for one without a list of tools.
    """
    items, tools = fields.get("input"), fields.get("tools")
    if not isinstance(items, list) or not isinstance(tools, list | None):
        return
    given = cast("list[object]", items)
    if len(given) > MAX_ITEMS:
        return  # refused by the request's own limits, without a look at each
    later: list[object] = []
    others: list[object] = []
    for index, item in enumerate(given):
        if as_object(item).get("type") != ADDITIONAL_TOOLS:
            others.append(item)
            continue
        listed = as_object(item).get("tools")
        if not isinstance(listed, list):
            place = f"input[{index}].tools"
            raise invalid_request(f"{place}: additional_tools should have a list of tools", place)
        later += cast("list[object]", listed)
    if len(others) == len(given):
        return
    every = [*cast("list[object]", tools or ()), *later]
    fields["input"], fields["tools"] = others, every
    if len(every) > MAX_TOOLS:
        return  # refused as well
    named: dict[object, object] = {}
    for number, tool in enumerate(every):
        name = as_object(tool).get("name")
        named[name if isinstance(name, str) else number] = tool
    fields["tools"] = [*named.values()]


def without_unknown(body: ResponseRequest, ignored: IgnoredParts) -> ResponseRequest:
    """Return the request without the items and the parts of contents whose types are not known."""
    given = body.input
    if not isinstance(given, list):
        return body
    return body.model_copy(update={"input": [*_known_items(cast("list[object]", given), ignored)]})


def refuse_ignored(warnings: Warnings) -> None:
    """Raise `HttpProblem` for the first ignored part, for a client that wants to be told of its mistakes."""
    for warning in warnings:
        raise invalid_request(f"{warning['message']}; this request is strict", str(warning["param"]))


def said_in_header(answer: ResponseAnswer) -> Mapping[str, str]:
    """Return the header that names the warnings of an answer, also those about its tools."""
    given = as_object(answer.get("toolplug")).get("warnings")
    return warning_header(cast("Warnings", given or ()))


def _known_items(items: Sequence[object], ignored: IgnoredParts) -> Iterator[object]:
    for index, given in enumerate(items):
        item, place = as_object(given), f"input[{index}]"
        kind = item.get("type")
        if isinstance(kind, str) and kind and not is_known_item(kind):
            ignored.add(
                "unknown_item", place, f"{place}: items of this type are not known here; it is ignored", kind=kind
            )
            continue
        name = "output" if kind in CLIENT_ANSWERS else "content"
        parts = item.get(name)
        if isinstance(parts, list) and kind in _WITH_PARTS:
            yield _with_known_parts(item, name, cast("list[object]", parts), place, ignored)
        else:
            yield given


_WITH_PARTS = frozenset({None, "message", *CLIENT_ANSWERS})
"""The types of items that have content of the client; an item without a type is a message."""


def _with_known_parts(item: Item, name: str, parts: Sequence[object], at: str, ignored: IgnoredParts) -> Item:
    """Return the item with its known parts; where there are none, a text says that something was left out."""
    own = "output_text" if item.get("role") == "assistant" else "input_text"
    return {**item, name: ignored.keep_known(parts, f"{at}.{name}", is_known_part, own)}
