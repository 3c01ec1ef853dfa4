"""The limits of sessions, as docs/reference/limits.md lists them: what is registered, streams, and calls that wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from toolplug.host.quotas.settings import NO_QUOTAS, Quotas

# What an application registers

MAX_BODY: Final = 8 * 1024 * 1024
"""Bytes of the body of `register-tools` and `update-tools`."""
MAX_TOOLS = 1000
"""Tools of one session, whatever `sessions.max_tools` says, and names of one request."""
MAX_SET_BYTES = 8 * 1024 * 1024
"""The total size of the definitions of one session."""
MAX_ENVIRONMENT_BYTES = 64 * 1024
"""The total size of capabilities and environment."""
MAX_ENVIRONMENT_KEYS = 1000
MAX_CAPABILITIES = 100

# Lifetime

MIN_TTL_S = 1
MAX_TTL_S = 86_400
HEARTBEAT_S = 15.0
"""Seconds without an event after which a stream gets a `heartbeat`."""

# Streams and executors

MAX_WAITING_EVENTS = 256
"""Events that wait for a slow reader, which gets `resync` beyond them."""
MAX_WAITING_BYTES = 1024 * 1024
"""Bytes of these events; a single one may be of any size."""
MAX_EXECUTORS = 1_000
"""Executors of sessions that are kept while nobody uses them: those that were used last."""

# What is shown of sessions

MAX_PROMPT_TOOLS = 100
"""Tools in the text of `prompt`; the others are counted."""
MAX_PROMPT_BYTES = 32 * 1024
"""Bytes of the tools in that text, which a person pastes into a chat."""
MAX_PROMPT_LINES = 12
"""Lines of a tool's description there."""
MAX_PROMPT_LINE = 300
"""Characters of one of them, and of the description of an argument."""
MAX_PROMPT_ARGUMENTS = 20
"""Arguments of a tool there."""
MAX_TYPES = 50
"""Kinds of applications of one tenant that are remembered: those that were seen last."""
MAX_ALL_TYPES = 1000
"""The same of all tenants, some 16 MB at the worst."""
MAX_TYPE_TOOLS = 50
"""Tools that are remembered of one kind."""
MAX_TYPE_TEXT = 200
"""Characters of the description of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """The operator's limits. `ttl_s` begins with the plugin's last sign, `grace_s` with the end of its last stream."""

    ttl_s: float = 3600.0
    grace_s: float = 30.0
    max_tools: int = 256
    max_updates_per_minute: int = 10
    max_waiting_calls: int = 100
    max_sessions: int = 10_000
    quotas: Quotas = NO_QUOTAS
