"""The difference between a lock and what is there now, in words that name what has changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from toolplug.locking.lock_file import SHORT, LockedEnvironment, LockedPackage
from toolplug.locking.search_path import changed_or_new

_NAMED = 8
"""Files that are named; of more their number: who replaces a package changes all of them."""


def compare_package(before: LockedPackage | None, locked: LockedPackage, unlisted: Iterable[str] = ()) -> list[str]:
    """Return what is different about a distribution; empty if nothing is. `unlisted`: files that no RECORD lists."""
    owner = f"{locked.name} {locked.version}"
    if before is None:
        return [f"{owner} is not in the lock"]
    found: list[str] = []
    if before.version != locked.version:
        found.append(f"{locked.name} is version {locked.version}, and the lock has {before.version}")
    if before.editable is not locked.editable:
        words = ("a working copy", "an installed package")
        found.append(f"{owner} is {words[not locked.editable]} now, and was {words[locked.editable]}")
    found += [f"{owner} {line}" for line in compare_permissions(before.permissions, locked.permissions)]
    found += [f"{owner} {line}" for line in _compare_requirements(before, locked)]
    if before.digest != locked.digest:
        lines = list(_compare_files(before.files, locked.files, unlisted))
        # Digests are cut in the lock; whoever makes another file with the same first digits is found by the whole one.
        found += [f"{owner}: {line}" for line in lines] or [f"{owner}: its files have changed"]
    return found


def compare_permissions(before: Mapping[str, object], now: Mapping[str, object]) -> Iterator[str]:
    """Yield what a package asks for that it did not before, and what it asks for no longer."""
    for name in dict.fromkeys((*before, *now)):
        old, new = _words(before.get(name)), _words(now.get(name))
        if added := [word for word in new if word not in old]:
            yield f"asks for more: {name}: {', '.join(added)}"
        if gone := [word for word in old if word not in new]:
            yield f"asks no longer for {name}: {', '.join(gone)}"


def compare_environment(before: LockedEnvironment | None, now: LockedEnvironment) -> Iterator[str]:
    """Yield what is different about an interpreter: what runs at its start, and modules without a distribution."""
    whose = now.python or "this Python"
    if before is None:
        yield f"{whose} is not in the lock"
        return
    if before.version.split(".")[:2] != now.version.split(".")[:2]:
        yield f"{whose} is Python {now.version}, and the lock has {before.version}"
    for name, what in changed_or_new(before.at_start, now.at_start):
        yield f"{name} {what}; it runs at each start of {whose}"
    for name, what in changed_or_new(before.loose, now.loose):
        yield f"the module {name} {what}, and no RECORD lists it"


def compare_data(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield what is different about the data files of an entry; their digests are whole."""
    yield from _compare_files(before, now, (), digits=None)


def compare_tools(owner: str, before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield what is different about the tools of a provider or server, a line for each tool."""
    for name, digest in now.items():
        if name not in before:
            yield f"{owner}: its tool {name!r} is new"
        elif before[name] != digest:
            yield f"{owner}: its tool {name!r} has another description, or takes other arguments"
    for name in before:
        if name not in now:
            yield f"{owner}: its tool {name!r} is gone"


def _compare_requirements(before: LockedPackage, now: LockedPackage) -> Iterator[str]:
    for name in now.requires:
        if name not in before.requires:
            yield f"needs {name} now"
    for name in before.requires:
        if name not in now.requires:
            yield f"needs {name} no longer"


def _compare_files(
    before: Mapping[str, str], now: Mapping[str, str], unlisted: Iterable[str], digits: int | None = SHORT
) -> Iterator[str]:
    unlisted = set(unlisted)
    lines = [f"{path} has changed" for path, text in now.items() if before.get(path, text[:digits]) != text[:digits]]
    lines += [
        f"{path} is new{', and no RECORD lists it' if path in unlisted else ''}" for path in now if path not in before
    ]
    lines += [f"{path} is gone" for path in before if path not in now]
    yield from lines[:_NAMED]
    if len(lines) > _NAMED:
        yield f"{len(lines) - _NAMED} more files are different"


def _words(value: object) -> list[str]:
    if isinstance(value, list | tuple):
        return [str(each) for each in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return [] if value is None else [str(value).lower() if isinstance(value, bool) else str(value)]
