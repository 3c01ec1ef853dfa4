"""Crashes: what the log says of an exception that a provider's code raised.

Each crash is one line at ERROR on the logger `toolplug.crashes`: whose code it is, the exception's type, the innermost
frame of that code and the innermost of all, its causes and the members of a group. The line has no text of an
exception, which may hold arguments. Its record has the attribute `crash`, a `Crash`, from which a handler on the
developer's own machine gets the full trace: with texts, and the owner's secrets masked.
"""

from __future__ import annotations

import logging
import os
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from traceback import TracebackException, walk_tb
from types import FrameType, TracebackType
from typing import NamedTuple, cast

MAX_NAMED = 5
"""Causes, and members of a group, that the line names."""
MAX_TRACE = 64 * 1024
"""Characters of a trace; its end has what was raised last."""

_LOG = logging.getLogger("toolplug.crashes")
_LIBRARIES = tuple({f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")})
OURS = "toolplug"


def unmasked(text: str) -> str:
    """The text as it is: its owner has no secret."""
    return text


class CodeOwner(NamedTuple):
    """Whose code it is, for the log.

    `key` is the provider's; `package` the top-level name of its modules, empty where it is not known. `masked` takes
    the secrets of its settings out of a text.
    """

    key: str
    package: str = ""
    distribution: str = ""
    version: str = ""
    masked: Callable[[str], str] = unmasked

    def __str__(self) -> str:
        distribution = f" ({self.distribution} {self.version})" if self.distribution else ""
        return f"provider {self.key!r}{distribution}"


class FramePlace(NamedTuple):
    """A line of code that an exception came through."""

    file: str
    line: int
    function: str
    module: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class Crash:
    """One crash, and the ids by which it is found again. A copy that is pickled has no trace."""

    def __init__(
        self, line: str, error: BaseException | None, masked: Callable[[str], str], call_id: str, request_id: str
    ) -> None:
        self.line = line
        self.call_id = call_id
        self.request_id = request_id
        self._error = error
        self._masked = masked

    def trace(self) -> str:
        """The traceback with the texts of the exceptions, secrets masked, at most 64 KiB from its end."""
        if self._error is None:
            return ""
        trace = self._masked("".join(TracebackException.from_exception(self._error).format()))
        return trace[-MAX_TRACE:].rstrip()

    def __reduce__(self) -> tuple[type[Crash], tuple[object, ...]]:
        return Crash, (self.line, None, unmasked, self.call_id, self.request_id)


def log_crash(
    what: str,
    error: BaseException,
    owner: CodeOwner | None = None,
    *,
    call_id: str = "",
    request_id: str = "",
    then: str = "",
) -> None:
    """Log what raised; never raises.

    what: the code that raised, such as `tool 'x'`
    owner: whose it is, where that is known
    then: what happens now, such as `its lines are left out`
    """
    whose, package, masked = ("", "", unmasked) if owner is None else (f" of {owner}", owner.package, owner.masked)
    ids = [f"{name} {value}" for name, value in (("call", call_id), ("request", request_id)) if value]
    line = f"{what}{whose} raised {described(error, package)}"
    line = f"{line} ({', '.join(ids)})" if ids else line
    line = f"{line}; {then}" if then else line
    _LOG.error("%s", line, extra={"crash": Crash(line, error, masked, call_id, request_id)})


def described(error: BaseException, package: str = "") -> str:
    """An exception by type and place, with its causes and the members of its groups; nothing of its text."""
    text = type(error).__name__
    place, innermost = blamed(error, package), _innermost(error.__traceback__)
    if place is not None:
        text += f" at {place}"
    if innermost is not None and innermost != place:
        text += f", innermost {innermost}"
    members = list(_members(error))
    if members:
        text += f"; members: {_named(members, package)}"
    causes = list(_causes(error))
    return f"{text}; caused by {_named(causes, package)}" if causes else text


def outlined(error: BaseException, package: str = "") -> str:
    """`ValueError at acme.stocks:17`: the type and the blamed line, for readers who may not see paths or texts."""
    place = blamed(error, package)
    return type(error).__name__ if place is None else f"{type(error).__name__} at {place.module}:{place.line}"


def blamed(error: BaseException, package: str = "") -> FramePlace | None:
    """The line that an exception came through whose author can act, as `blamed_place` finds it."""
    return blamed_place(walk_tb(error.__traceback__), package)


def blamed_place(frames: Iterable[tuple[FrameType, int]], package: str = "") -> FramePlace | None:
    """The line whose author can act: the innermost of the package, else outside of libraries, else not of toolplug.

    `frames` come with their lines, the innermost last. None where there are none.
    """
    places = [_place(frame, line) for frame, line in frames]
    own = [place for place in places if package and _top(place) == package]
    foreign = [place for place in places if _top(place) not in (OURS, "importlib")]
    written = [place for place in foreign if not place.file.startswith((*_LIBRARIES, "<"))]
    found = own or written or foreign or places
    return found[-1] if found else None


def _named(errors: list[BaseException], package: str) -> str:
    shown = [f"{type(error).__name__} at {blamed(error, package)}" for error in errors[:MAX_NAMED]]
    more = len(errors) - MAX_NAMED
    return ", ".join(shown) + (f", and {more} more" if more > 0 else "")


def _members(error: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group, also those of groups in it."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        for member in group.exceptions:
            yield from list(_members(member)) or [member]


def _causes(error: BaseException) -> Iterator[BaseException]:
    """What it was raised from, or while handling, and so on."""
    seen = {id(error)}
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if cause.__traceback__ is not None:
            yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _innermost(trace: TracebackType | None) -> FramePlace | None:
    frames = list(walk_tb(trace))
    return _place(*frames[-1]) if frames else None


def _top(place: FramePlace) -> str:
    """The top-level name of its module."""
    return place.module.partition(".")[0]


def _place(frame: FrameType, line: int) -> FramePlace:
    code = frame.f_code
    return FramePlace(code.co_filename, line, code.co_qualname, str(frame.f_globals.get("__name__", "?")))
