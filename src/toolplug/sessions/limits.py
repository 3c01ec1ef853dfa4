"""What one session, and all of them together, may take."""

from __future__ import annotations

from dataclasses import dataclass

MAX_TOOLS = 1000
MAX_SET_BYTES = 8 * 1024 * 1024
"""All definitions of one session together: what one registration can bring."""
MAX_ENVIRONMENT_BYTES = 64 * 1024
"""Capabilities and environment together."""
MIN_TTL_S = 1
MAX_TTL_S = 86_400
HEARTBEAT_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """The operator's limits. `ttl_s`: from the plugin's last sign; `grace_s`: from its last stream's end."""

    ttl_s: float = 3600.0
    grace_s: float = 30.0
    max_tools: int = 256
    max_updates_per_minute: int = 10
    max_waiting_calls: int = 100
    max_sessions: int = 10_000
