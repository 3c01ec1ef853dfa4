"""What `run` of an entry means on this machine: confined, with bounds, or neither, and why."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolplug.apart.confinement.bounds import NO_BOUNDS, Bounds
from toolplug.apart.confinement.file_grants import FileGrant, list_grants
from toolplug.apart.confinement.interpreter import environment_parts
from toolplug.apart.confinement.refusals import ConfinementRefusal
from toolplug.apart.confinement.sandbox import Sandbox, find_bubblewrap
from toolplug.apart.permissions import Permissions
from toolplug.config.run_settings import HOST_HOOKS, IN_PROCESS, RunSettings
from toolplug.config.units import format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """How the processes of one entry run.

    `sandbox` is None where they are not confined; `refusal` is why, if they should have been. `asked` is what the
    package says that it needs, None where it says nothing.
    """

    run: RunSettings = IN_PROCESS
    bounds: Bounds = NO_BOUNDS
    files: Sequence[FileGrant] = ()
    sandbox: Sandbox | None = None
    refusal: ConfinementRefusal | None = None
    asked: Permissions | None = None

    @property
    def watched(self) -> bool:
        """Whether the host looks after its processes."""
        return self.sandbox is not None or any(bound is not None for bound in self.bounds)

    @property
    def required(self) -> bool:
        """Whether a provider that cannot be confined must not start."""
        return self.run.confine == "required"

    def lacks_hook(self, hook: str) -> bool:
        """Return whether a hook of the provider sees the whole host, and is not granted."""
        return self.run.confined and hook in HOST_HOOKS and hook not in self.run.hooks

    @property
    def has_all_tenants(self) -> bool:
        """Whether it may use the records of a tenant while no call of it runs."""
        return not self.run.confined or self.run.tenants == "all"

    def list_ungranted(self) -> list[str]:
        """Return what the package asks for and `run` does not grant, a text for each kind."""
        if self.asked is None or not self.run.confined:
            return []
        granted: Mapping[str, Iterable[str]] = {
            "network": self.run.network or (),
            "environment": self.run.environment or (),
            "hooks": self.run.hooks,
        }
        texts: list[str] = []
        for name, words in granted.items():
            missing = [word for word in getattr(self.asked, name) if word not in set(words)]
            if missing:
                texts.append(f"it asks for {name}: {', '.join(missing)}, which run.{name} does not grant")
        if self.asked.files and not self.run.files:
            texts.append(f"it asks for files: {', '.join(self.asked.files)}, and run.files grants none")
        return texts

    def describe(self) -> dict[str, object]:
        """Return how it runs, what it asks for and what it is granted, as `doctor` shows it."""
        run, bounds = self.run, self.bounds
        granted = [
            f"{name}: {', '.join(words)}"
            for name in ("network", "files", "environment", "hooks")
            if (words := getattr(run, name))
        ]
        granted += ["tenants: all"] if run.confined and run.tenants == "all" else []
        limits = {
            "memory": None if bounds.memory is None else format_size(bounds.memory),
            "processes": bounds.processes,
            "descriptors": bounds.descriptors,
            "disk": None if bounds.disk is None else format_size(bounds.disk),
        }
        return {
            "confined": self.sandbox is not None,
            "reason": self.refusal.reason if self.refusal is not None else "",
            "asked": None if self.asked is None else self.asked.describe(),
            "granted": granted if run.confined else ["everything: it is not confined"],
            "bounds": {name: limit for name, limit in limits.items() if limit is not None},
        }


UNCONFINED: Confinement = Confinement()


def confine(
    run: RunSettings,
    config_dir: Path,
    python: str,
    *,
    modules: Sequence[str] = (),
    folders: Sequence[Path] = (),
    asked: Permissions | None = None,
) -> Confinement:
    """Return how processes of an entry run here: by this interpreter, with these modules and folders of modules.

    Blocks for the start of two short processes if they are to be confined. Raises `InvalidDefinition` for what cannot
    be granted.
    """
    bounds = Bounds.of(run)
    if not run.confined:
        return Confinement(run=run, bounds=bounds, asked=asked)
    files = list_grants(run.files or (), config_dir)
    found = find_bubblewrap()
    if isinstance(found, ConfinementRefusal):
        return Confinement(run=run, bounds=bounds, files=files, refusal=found, asked=asked)
    sandbox = Sandbox(
        bubblewrap=found,
        parts=environment_parts(python, modules, folders, [each.path for each in files]),
        environment=granted_variables(run),
        bounds=bounds,
    )
    refusal = sandbox.probe(python)
    kept = sandbox if refusal is None else None
    return Confinement(run=run, bounds=bounds, files=files, sandbox=kept, refusal=refusal, asked=asked)


def granted_variables(run: RunSettings) -> dict[str, str]:
    """Return the variables of the host that an entry grants, of those that are set."""
    return {name: os.environ[name] for name in run.environment or () if name in os.environ}
