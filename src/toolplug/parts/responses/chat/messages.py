"""The messages of a request: known ones as they came, in a form that every model's server reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from toolplug.catalog.exact_json import as_object
from toolplug.errors import ResponseRefused
from toolplug.http.bodies.foreign_requests import IgnoredParts
from toolplug.parts.responses.items.transcript import Message
from toolplug.parts.responses.limits import MAX_CONTENT_PARTS, MAX_TEXT

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_PARTS = frozenset(
    {"text", "refusal", "image_url", "input_audio", "file", "video_url", "audio_url", "thinking", "reasoning"}
)
"""The types of OpenAI's API, and those that other servers of models have besides."""


def read_messages(given: Sequence[Mapping[str, object]], ignored: IgnoredParts) -> list[Message]:
    """Return the messages to forward. Those with an unknown role, and parts of an unknown type, are left out and noted.

    Raises `ResponseRefused`.
    """
    contents = [message.get("content") for message in given]
    if sum(len(cast("list[object]", each)) for each in contents if isinstance(each, list)) > 2 * MAX_CONTENT_PARTS:
        message = f"messages: they have at most {2 * MAX_CONTENT_PARTS:,} parts in all"
        raise ResponseRefused("too_many", message, param="messages")
    messages: list[Message] = []
    for index, each in enumerate(given):
        at, role = f"messages[{index}]", each.get("role")
        if not isinstance(role, str) or not role:
            raise _make_refusal(f"{at}.role", f"a message has a role; known are {', '.join(sorted(_ROLES))}")
        if role in _ROLES:
            messages.append(_read_message(each, role, at, ignored))
        else:
            text = f"{at}: messages of this role are not known here; it is ignored"
            ignored.add("unknown_item", at, text, kind=role)
    if not messages:
        raise _make_refusal("messages", "none of them has a role that is known here")
    return messages


def _read_message(given: Mapping[str, object], role: str, at: str, ignored: IgnoredParts) -> Message:
    message = {**given, "role": "system" if role == "developer" else role}
    if "content" in given or role == "assistant":  # clients leave out what is null, and templates of models look for it
        message["content"] = _read_content(given.get("content"), f"{at}.content", ignored)
    if role == "tool" and not isinstance(given.get("tool_call_id"), str):
        raise _make_refusal(f"{at}.tool_call_id", "a message of a tool has the id of its call")
    calls = given.get("tool_calls")
    if not isinstance(calls, list | None):
        raise _make_refusal(f"{at}.tool_calls", "tool_calls should be a list of calls")
    return message


def _read_content(content: object, at: str, ignored: IgnoredParts) -> object:
    if isinstance(content, str):
        _check_length(content, at)
        return content
    if not isinstance(content, list | None):
        raise _make_refusal(at, "content should be text, or a list of parts")
    parts = cast("list[object]", content or [])
    if len(parts) > MAX_CONTENT_PARTS:
        raise ResponseRefused("too_many", f"{at}: a content has at most {MAX_CONTENT_PARTS:,} parts", param=at)
    known: list[object] = []
    kinds: list[str] = []
    for index, each in enumerate(parts):
        part, place = as_object(each), f"{at}[{index}]"
        kind = part.get("type")
        if not isinstance(kind, str):
            raise _make_refusal(f"{place}.type", "a part of a content has a type, such as text")
        if kind not in _PARTS:
            text = f"{place}: parts of this type are not known here; it is ignored"
            ignored.add("unknown_part", place, text, kind=kind)
            kinds.append(kind)
            continue
        if kind in {"text", "refusal"}:
            _check_length(part.get(kind), f"{place}.{kind}")
        known.append(each)
    if kinds and not known:
        known.append({"type": "text", "text": f"[left out: {kinds[0][:64]}]"})
    return content if content is None else known


def _check_length(text: object, at: str) -> None:
    if not isinstance(text, str):
        raise _make_refusal(at, "it should be text")
    if len(text) > MAX_TEXT:
        raise _make_refusal(at, f"a text has at most {MAX_TEXT} characters")


def _make_refusal(at: str, message: str) -> ResponseRefused:
    return ResponseRefused("invalid_request", f"{at}: {message}", param=at)
