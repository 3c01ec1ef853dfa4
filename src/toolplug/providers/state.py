"""In which state a provider is, why, and what to do about it: one record for the log, the command line and HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ProviderState(StrEnum):
    """Every provider is in exactly one of these (CONTRACT.md section 5)."""

    ACTIVE = "active"
    INSTALLED_NOT_ENABLED = "installed-not-enabled"
    DISABLED = "disabled"
    IMPORT_FAILED = "import-failed"
    CONFIG_INVALID = "config-invalid"
    START_FAILED = "start-failed"
    SHADOWED = "shadowed"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRecord:
    """One provider as an operator sees it. `tools` are the names that it lists, `routes` are `METHOD /path`."""

    key: str
    type: str
    state: ProviderState
    reason: str = ""
    fix: str = ""
    tools: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    distribution: str = ""
    version: str = ""
