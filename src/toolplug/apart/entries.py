"""Entries with `run: {process: true}`, and classes that a test checks in a process: what their process is to run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from toolplug.apart.calls import python_path
from toolplug.apart.confinement.confinement import Confinement, confine
from toolplug.apart.permissions import find_permissions, read_permissions
from toolplug.apart.processes import SOURCE, ProcessTarget, WorkerProcess, start_process
from toolplug.apart.provider import ApartProvider
from toolplug.apart.values import DescribedProvider, FoundProblem, Head
from toolplug.config.document import Section
from toolplug.config.run_settings import APART_BY_DEFAULT, IN_PROCESS, RunSettings
from toolplug.config.yaml_tree import value_of
from toolplug.errors import InvalidDefinition, Problem, ProviderError
from toolplug.execution.resolved_limits import DEFAULT_RESULT_BYTES
from toolplug.packages.entry_points import InstalledProvider
from toolplug.packages.entry_settings import mask
from toolplug.packages.loading import ProviderType
from toolplug.providers.entry import ProviderEntry, ProviderState
from toolplug.providers.provider import FunctionProvider


def load_apart(
    entry: ProviderEntry, found: InstalledProvider, own: Section, host_keys: Iterable[str], problems: list[Problem]
) -> ProviderType:
    """Return a provider's type as its process describes it, which has checked its settings, too.

    Problems of the settings are added to `problems`. The process waits for the start of the provider, and ends if there
    is none. Raises `ProviderError`.
    """
    target = target_of(entry, found, own, host_keys, _confine(entry, found, own))
    process = start_process(target)
    described = process.description
    problems.extend(_problem(own, entry, each) for each in described.problems)
    if problems:
        process.kill()  # it is not to be started
    process.target = replace(target, masked=partial(mask, own.withheld | described.secrets))
    return ProviderType(
        installed=found,
        config=None,
        open_settings=True,
        build=_Build(process),
        plugin=ApartProvider,
        data_of=partial(_list_data_there, described, str(entry.owner)),
        tools=described.tools,
        routes=described.routes,
        scopes=described.scopes,
        unchecked=described.unchecked,
        names_sign_in=described.names_sign_in,
    )


def _confine(entry: ProviderEntry, found: InstalledProvider, own: Section) -> Confinement:
    """Return how the processes of an entry run. Raises `ProviderError` where it must be confined and cannot be."""
    owner, asked = str(entry.owner), None
    try:
        package = found.entry_point.dist if entry.python else found.distribution
        if package and find_permissions(package) is not None:
            asked = read_permissions(package)
        # Another environment has its packages, toolplug among them, within its prefix.
        modules = (found.module,) if found.file is None and not entry.python else ()
        folders = () if entry.python else (SOURCE,)
        python = entry.python or sys.executable
        confinement = confine(entry.run, own.document.folder, python, modules=modules, folders=folders, asked=asked)
    except InvalidDefinition as error:
        files = entry.run.files or ()
        at = ("run", "files", files.index(error.at)) if error.at in files else ("run",)
        fix = "correct run of its entry, or the file of the package"
        raise ProviderError(f"{owner}: {error}", state=ProviderState.CONFIG_INVALID, fix=fix, at=at) from None
    refuse_unconfined(owner, confinement)
    return confinement


def refuse_unconfined(owner: str, confinement: Confinement) -> None:
    """Raise `ProviderError` for a provider that must be confined and cannot be."""
    refusal = confinement.refusal
    if refusal is not None and confinement.required:
        text = f"{owner}: it must be confined (confine: required), and cannot be: {refusal.reason}"
        raise ProviderError(text, state=ProviderState.START_FAILED, fix=refusal.fix)


def target_of(
    entry: ProviderEntry,
    found: InstalledProvider,
    own: Section,
    host_keys: Iterable[str],
    confinement: Confinement,
) -> ProcessTarget:
    hello = {
        **describe_type(entry.key, found, elsewhere=bool(entry.python)),
        "own": {
            "path": own.path,
            "value": own.value,
            "raw": _raw_value(own),
            "file": str(own.document.folder / Path(own.document.file).name),
            "broken": [list(path) for path in own.broken],
            "withheld": sorted(own.withheld),
        },
        "host_keys": sorted(host_keys),
    }
    return ProcessTarget(
        confinement=confinement,
        python=entry.python,
        key=entry.key,
        owner=str(entry.owner),
        hello=hello,
        code=found.code,
        max_result_bytes=_longest_result(entry),
        variables=dict(os.environ) if entry.run is APART_BY_DEFAULT else None,
        masked=partial(mask, own.withheld),
    )


def _list_data_there(described: DescribedProvider, owner: str, config: object, folder: Path) -> Mapping[str, str]:
    """Return the data files that the process has found. Raises `ProviderError` if it could not."""
    if described.data_refused:
        fix = f"correct the files of {owner}"
        raise ProviderError(described.data_refused, state=ProviderState.INCOMPATIBLE, fix=fix)
    return described.data


class _Build:
    """Makes the providers of one entry: the first one has the process that described it."""

    def __init__(self, process: WorkerProcess) -> None:
        self._target = process.target
        self._process: WorkerProcess | None = process

    def __call__(self, key: str, config: object) -> FunctionProvider:
        process, self._process = self._process, None
        if process is not None:
            self._target = process.target
        return ApartProvider(self._target, process)

    def release(self) -> None:
        """End the process that described the entry: the provider that runs goes on."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()


def apart_class(
    make: object, settings: Mapping[str, object], key: str, run: RunSettings = IN_PROCESS
) -> FunctionProvider:
    """Return a provider that runs a class of a module in a process of its own, for `check_provider`.

    Raises `InvalidDefinition` for what a process cannot import, for settings that the class refuses, and for grants
    that cannot be given, and `ProviderError` where it must be confined and cannot be.
    """
    module, name = getattr(make, "__module__", ""), getattr(make, "__qualname__", "<lambda>")
    if not isinstance(make, type) or "<" in name:
        raise InvalidDefinition(f"{make!r} cannot run in a process of its own: give a class at the top of a module")
    hello: Head = {
        "key": key,
        "type": key,
        "module": module,
        "attribute": name,
        "distribution": "",
        "version": "",
        "editable": True,
        "path": python_path(),
        "own": {"path": ["providers", key], "value": dict(settings), "raw": dict(settings), "file": "test.yaml"},
        "host_keys": [],
    }
    owner = f"provider {key!r}"
    top = module.partition(".")[0]
    confinement = confine(run, Path.cwd(), sys.executable, modules=(top,), folders=(SOURCE,))
    refuse_unconfined(owner, confinement)
    return ApartProvider(ProcessTarget(key=key, owner=owner, hello=hello, confinement=confinement), None)


def describe_type(key: str, found: InstalledProvider, *, elsewhere: bool = False) -> Head:
    """Return where a process finds a type; `elsewhere`: in an environment of its own."""
    point = found.entry_point
    return {
        "key": key,
        "type": found.type,
        "module": point.module,
        "attribute": point.attr or "",
        "distribution": found.distribution,
        "version": found.version,
        "editable": found.editable,
        "excluded_by": found.excluded_by,
        "source": None if found.file is None else str(found.file),
        # Another environment has its own: a folder of the host would bring the host's versions into it.
        "path": [] if elsewhere else python_path(),
    }


def _raw_value(own: Section) -> object:
    """Return the provider's own settings as the file has them, with references in place of secrets."""
    try:
        return value_of(own.document.node(own.path))
    except KeyError:  # a plugin that a toolset or the store names has no entry
        return {}


def _longest_result(entry: ProviderEntry) -> int:
    """Return the most bytes that a result of any tool of the entry may have."""
    of_all = entry.limits.max_result_bytes or entry.host_limits.max_result_bytes or DEFAULT_RESULT_BYTES
    return max(of_all, *(rule.limits.max_result_bytes or 0 for rule in entry.tools.values()), 0)


def _problem(own: Section, entry: ProviderEntry, given: FoundProblem) -> Problem:
    if given.path is None:
        return entry.problem(given.code, given.message, given.hint)
    return own.problem(given.path, code=given.code, message=given.message, hint=given.hint, at_key=given.at_key)
