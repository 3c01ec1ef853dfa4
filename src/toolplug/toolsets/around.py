"""What the toolsets of one host share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from toolplug.catalog.plan import Approval, Artifacts, Carrier, Replay
from toolplug.execution.current_hooks import Hooks
from toolplug.execution.knobs import Layer
from toolplug.execution.ledger import Ledger
from toolplug.execution.series import CallSeries


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The memory and the rules around calls. `unknown` counts calls of names that nobody lists.

    `limits()` gives the limits for every tool, and `hooks()` the host-wide hooks, as they are now.
    """

    unknown: CallSeries
    ledger: Ledger
    carrier: Carrier
    limits: Callable[[], Layer]
    hooks: Hooks = tuple
    replay: Replay | None = None
    approvals: Approval | None = None
    artifacts: Artifacts | None = None
