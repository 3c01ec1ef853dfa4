"""Crashes: log records of exceptions that a provider's code raised.

Each crash is one line at ERROR on the logger `toolplug.crashes`: the owner of the code, the exception's type, the
innermost frame of that code and the innermost of all, the causes and the members of a group. The line has no text of an
exception, which may have arguments in it. The attribute `crash` of the record, a `Crash`, gives handlers on a
developer's machine the full trace, with texts and with the owner's secrets masked.
"""

from __future__ import annotations

import logging
import os
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from traceback import TracebackException, walk_tb
from types import FrameType
from typing import NamedTuple, cast

MAX_NAMED = 5
"""Causes, and members of a group, in the line."""
MAX_TYPE_NAME = 200
"""Characters of the name of an exception's type in the line."""
MAX_TRACE = 64 * 1024
"""Characters of a trace; a longer one is cut at its beginning."""

_LOG = logging.getLogger("toolplug.crashes")
_LIBRARIES = tuple({f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")})
OURS = "toolplug"


def mask_nothing(text: str) -> str:
    """Return the text as it is, for an owner without secrets."""
    return text


class CodeOwner(NamedTuple):
    """The provider that code belongs to, for the log.

    `package` is the top-level name of its modules, empty if unknown; `masked` removes the secrets of its settings from
    a text.
    """

    key: str
    package: str = ""
    distribution: str = ""
    version: str = ""
    masked: Callable[[str], str] = mask_nothing

    def __str__(self) -> str:
        package = f"{self.distribution} {self.version}".rstrip()  # a file alone has no version
        return f"provider {self.key!r} ({package})" if package else f"provider {self.key!r}"


class FramePlace(NamedTuple):
    """A line of code in a traceback."""

    file: str
    line: int
    function: str
    module: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class Crash:
    """One crash: its line in the log, the ids of its call and request, and its trace; a pickled copy has no trace."""

    def __init__(
        self, line: str, error: BaseException | None, masked: Callable[[str], str], call_id: str, request_id: str
    ) -> None:
        self.line = line
        self.call_id = call_id
        self.request_id = request_id
        self._error = error
        self._masked = masked

    def trace(self) -> str:
        """Return the last 64 Ki characters of the traceback, with texts of exceptions and with secrets masked.

        It begins at the first line outside of toolplug: the calls that lead there are the same for every tool.
        """
        if self._error is None:
            return ""
        report = TracebackException.from_exception(self._error)
        del report.stack[: _leading_own(self._error)]
        trace = self._masked("".join(report.format()))
        return trace[-MAX_TRACE:].rstrip()

    def __reduce__(self) -> tuple[type[Crash], tuple[object, ...]]:
        return Crash, (self.line, None, mask_nothing, self.call_id, self.request_id)


def log_crash(
    what: str,
    error: BaseException,
    owner: CodeOwner | None = None,
    *,
    call_id: str = "",
    request_id: str = "",
    then: str = "",
) -> None:
    """Log a crash. Never raises.

    what: the code that raised, such as `tool 'x'`
    owner: the provider of the code, None if unknown
    then: the consequence, such as `its lines are left out`
    """
    whose, package, masked = ("", "", mask_nothing) if owner is None else (f" of {owner}", owner.package, owner.masked)
    ids = [f"{name} {value}" for name, value in (("call", call_id), ("request", request_id)) if value]
    line = f"{what}{whose} raised {describe_error(error, package)}"
    line = f"{line} ({', '.join(ids)})" if ids else line
    line = f"{line}; {then}" if then else line
    _LOG.error("%s", line, extra={"crash": Crash(line, error, masked, call_id, request_id)})


def describe_error(error: BaseException, package: str = "") -> str:
    """Return type and place of an exception, of its causes and of the members of its groups, without their texts."""
    text = _type_name(error)
    place, frames = find_blamed(error, package), list(walk_tb(error.__traceback__))
    if place is not None:
        text += f" at {place}"
    if frames and (innermost := _place(*frames[-1])) != place:
        text += f", innermost {innermost}"
    members = list(_members(error))
    if members:
        text += f"; members: {_name_errors(members, package)}"
    causes = list(_causes(error))
    return f"{text}; caused by {_name_errors(causes, package)}" if causes else text


def outline_error(error: BaseException, package: str = "") -> str:
    """Return type and line, such as `ValueError at acme.stocks:17`, for readers who may not see paths or texts."""
    place = find_blamed(error, package)
    return _type_name(error) if place is None else f"{_type_name(error)} at {place.module}:{place.line}"


def find_blamed(error: BaseException, package: str = "") -> FramePlace | None:
    """Return the line of an exception's traceback whose author can act (`blamed_place`)."""
    return blamed_place(walk_tb(error.__traceback__), package)


def blamed_place(frames: Iterable[tuple[FrameType, int]], package: str = "") -> FramePlace | None:
    """Return the line whose author can act: the innermost of the package, else outside of libraries and of toolplug.

    `frames` have their lines, the innermost last. Without such a line it is the innermost outside of toolplug, else the
    innermost of all; None if there are no frames.
    """
    places = [_place(frame, line) for frame, line in frames]
    own = [place for place in places if package and _top(place) == package]
    foreign = [place for place in places if _top(place) not in (OURS, "importlib")]
    written = [place for place in foreign if not place.file.startswith((*_LIBRARIES, "<"))]
    found = own or written or foreign or places
    return found[-1] if found else None


def _leading_own(error: BaseException) -> int:
    """Return the number of toolplug's frames before the first other one; 0 if there is no other one."""
    modules = [_top(_place(*frame)) for frame in walk_tb(error.__traceback__)]
    return next((index for index, module in enumerate(modules) if module != OURS), 0)


def _name_errors(errors: list[BaseException], package: str) -> str:
    shown = [f"{_type_name(error)} at {find_blamed(error, package)}" for error in errors[:MAX_NAMED]]
    more = len(errors) - MAX_NAMED
    return ", ".join(shown) + (f", and {more} more" if more > 0 else "")


def _type_name(error: BaseException) -> str:
    return type(error).__name__[:MAX_TYPE_NAME]


def _members(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions of a group, and of the groups in it."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        for member in group.exceptions:
            yield from list(_members(member)) or [member]


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions that it was raised from, or while handling."""
    cause, seen = error, set[int]()
    while cause is not None and id(cause) not in seen:
        if seen and cause.__traceback__ is not None:
            yield cause
        seen.add(id(cause))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _top(place: FramePlace) -> str:
    """Return the top-level name of the module."""
    return place.module.partition(".")[0]


def _place(frame: FrameType, line: int) -> FramePlace:
    code = frame.f_code
    return FramePlace(code.co_filename, line, code.co_qualname, str(frame.f_globals.get("__name__", "?")))
