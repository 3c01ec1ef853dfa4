"""The installed provider packages, found by their metadata without importing them.

The metadata of other packages may contain anything. What cannot be read is reported, and affects no other package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import Distribution, EntryPoint, PackageMetadata, distributions, version
from itertools import groupby
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from toolplug import library_types
from toolplug.errors import ConfigError, Problem
from toolplug.providers.entry import DesiredProvider

GROUP = "toolplug.providers"
APART = "toolplug.apart"
"""The entry points of a package's types that run in a process of their own unless their entry says otherwise."""

_OURS = "toolplug"
_TYPE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_OUR_NAME = re.compile(rf"\s*{_OURS}(?![\w.-])", re.IGNORECASE)
# Requirements of extras do not apply to the package itself.
_NO_EXTRA = {"extra": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledProvider:
    """One entry point of one distribution.

    `excluded_by`: the package's requirement that excludes this version of toolplug; empty if it is compatible.
    `editable`: its code is a working copy. A provider file that the configuration names has neither distribution nor
    version; `file` is its path and `code` its content. `apart`: its package asks for a process of its own.
    """

    type: str
    entry_point: EntryPoint
    distribution: str
    version: str
    excluded_by: str = ""
    editable: bool = False
    file: Path | None = None
    code: bytes = b""
    apart: bool = False

    @property
    def module(self) -> str:
        """The top-level name of its modules."""
        return self.entry_point.module.partition(".")[0]

    @property
    def package(self) -> str:
        """Its distribution, for messages: `toolplug-notes 1.2.0`."""
        return f"{self.distribution} {self.version}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The installed providers by type, in order; a type with two packages is ambiguous.

    `problems` are entry points that cannot be used, and metadata that cannot be read. `check` is asked before anything
    of a package is imported; without one all are.
    """

    types: Mapping[str, tuple[InstalledProvider, ...]]
    problems: tuple[Problem, ...] = ()
    check: library_types.LockCheck | None = None


def check_wanted(
    check: library_types.LockCheck | None, wanted: DesiredProvider, list_data: Callable[[], Mapping[str, str]]
) -> DesiredProvider:
    """Return an entry whose data files are as they must be, and whose tools are looked at as it starts.

    Raises `ConfigError`.
    """
    if check is None:
        return wanted
    try:
        check.check_data(wanted.entry, list_data)
    except ConfigError:
        wanted.release()  # a process may have described it, and wait
        raise
    return wanted._replace(check_tools=partial(check.check_tools, wanted.entry))


def find_installed(path: Sequence[str] | None = None, *, running: str | None = None) -> Installed:
    """Find provider packages among the distributions in these folders, by default `sys.path`.

    `running` is the version of toolplug that they must accept, by default the installed one. Of two copies of a
    distribution the first counts, as for imports.
    """
    ours = version(_OURS) if running is None else running
    where: dict[str, Any] = {} if path is None else {"path": path}
    seen: set[str] = set()
    outcomes: list[InstalledProvider | Problem] = []
    # `entry_points(group=…)` would parse the metadata of every installed package, and one broken file would end it.
    for distribution in distributions(**where):
        try:
            if not _mentions_group(distribution):
                continue  # its metadata is not parsed: that takes 0.2 ms each
            metadata = distribution.metadata  # parsed at each use of the property
            name = _read_stated(metadata, "Name")
            if canonicalize_name(name) in seen:
                continue
            # The first copy on the path is the one that an import finds; a second one may be an older version.
            if name and not _mentions_group(next(iter(distributions(name=name, **where)))):
                continue
            points = distribution.entry_points  # parsed at each use of the property
            apart = points.select(group=APART).names
            outcomes += [
                _outcome(distribution, metadata, point, ours, point.name in apart)
                for point in points.select(group=GROUP)
            ]
            seen.update((canonicalize_name(name),) if name else ())
        # One broken package must not hide the others.
        except Exception as error:  # noqa: BLE001  whatever the files of a foreign package make the parsers raise
            outcomes.append(_unreadable(distribution, error))
    providers = [item for item in outcomes if isinstance(item, InstalledProvider)]
    providers.sort(key=lambda item: (item.type, item.distribution))
    return Installed(
        types={kind: tuple(items) for kind, items in groupby(providers, lambda item: item.type)},
        problems=tuple(item for item in outcomes if isinstance(item, Problem)),
    )


def _mentions_group(distribution: Distribution) -> bool:
    return GROUP in (distribution.read_text("entry_points.txt") or "")


def _read_stated(metadata: PackageMetadata, field: str) -> str:
    """Return a metadata field; empty if it is missing, for which `Distribution.name` warns since Python 3.12."""
    return next(iter(metadata.get_all(field, ())), "")


def _outcome(
    distribution: Distribution, metadata: PackageMetadata, point: EntryPoint, ours: str, apart: bool
) -> InstalledProvider | Problem:
    name, release = _read_stated(metadata, "Name"), _read_stated(metadata, "Version")
    if not (name and release):
        raise ValueError("it has no name or no version")
    if not _TYPE.fullmatch(point.name):
        wrong = "its name is not made of lower-case letters, digits and underscores"
    elif not EntryPoint.pattern.match(point.value):
        wrong = f"{point.value!r} is not written as module:attribute"
    else:
        return InstalledProvider(
            type=point.name,
            entry_point=point,
            distribution=name,
            version=release,
            excluded_by=_excluding(metadata.get_all("Requires-Dist") or distribution.requires or (), ours),
            editable=is_editable(distribution),
            apart=apart,
        )
    return Problem(
        code="entry_point_invalid",
        message=f"{name} {release}: the entry point {point.name!r} cannot be used: {wrong}",
        hint=f"its author must write `[{GROUP}]` and below it `name = module:Class`",
    )


def is_editable(distribution: Distribution) -> bool:
    """Return whether it is an editable install (PEP 610)."""
    try:
        return json.loads(distribution.read_text("direct_url.json") or "{}")["dir_info"]["editable"] is True
    except (ValueError, LookupError, TypeError):
        return False


def _excluding(requires: Iterable[str], ours: str) -> str:
    """Return the first requirement that excludes this version of toolplug; invalid requirements are ignored."""
    return next(filter(None, (_excludes(text, ours) for text in requires if _OUR_NAME.match(text))), "")


@lru_cache(
    maxsize=256
)  # a parser of its own, and a tenth of the time in which a host is opened or reads its file again
def _excludes(text: str, ours: str) -> str:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return ""
    applies = requirement.marker is None or requirement.marker.evaluate(_NO_EXTRA)
    # A pre-release of toolplug counts as its version: who installs one wants to try it.
    return str(requirement) if applies and not requirement.specifier.contains(ours, prereleases=True) else ""


def _unreadable(distribution: Distribution, error: Exception) -> Problem:
    return Problem(
        code="metadata_unreadable",
        message=f"the metadata of a distribution cannot be read: {type(error).__name__}: {error}",
        file=str(getattr(distribution, "_path", distribution.locate_file(""))),
        hint="reinstall the package",
    )
