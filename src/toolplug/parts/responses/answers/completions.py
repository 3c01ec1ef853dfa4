"""Chat Completions as servers really send them: JSON objects become deltas.

What cannot be used and has no bearing on the answer is left out and noted: an index, a name of a field, a count. A text
or a call that cannot be read fails the answer, since the rest of it would mean something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, cast

from toolplug.catalog.call import EMPTY
from toolplug.catalog.exact_json import as_object
from toolplug.errors import BackendFailed
from toolplug.parts.responses.backend import CallPart, Delta, Usage
from toolplug.parts.responses.limits import MAX_ENTRIES
from toolplug.signatures.values import encode_value

REASONING: Final = ("reasoning_content", "reasoning")
"""The fields in which servers send reasoning; the first that has some counts."""

Note = Callable[[str], None]
"""Takes what is left out, with its pointer."""

_OF_MESSAGE: Final = frozenset({"role", "content", "refusal", "tool_calls", "function_call", *REASONING})
_OF_CALL: Final = frozenset({"index", "id", "type", "function"})
_OF_FUNCTION: Final = frozenset({"name", "arguments"})
_ERROR_TEXTS: Final = ("message", "detail", "msg", "errors", "error_msg", "error_message", "title", "base_resp")
_THOUGHTS: Final = frozenset({"thinking", "reasoning", "reasoning_text", "reasoning_content"})
_MAX_COUNT: Final = 2**53


class _Texts(NamedTuple):
    text: str = ""
    reasoning: str = ""
    refusal: str = ""


def garbage(what: str) -> BackendFailed:
    """Return the error for an answer that cannot be read."""
    return BackendFailed("backend_garbage", f"the model's server sent something that is no answer: {what}")


def delta_of(value: object, *, whole: bool, note: Note, begun: bool = False) -> Delta:
    """Return a chunk of a stream, or a `whole` completion, as a delta. Raises `BackendFailed`.

    `begun`: the stream has had something to read already, which a `message` in it would repeat.
    """
    if not isinstance(value, Mapping):
        if whole:
            raise garbage("it is no object")
        note("/: no object")
        return Delta()
    answer = as_object(cast("object", value))
    choice = _choice(answer, whole=whole, note=note)
    if _is_error(answer, choice):
        raise BackendFailed("backend_error", "the model's server answered with an error")
    said = _message(choice, whole=whole, begun=begun)
    if whole and not said:
        raise garbage("its message is empty")
    texts = _texts(said, note)
    finish = choice.get("finish_reason")
    if not isinstance(finish, str | None):
        note("/choices/0/finish_reason: no text")
    return Delta(
        *texts,
        tuple(_calls(said, whole=whole, note=note)),
        finish.lower() if isinstance(finish, str) and finish else None,
        _usage(answer.get("usage") or choice.get("usage")),
        _logprobs(as_object(choice.get("logprobs")).get("content")),
        _fields(said),
        _reasoning_fields(said) if texts.reasoning else (),
    )


def _choice(answer: Mapping[str, object], *, whole: bool, note: Note) -> Mapping[str, object]:
    choices = answer.get("choices")
    if isinstance(choices, list) and choices:
        return as_object(cast("list[object]", choices)[0])
    if isinstance(choices, Mapping):
        return as_object(cast("object", choices))
    if _is_error(answer, {}):
        return {}
    if whole:
        raise garbage("it has no choices")
    if not isinstance(choices, list | None) or (choices is None and not answer.get("usage")):
        note("/choices: no list")
    return {}


def _is_error(answer: Mapping[str, object], choice: Mapping[str, object]) -> bool:
    error = answer.get("error") or choice.get("error")
    if as_object(error):
        error = any(as_object(error).values())
    if error or choice.get("finish_reason") == "error" or "error" in (answer.get("object"), answer.get("type")):
        return True
    if answer.get("choices"):
        return False
    return any(isinstance(answer.get(name), str | list) and answer[name] for name in _ERROR_TEXTS) or bool(
        as_object(answer.get("base_resp")).get("status_code")
    )


def _message(choice: Mapping[str, object], *, whole: bool, begun: bool) -> Mapping[str, object]:
    """Return what the choice says, also one that has the other form's name for it."""
    said = as_object(choice.get("message" if whole else "delta"))
    if said or begun:
        return said
    said = as_object(choice.get("delta" if whole else "message"))
    return said or ({"content": choice["text"]} if isinstance(choice.get("text"), str) else said)


def _texts(said: Mapping[str, object], note: Note) -> _Texts:
    content, left = said.get("content"), iter(range(MAX_ENTRIES))
    if isinstance(content, list | Mapping):
        parts = _entries(cast("object", content), left)
        texts = _join([_Texts(), *(_of_part(part, note, left) for part in parts)])
    elif isinstance(content, str):
        texts = _Texts(content)
    elif not content:
        texts = _Texts()
    else:
        raise garbage("its content is no text")
    thoughts = [_read_reasoning(said[name], left) for name in REASONING if said.get(name)]
    refusal = said.get("refusal") or ""
    if not isinstance(refusal, str):
        raise garbage("its refusal is no text")
    thought = next(filter(None, thoughts), "")
    return _Texts(_unicode(texts.text), _unicode(texts.reasoning + thought), _unicode(texts.refusal + refusal))


def _entries(value: object, left: Iterator[int]) -> Iterator[object]:
    """Yield the entries of a list, or any other value alone, which some servers send in place of a list.

    Raises `BackendFailed` when nothing is `left` of the entries that one chunk may have.
    """
    for each in cast("list[object]", value) if isinstance(value, list) else [value]:
        if next(left, None) is None:
            raise garbage(f"its lists have more than {MAX_ENTRIES:,} entries")
        yield each


def _of_part(given: object, note: Note, left: Iterator[int]) -> _Texts:
    if isinstance(given, str):
        return _Texts(given)
    part = as_object(given)
    kind = part.get("type")
    if kind in _THOUGHTS:
        return _Texts(reasoning=_read_reasoning(given, left))
    if isinstance(part.get("refusal"), str):
        return _Texts(refusal=str(part["refusal"]))
    text = part.get("text")
    text = as_object(text).get("value") or text
    if isinstance(text, str):
        return _Texts(text)
    note(f"/choices/0/content: a part of type {kind!r:.40}")
    return _Texts()


def _read_reasoning(value: object, left: Iterator[int]) -> str:
    """Return the text of reasoning, which may be in parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_read_reasoning(each, left) for each in _entries(cast("object", value), left))
    given = as_object(value)
    inner = next((given[name] for name in ("text", "thinking", "reasoning", "content") if given.get(name)), "")
    return _read_reasoning(inner, left)


def _join(texts: list[_Texts]) -> _Texts:
    return _Texts(*("".join(each) for each in zip(*texts, strict=True)))


def _unicode(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()  # half a pair is no Unicode


def _calls(said: Mapping[str, object], *, whole: bool, note: Note) -> Iterator[CallPart]:
    given = said.get("tool_calls") or None
    if given is None:
        function = as_object(said.get("function_call"))  # the form before `tool_calls`
        if function:
            yield _call({"function": function}, 0 if whole else None)
        return
    if not isinstance(given, list | Mapping):
        raise garbage("its tool_calls are no list")
    parts = [*_entries(cast("object", given), iter(range(MAX_ENTRIES)))]
    for place, part in enumerate(parts):
        call = as_object(part)
        if not call:
            if part is not None:
                raise garbage("a call is no object")
            note(f"/choices/0/tool_calls/{place}: null")
            continue
        index = place if whole else _index(call.get("index"))
        if index is None and call.get("index") is not None:
            note(f"/choices/0/tool_calls/{place}/index: no number")
        yield _call(call, place if index is None and len(parts) > 1 else index)


def _index(value: object) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _call(call: Mapping[str, object], place: int | None) -> CallPart:
    function = as_object(call.get("function")) or call
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else encode_value(arguments)
    if arguments is None:
        raise garbage("the arguments of a call are no JSON")
    call_id, name = call.get("id"), function.get("name")
    fields = _rest(call, _OF_CALL if function is not call else _OF_CALL | _OF_FUNCTION)
    inner = EMPTY if function is call else _rest(function, _OF_FUNCTION)
    return CallPart(
        place,
        str(call_id) if isinstance(call_id, str | int) and not isinstance(call_id, bool) else "",
        _unicode(name) if isinstance(name, str) else "",
        _unicode(arguments),
        {**fields, "function": inner} if inner else fields,
    )


def _rest(given: Mapping[str, object], known: frozenset[str]) -> Mapping[str, object]:
    """Return the fields that only the server understands; empty ones have nothing to give back."""
    return {name: value for name, value in given.items() if name not in known and value not in (None, "", [], {})}


def _fields(said: Mapping[str, object]) -> Mapping[str, object]:
    parts = {name: said[name] for name in ("content", *REASONING) if said.get(name) and not isinstance(said[name], str)}
    if isinstance(parts.get("content"), Mapping):
        parts["content"] = [parts["content"]]
    return {**_rest(said, _OF_MESSAGE), **parts}


def _reasoning_fields(said: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(name for name in REASONING if said.get(name)) or ("content",)


def _logprobs(value: object) -> tuple[object, ...]:
    if not isinstance(value, list) or encode_value(cast("object", value)) is None:
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
    return value if isinstance(value, int) and 0 <= value < _MAX_COUNT else 0
