"""What a stream has in fragments: function calls, and the fields of a turn that its model's server wants back.

Servers disagree about what a fragment of a call says: some send an index and an id once, some with every fragment, some
one index for all calls, an empty id, the name again with each fragment, or the arguments under another index than their
head:

* An id seen before belongs to its call. A new id begins a call, and so does a name after complete arguments.
* A name equal to the one so far is the same name, not its next piece. A call whose name has not come yet takes it late.
* A fragment without id and with an unknown index continues the last call.
* A call with the id, name and arguments of another one is that one.
* Arguments that belong to no call, or to one without a name, refuse the answer if a call waits for some or there is no
  call at all.

Only the server understands the fields: signatures of thoughts, encrypted reasoning, references to parsed files. Some
servers refuse the next request without them.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final, cast

from toolplug.catalog.exact_json import as_object
from toolplug.parts.responses.answers.completions import garbage
from toolplug.parts.responses.answers.reader import broke_off
from toolplug.parts.responses.backend import CallPart
from toolplug.parts.responses.limits import MAX_ARGUMENT_CHARS, MAX_CALLS, MAX_FIELD_VALUES, MAX_FIELDS_CHARS
from toolplug.signatures.values import encode_value

_REST_OF_TEXT = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_TEXT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


class ModelCall:
    """A call in progress. `given` is the server's id, `repeats` an earlier call with the same id."""

    def __init__(self, given: str, repeats: ModelCall | None) -> None:
        self.given = given
        self.repeats = repeats
        self.name: str = ""
        self.places: set[int] = set()
        self.fields: BackendFields = BackendFields()
        self._texts: list[str] = []
        self._size = 0
        self._unsent = 0
        self._brackets = _Brackets()

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self._texts)

    @property
    def has_arguments(self) -> bool:
        """True if there is more than white space."""
        return self._brackets.is_begun

    @property
    def is_complete(self) -> bool:
        """True if the arguments are as long as they can be: all that was opened is closed."""
        return self._brackets.are_closed

    @property
    def is_placeholder(self) -> bool:
        """True if the arguments are `{}`, which some servers send before the real ones."""
        return self._size < 4 and self.arguments.strip() == "{}"

    def can_be_named(self, name: str) -> bool:
        """True if a fragment with this name may be of this call: no name, the same one, or the first one."""
        return name in ("", self.name) or not self.name

    def says(self, arguments: str) -> bool:
        """Return whether these are the arguments so far."""
        return len(arguments) == self._size and arguments == self.arguments

    def unsent(self, *, is_last: bool = False) -> str:
        """Return the arguments since the last time; none while they may be a placeholder and are not the last."""
        if self.is_placeholder and not is_last:
            return ""
        new, self._unsent = self._texts[self._unsent :], len(self._texts)
        return "".join(new)

    def write(self, text: str) -> None:
        """Append to the arguments, or replace a placeholder. Raises `BackendFailed` if they are too long."""
        if self.is_placeholder and text.lstrip().startswith("{"):
            self._texts, self._size, self._brackets = [], 0, _Brackets()
        self._texts.append(text)
        self._size += len(text)
        self._brackets.add(text)
        if self._size > MAX_ARGUMENT_CHARS:
            raise garbage(f"the arguments of a call have more than {MAX_ARGUMENT_CHARS:,} characters")


class CallAssembler:
    """Puts the calls of one answer together. `is_known` tells a whole name from a piece of one."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        self.calls: list[ModelCall] = []
        self._is_known = is_known
        self._at: dict[int, ModelCall] = {}
        self._lost = False

    def add(self, part: CallPart) -> ModelCall | None:
        """Add a fragment and return its call, None if it belongs to none. Raises `BackendFailed`."""
        known = [call for call in self.calls if part.id and call.given == part.id]
        call = self._find_known(known, part) if known else self._find_continued(part)
        if call is None:
            if not known and not part.id and not part.name:
                self._lost = self._lost or bool(part.arguments.strip())
                return None
            call = self._begin(part, known[0] if known else None)
        self._take(call, part)
        return call

    def end(self, *, is_certain: bool) -> None:
        """Drop calls that were sent twice. Raises `BackendFailed` for calls that cannot be told apart.

        `is_certain` is false if the server has not said why the answer ends: then each call must be complete.
        """
        for call in [call for call in self.calls if call.repeats is not None]:
            self._drop_if_sent_twice(call)
        lost = self._lost or any(call.has_arguments and not call.name for call in self.calls)
        waits = any(call.name and not call.has_arguments for call in self.calls)
        if lost and (waits or not self.calls):
            raise garbage("arguments of a call came without the call that they belong to")
        if not is_certain and not all(call.is_complete for call in self.calls):
            raise broke_off()

    def _find_known(self, known: list[ModelCall], part: CallPart) -> ModelCall | None:
        """Return the call of an id that was seen before; None if it is a further call with an id that is not unique."""
        call = next((call for call in known if part.place in call.places), known[-1])
        begins = part.arguments.lstrip().startswith("{")
        if part.place is not None and call.places and part.place not in call.places:
            is_other = bool(part.name) and (begins or not part.arguments.strip())
        elif call.is_complete and not (call.is_placeholder and call.can_be_named(part.name)):
            is_other = begins or not call.can_be_named(part.name)
        else:
            is_other = call.has_arguments and not call.can_be_named(part.name)
        return None if is_other else call

    def _find_continued(self, part: CallPart) -> ModelCall | None:
        """Return the call that a fragment continues whose id, if it has one, is new; None if it begins a call."""
        last = self.calls[-1] if self.calls else None
        at = last if part.place is None else self._at.get(part.place)
        if not part.id and not part.name:
            return self._of_arguments(part, at or last, last)
        if at is None:  # a new index: a call of its own, unless the index alone has changed
            wanders = last is not None and not part.id and part.name == last.name and _is_middle(part, last)
            return last if wanders else None
        if part.id and at.given and part.name and not (part.name == at.name and _is_middle(part, at)):
            return None
        if at.is_complete:
            begins = part.arguments.lstrip().startswith("{")
            return None if begins or not at.can_be_named(part.name) or (part.id and part.arguments.strip()) else at
        if at.can_be_named(part.name):
            return at
        whole = self._is_known(at.name) and self._is_known(part.name) and not self._is_known(at.name + part.name)
        return None if at.has_arguments or whole else at

    def _of_arguments(self, part: CallPart, call: ModelCall | None, last: ModelCall | None) -> ModelCall | None:
        """Return the call of a fragment of arguments alone; None if there is none that waits for them."""
        if call is None or not call.is_complete or not part.arguments.strip():
            return call
        if last is not None and last is not call and not last.is_complete:
            return last
        begins = part.arguments.lstrip().startswith("{")
        return call if (call.is_placeholder and begins) or call.says(part.arguments) else None

    def _begin(self, part: CallPart, repeats: ModelCall | None) -> ModelCall:
        if len(self.calls) == MAX_CALLS:
            raise garbage(f"it has more than {MAX_CALLS} calls")
        call = ModelCall(part.id, repeats)
        self.calls.append(call)
        if repeats is not None:
            call.name = part.name or repeats.name
        return call

    def _take(self, call: ModelCall, part: CallPart) -> None:
        if part.place is not None:
            call.places.add(part.place)
            self._at[part.place] = call
        call.given = call.given or part.id
        if part.name and not (call.name and call.has_arguments):
            call.name = self._name(call.name, part.name)
        call.fields.add(part.extra)
        if part.arguments and not (call.is_complete and call.says(part.arguments)):
            call.write(part.arguments)

    def _name(self, name: str, piece: str) -> str:
        """Return the name with its next piece, which may be the same name or the whole of it again."""
        longer = name + piece
        if self._is_known(longer) and not self._is_known(piece):
            return longer
        return piece if piece == name or self._is_known(piece) else longer

    def _drop_if_sent_twice(self, call: ModelCall) -> None:
        for other in self.calls:
            if other is call:
                return
            if other.given != call.given or other.name != call.name:
                continue
            if not other.has_arguments and call.has_arguments:
                other.write(call.arguments)
            if not call.has_arguments or other.says(call.arguments):
                other.fields.add(call.fields.value)
                self.calls.remove(call)
                return


def as_tool_call(call_id: str, name: str, arguments: str, fields: Mapping[str, object]) -> dict[str, object]:
    """Return a call as an entry of `tool_calls` in a request, with the fields that its server wants back."""
    function = {**as_object(fields.get("function")), "name": name, "arguments": arguments}
    return {**fields, "id": call_id, "type": "function", "function": function}


def _is_middle(part: CallPart, call: ModelCall) -> bool:
    """Return whether the fragment can only be a further piece of the call's arguments."""
    text = part.arguments.lstrip()
    return bool(text) and not text.startswith("{") and call.has_arguments and not call.is_complete


class _Brackets:
    """Whether a JSON text in pieces is complete, at a fixed cost a character."""

    def __init__(self) -> None:
        self.is_begun = False
        self._depth = 0
        self._opened = False
        self._in_text = False
        self._escaped = False

    @property
    def are_closed(self) -> bool:
        """True if what was opened is closed."""
        return self._opened and self._depth <= 0 and not self._in_text

    def add(self, piece: str) -> None:
        """Count the brackets of the next piece, but those in texts."""
        self.is_begun = self.is_begun or bool(piece.strip())
        if self._escaped and piece:
            piece, self._escaped = piece[1:], False
        if self._in_text:
            end = _end_of_text(piece)
            if end == len(piece) or piece[end] == "\\":
                self._escaped = end < len(piece)
                return
            piece, self._in_text = piece[end + 1 :], False
        piece, quote, rest = _TEXT.sub("", piece).partition('"')
        if quote:
            self._in_text, self._escaped = True, _end_of_text(rest) < len(rest)
        opened = piece.count("{") + piece.count("[")
        self._opened = self._opened or opened > 0
        self._depth += opened - piece.count("}") - piece.count("]")


def _end_of_text(piece: str) -> int:
    """Return where a text ends: at its quote, at a backslash that ends the piece, or at the end of the piece."""
    match = _REST_OF_TEXT.match(piece)
    return 0 if match is None else match.end()


_IN_PIECES: Final = frozenset({"text", "summary", "thinking", "reasoning", "content"})
"""Texts of which a stream sends a piece at a time; any other value is sent whole, and the last one counts."""

_MOST_OF_INDEX: Final = 8
"""The last entries of a list under one index, which a further piece may continue."""
_NAMED: Final = 5
"""Fields that the warning names."""

_LOG = logging.getLogger("toolplug.responses")


class _Pieces(list[str]):
    """A text in pieces."""


class _Entries(list[object]):
    """The entries of a list that comes in pieces."""

    def __init__(self, entries: Iterable[object] = ()) -> None:
        super().__init__(entries)
        self._by_index: dict[object, deque[dict[str, object]]] = {}

    def add(self, piece: Iterable[object]) -> None:
        """Merge each entry of a piece into the one of earlier pieces that it continues, or append it."""
        last = [cast("dict[str, object]", entry) for entry in self[-1:] if isinstance(entry, dict)]
        new: list[dict[str, object]] = []
        for each in piece:
            if not isinstance(each, Mapping):
                self.append(each)
                continue
            entry = as_object(cast("object", each))
            earlier = self._by_index.get(_index(entry), ()) if "index" in entry else last
            into = next((old for old in reversed(earlier) if _continues(old, entry)), None)
            if into is None:
                into = dict[str, object]()
                self.append(into)
                new.append(into)
            _merge(into, entry)
        for entry in new:
            if "index" in entry:
                self._by_index.setdefault(_index(entry), deque(maxlen=_MOST_OF_INDEX)).append(entry)


def _index(entry: Mapping[str, object]) -> object:
    index = entry["index"]
    return index if isinstance(index, int | str) else None


class BackendFields:
    """Collects the fields of one message or call. Those over the limits are left out, with one warning."""

    def __init__(self) -> None:
        self._fields: dict[str, object] = {}
        self._size = 0
        self._values = 0
        self._warned = False

    def add(self, fields: Mapping[str, object]) -> None:
        """Add the fields of one delta."""
        if not fields:
            return
        many = len(fields) > MAX_FIELD_VALUES
        text = "" if many else encode_value(fields)
        self._size += len(text or "")
        self._values += 0 if text is None else text.count(",") + text.count("[") + text.count("{")
        if many or text is None or self._size > MAX_FIELDS_CHARS or self._values > MAX_FIELD_VALUES:
            if not self._warned:
                why = "they are not JSON" if text is None else "they are too large"
                names = [*islice(fields, _NAMED)]
                _LOG.warning("fields of the model's server do not go back to it, as %s: %.200r", why, names)
            self._warned = True
            return
        _merge(self._fields, fields)

    def has(self, name: str) -> bool:
        """Return whether there is such a field."""
        return name in self._fields

    @property
    def value(self) -> Mapping[str, object]:
        """The fields so far, those of a stream as if they had come at once."""
        return as_object(_join(self._fields))


def _merge(into: dict[str, object], fields: Mapping[str, object]) -> None:
    for name, value in fields.items():
        if value is not None or name not in into:
            into[name] = _merge_value(into.get(name), value, in_pieces=name in _IN_PIECES)


def _merge_value(old: object, new: object, *, in_pieces: bool) -> object:
    if isinstance(new, str):
        if not in_pieces:
            return new
        if isinstance(old, _Entries):  # a content that has begun as a list of parts
            return _merge_value(old, [{"type": "text", "text": new}], in_pieces=False)
        pieces = old if isinstance(old, _Pieces) else _Pieces()
        pieces.append(new)
        return pieces
    if isinstance(new, Mapping):
        entry: dict[str, object] = cast("dict[str, object]", old) if isinstance(old, dict) else {}
        _merge(entry, as_object(cast("object", new)))
        return entry
    if isinstance(new, list):
        entries = _entries(old)
        entries.add(cast("list[object]", new))
        return entries
    return new


def _entries(old: object) -> _Entries:
    if isinstance(old, _Pieces):  # a content that has begun as a text
        return _Entries([{"type": "text", "text": old}])
    return old if isinstance(old, _Entries) else _Entries()


def _continues(old: Mapping[str, object], new: Mapping[str, object]) -> bool:
    """Return whether both are pieces of one entry: no value that is sent whole differs."""
    pieces = any(name in _IN_PIECES and name in old for name in new) or "index" in new
    return pieces and all(
        name in _IN_PIECES or value is None or old.get(name) is None or old[name] == value
        for name, value in new.items()
    )


def _join(value: object) -> object:
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {name: _join(each) for name, each in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_join(each) for each in cast("list[object]", value)]
    return value
