"""Sanitising a server's prompts, resources and templates, and its instructions: bounded, and cleaned like tools.

What is left out is reported; a hidden character in a name or URI leaves out its entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import orjson

from toolplug.catalog.definition import MAX_DESCRIPTION_BYTES, MAX_TITLE_BYTES
from toolplug.catalog.exact_json import as_list, as_object
from toolplug.catalog.text import hidden_character
from toolplug.errors import InvalidDefinition
from toolplug.foreign.definitions import bounded_text, icons_of, meta_of
from toolplug.foreign.sanitise import RemovedParts
from toolplug.runtime.tasks import in_slices

MAX_OFFERS = 1_000
"""Prompts of one server, and as many resources and templates."""
MAX_OFFERS_BYTES = 1024 * 1024
"""Of all of them together; later ones are left out."""
MAX_URI_BYTES = 2_048
MAX_VARIABLES = 16
"""Of a URI template: a URI is matched in time that grows with both lengths."""
MAX_ARGUMENTS = 64

_NAME = re.compile(r"[!-~]{1,128}")
_UNFIT = re.compile("[\\s\ud800-\udfff]")

Object = Mapping[str, object]


class RawOffers(NamedTuple):
    """What a server listed besides its tools, as it sent it; `failed` has a line for each list that it did not give."""

    prompts: Sequence[object] = ()
    resources: Sequence[object] = ()
    templates: Sequence[object] = ()
    instructions: str = ""
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOffers:
    """The sanitised prompts, resources and templates of a server as MCP lists them, and its instructions."""

    prompts: tuple[Object, ...] = ()
    resources: tuple[Object, ...] = ()
    templates: tuple[Object, ...] = ()
    instructions: str = ""


NO_OFFERS = FoundOffers()


async def read_offers(raw: RawOffers, left_out: RemovedParts) -> FoundOffers:
    """Return the entries in the server's order, without blocking the event loop for long.

    Later ones of the same name or URI, invalid ones and those over a limit are left out.
    """
    for line in raw.failed:
        left_out.add((line.partition(" ")[0],), line)
    room = [MAX_OFFERS_BYTES]
    return FoundOffers(
        prompts=await _keep("prompts", "name", raw.prompts, _prompt, room, left_out),
        resources=await _keep("resources", "uri", raw.resources, _resource, room, left_out),
        templates=await _keep("resourceTemplates", "uriTemplate", raw.templates, _template, room, left_out),
        instructions=bounded_text(raw.instructions, MAX_DESCRIPTION_BYTES),
    )


async def _keep(
    what: str,
    key: str,
    raw: Sequence[object],
    sanitise: Callable[[Object], dict[str, object]],
    room: list[int],
    left_out: RemovedParts,
) -> tuple[Object, ...]:
    def each() -> Iterator[Object | None]:
        seen: set[object] = set()
        for index, item in enumerate(raw):
            at = (what, str(index))
            if len(seen) == MAX_OFFERS:
                left_out.add(at, f"only {MAX_OFFERS} of {len(raw)} are kept")
                return
            try:
                entry = sanitise(_object(item))
            except InvalidDefinition as error:
                left_out.add(at, str(error))
                yield None
                continue
            size = len(orjson.dumps(entry))
            if entry[key] in seen:
                left_out.add(at, f"another one of this {key} comes before")
                yield None
            elif size > room[0]:
                left_out.add(at, f"prompts and resources together have over {MAX_OFFERS_BYTES} bytes")
                yield None
            else:
                seen.add(entry[key])
                room[0] -= size
                yield entry

    return tuple([item async for item in in_slices(each()) if item is not None])


def _prompt(raw: Object) -> dict[str, object]:
    prompt: dict[str, object] = {"name": _name(raw.get("name"))}
    prompt |= _describe(raw)
    if arguments := as_list(raw.get("arguments"))[:MAX_ARGUMENTS]:
        prompt["arguments"] = [_argument(_object(item)) for item in arguments]
    return prompt


def _argument(raw: Object) -> dict[str, object]:
    named: dict[str, object] = {"name": _name(raw.get("name"))}
    texts = {key: bounded_text(raw.get(key), MAX_DESCRIPTION_BYTES) for key in ("title", "description")}
    named |= {key: text for key, text in texts.items() if text}
    return {**named, "required": raw.get("required") is True}


def _resource(raw: Object) -> dict[str, object]:
    resource = {"uri": _uri(raw.get("uri")), **_label(raw)}
    size = raw.get("size")
    if isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 1 << 53:
        resource["size"] = size
    return resource


def _template(raw: Object) -> dict[str, object]:
    template = _uri(raw.get("uriTemplate"))
    if template.count("{") + template.count(",") > MAX_VARIABLES:
        raise InvalidDefinition(f"the URI template has more than {MAX_VARIABLES} variables", at="uriTemplate")
    return {"uriTemplate": template, **_label(raw)}


def _label(raw: Object) -> dict[str, object]:
    """Return name, media type, annotations and descriptions of a resource or template."""
    name = bounded_text(raw.get("name"), MAX_TITLE_BYTES)
    if not name:
        raise InvalidDefinition("name must be text", at="name")
    labelled: dict[str, object] = {"name": name, **_describe(raw)}
    if mime_type := bounded_text(raw.get("mimeType"), MAX_TITLE_BYTES):
        labelled["mimeType"] = mime_type
    known = as_object(raw.get("annotations"))
    annotations: dict[str, object] = {}
    if audience := [role for role in as_list(known.get("audience")) if role in ("user", "assistant")]:
        annotations["audience"] = audience[:2]
    priority = known.get("priority")
    if isinstance(priority, int | float) and not isinstance(priority, bool) and 0 <= priority <= 1:
        annotations["priority"] = priority
    if modified := bounded_text(known.get("lastModified"), MAX_TITLE_BYTES):
        annotations["lastModified"] = modified
    return {**labelled, "annotations": annotations} if annotations else labelled


def _describe(raw: Object) -> dict[str, object]:
    """Return title, description, icons and `_meta` of an entry."""
    described: dict[str, object] = {}
    for key, limit in (("title", MAX_TITLE_BYTES), ("description", MAX_DESCRIPTION_BYTES)):
        if text := bounded_text(raw.get(key), limit):
            described[key] = text
    if icons := icons_of(raw.get("icons")):
        described["icons"] = icons
    if meta := meta_of(raw.get("_meta")):
        described["_meta"] = meta
    return described


def _object(raw: object) -> Object:
    if not isinstance(raw, dict):
        raise InvalidDefinition("must be an object")
    return cast("Object", raw)


def _name(raw: object) -> str:
    if not isinstance(raw, str) or not _NAME.fullmatch(raw):
        raise InvalidDefinition("name must be 1 to 128 printable ASCII characters without spaces", at="name")
    return raw


def _uri(raw: object) -> str:
    if not isinstance(raw, str) or not raw or len(raw.encode(errors="replace")) > MAX_URI_BYTES:
        raise InvalidDefinition(f"the URI must be text of at most {MAX_URI_BYTES} bytes", at="uri")
    if hidden_character(raw) is not None or _UNFIT.search(raw):
        raise InvalidDefinition("the URI has an invisible character or a space", at="uri")
    return raw
