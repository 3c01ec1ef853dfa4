"""`run:` of a provider's entry: where the provider runs, what it may use there, and how much of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import EntryPoint, distributions
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from toolplug.config.nearest import name_hint
from toolplug.config.units import FileMapping, Size, shape_error

HOST_HOOKS = ("before_call", "change_result", "after_call", "provider_changed")
"""Hooks of a provider in a process of its own that see the calls and providers of the whole host."""
READ_ONLY, WRITABLE = "ro", "rw"

_OF_WORKERS = ("network", "files", "environment", "confine", "hooks", "tenants")
"""What may be said of workers that dial in: the host keeps their hooks and records to it, and says what it cannot."""

_HOST = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*(?::[1-9][0-9]{0,4})?|\[[0-9a-f:.]+\](?::[1-9][0-9]{0,4})?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_PORT = 65_535


def _host_word(word: str) -> str:
    lowered = word.lower()
    port = lowered.rpartition(":")[2]
    if not _HOST.fullmatch(lowered) or (port.isdigit() and int(port) > _MAX_PORT):
        raise shape_error("a host such as api.example.com, *.example.com or api.example.com:8443")
    return lowered


def _variable_word(word: str) -> str:
    if not _VARIABLE.fullmatch(word):
        raise shape_error("the name of a variable of the host's environment, such as TZ")
    return word


def split_file(word: str) -> tuple[str, bool]:
    """Return the path of a word of `files`, and whether it may be written."""
    path, colon, mode = word.rpartition(":")
    return (path, mode == WRITABLE) if colon and mode in (READ_ONLY, WRITABLE) else (word, False)


def _file_word(word: str) -> str:
    if not split_file(word)[0] or "\0" in word:
        raise shape_error("a path such as ./data, /srv/maps:ro or ./notes:rw")
    return word


ENGINES = "toolplug.engines"
"""The entry points of engines, which start workers: functions of the provider's key and the engine's settings."""


def find_engines() -> Mapping[str, EntryPoint]:
    """Return the installed engines by their names."""
    found: dict[str, EntryPoint] = {}
    for each in distributions():
        # The metadata of other packages may contain anything; `entry_points` would parse all of it, and fail with one.
        with suppress(Exception):
            if ENGINES in (each.read_text("entry_points.txt") or ""):
                found |= {point.name: point for point in each.entry_points.select(group=ENGINES)}
    return found


class RunSettings(FileMapping, extra="allow", json_schema_extra={"additionalProperties": {"type": "object"}}):
    """Where a provider runs, and what it may use there.

    A further key is the name of an engine, a package with an entry point in `toolplug.engines`, with its settings.
    """

    process: Annotated[
        bool, Field(description="in a process of its own, with an environment of few variables; false: in the host's")
    ] = False
    worker: Annotated[bool, Field(description="in processes elsewhere that dial in: toolplug worker KEY")] = False
    python: Annotated[
        str | None,
        Field(min_length=1, description="the interpreter of its own environment, from the folder of this file"),
    ] = None
    package: Annotated[
        str | None,
        Field(min_length=1, description="what `toolplug env` installs into that environment: toolplug-x==1.2"),
    ] = None
    network: Annotated[
        tuple[Annotated[str, AfterValidator(_host_word)], ...] | None,
        Field(strict=False, description="hosts that it may reach by HTTPS, as api.example.com or *.example.com:8443"),
    ] = None
    files: Annotated[
        tuple[Annotated[str, AfterValidator(_file_word)], ...] | None,
        Field(strict=False, description="paths that it may read, relative to the configuration; written with :rw"),
    ] = None
    environment: Annotated[
        tuple[Annotated[str, AfterValidator(_variable_word)], ...] | None,
        Field(strict=False, description="names of the host's variables that it is given"),
    ] = None
    confine: Annotated[
        Literal["required", "try"] | None,
        Field(description="where it cannot be confined: required refuses its start, try starts it and says so"),
    ] = None
    hooks: Annotated[
        tuple[Literal["before_call", "change_result", "after_call", "provider_changed"], ...],
        Field(strict=False, description="hooks that see the calls of all providers, of one that is confined"),
    ] = ()
    tenants: Annotated[
        Literal["own", "all"],
        Field(description="all: the records of any tenant, also while no call of it runs, of one that is confined"),
    ] = "own"
    memory: Annotated[Size | None, Field(description="that its processes may hold; confined 1024MiB")] = None
    processes: Annotated[
        int | None, Field(ge=4, le=100_000, description="processes and threads that it may have; confined 128")
    ] = None
    descriptors: Annotated[
        int | None, Field(ge=32, le=1_000_000, description="open files of each process; confined 256")
    ] = None
    disk: Annotated[Size | None, Field(description="that it may write; confined 256MiB")] = None

    @property
    def apart(self) -> bool:
        """Whether the provider runs in a process of its own, or in several elsewhere."""
        return self.process or self.dialled

    @property
    def dialled(self) -> bool:
        """Whether its processes are workers, which dial in by themselves or are started by an engine."""
        return self.worker or self.engine is not None

    @property
    def engine(self) -> tuple[str, Mapping[str, object]] | None:
        """The name of the engine that starts its workers, with the settings of that."""
        return next(iter((self.model_extra or {}).items()), None)

    @property
    def confined(self) -> bool:
        """Whether what is not granted is refused."""
        return not (self.network is self.files is self.environment is self.confine is None)

    def or_default(self, *, apart: bool) -> RunSettings:
        """Return these settings; where they say nothing, those of a package that asks for a process of its own."""
        if not apart or self.dialled or "process" in self.model_fields_set:
            return self
        # Elsewhere no descriptor is passed on to a process, and there is none.
        return APART_BY_DEFAULT if os.name == "posix" else self

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Refuse what would do nothing."""
        engines = self.model_extra or {}
        for name, settings in engines.items():
            known = (*RunSettings.model_fields, *find_engines())
            if name not in known:
                what = f"{name_hint(name, known)}; an engine is a package to install, such as toolplug-ray"
                raise PydanticCustomError("no_engine", "unknown key '{key}': {what}", {"key": name, "what": what})
            if not isinstance(settings, Mapping):
                raise PydanticCustomError("no_mapping", "the settings of the engine {key} are a mapping", {"key": name})
        places = [name for name in ("process", "worker") if getattr(self, name)] + [*engines]
        if len(places) > 1:
            raise PydanticCustomError("two_places", "has {keys}; keep one of them", {"keys": " and ".join(places)})
        apart_from_grants = {"process", "worker", *engines, *(_OF_WORKERS if self.dialled else ())}
        given = sorted(self.model_fields_set - apart_from_grants)
        if given and not self.process:
            what = "{key} is of a provider in a process of its own; add process: true"
            what = "{key} cannot be set for workers; set it where they run" if self.dialled else what
            raise PydanticCustomError("no_process", what, {"key": given[0]})
        if self.package is not None and self.python is None:
            raise PydanticCustomError("own_environment", "package is installed for python, which names no interpreter")
        grants = sorted(self.model_fields_set & {"hooks", "tenants"})
        if grants and not self.confined:
            what = "{key} is a grant to a provider that is confined, and this one has every right; add confine: try"
            raise PydanticCustomError("not_confined", what, {"key": grants[0]})
        return self


def names_engine(run: Mapping[str, object]) -> bool:
    """Return whether one of the keys of `run` is an installed engine."""
    # The installed packages are read only for a key that is none of ours: it takes milliseconds.
    further = run.keys() - RunSettings.model_fields.keys()
    return bool(further) and not further.isdisjoint(find_engines())


IN_PROCESS: RunSettings = RunSettings()
"""A provider in the process of the host."""
APART_BY_DEFAULT: RunSettings = RunSettings(process=True)
"""A provider whose package asks for a process of its own, and whose entry says nothing of it.

It has all variables of the host: an upgrade of the package that asks must not take a proxy or a database from it.
"""
