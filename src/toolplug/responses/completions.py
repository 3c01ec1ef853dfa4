"""Reading what a Chat Completions server sends: nothing of it is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolplug.errors import BackendFailed
from toolplug.providers.json_object import as_object
from toolplug.responses.backend import CallPart, Delta, Usage
from toolplug.signatures.values import encoded


def delta_of(value: object, *, whole: bool) -> Delta:
    """One chunk of a stream, or a `whole` completion. Raises `BackendFailed` for what is neither."""
    if not isinstance(value, Mapping):
        raise garbage("it is no object")
    answer = as_object(cast("object", value))
    choices = answer.get("choices")
    if not isinstance(choices, list) or (whole and not choices):
        raise garbage("it has no choices")
    choice = as_object(cast("list[object]", choices)[0] if choices else None)
    said = as_object(choice.get("message" if whole else "delta"))
    finish = choice.get("finish_reason")
    return Delta(
        _text(said, "content"),
        _text(said, "reasoning_content") or _text(said, "reasoning"),
        _text(said, "refusal"),
        _calls(said.get("tool_calls")),
        finish if isinstance(finish, str) else None,
        _usage(answer.get("usage")),
        _logprobs(as_object(choice.get("logprobs")).get("content")),
    )


def garbage(what: str) -> BackendFailed:
    """The failure of an answer that cannot be read."""
    return BackendFailed("backend_garbage", f"the model's server sent something that is no answer: {what}")


def _text(said: Mapping[str, object], name: str) -> str:
    value = said.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise garbage(f"its {name} is no text")
    return value if value.isascii() else value.encode("utf-8", "replace").decode()  # half a pair is no Unicode


def _calls(value: object) -> tuple[CallPart, ...]:
    if not value:
        return ()
    if not isinstance(value, list):
        raise garbage("its tool_calls are no list")
    return tuple(_call(as_object(part), place) for place, part in enumerate(cast("list[object]", value)))


def _call(part: Mapping[str, object], place: int) -> CallPart:
    index = part.get("index", place)
    function = as_object(part.get("function"))
    if not isinstance(index, int):
        raise garbage("the index of a call is no number")
    return CallPart(index, _text(part, "id"), _text(function, "name"), _text(function, "arguments"))


def _logprobs(value: object) -> tuple[object, ...]:
    if not isinstance(value, list) or encoded(cast("object", value)) is None:
        return ()
    return tuple(cast("list[object]", value))


def _usage(value: object) -> Usage | None:
    if not isinstance(value, Mapping):
        return None
    usage = as_object(cast("object", value))
    return Usage(
        _count(usage, "prompt_tokens"),
        _count(usage, "completion_tokens"),
        _count(as_object(usage.get("prompt_tokens_details")), "cached_tokens"),
        _count(as_object(usage.get("completion_tokens_details")), "reasoning_tokens"),
    )


def _count(usage: Mapping[str, object], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) else 0
