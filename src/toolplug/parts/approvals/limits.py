"""The limits of approvals and grants (docs/reference/limits.md)."""

from __future__ import annotations

# A model that calls without end neither fills the store nor hides the questions of others.
MAX_WAITING = 1_000
"""Calls of one tenant that wait for a decision."""
MAX_WAITING_OF_CALLER = 50
"""Calls of one caller that wait for a decision."""

# Counting reads one page of keys after another; a scrape must not walk through a store without end.
MAX_COUNTED = 10_000
"""Waiting tickets of all tenants that a scrape counts."""

MAX_APPROVED = 16
"""The most approved tickets of the same call that a call without a ticket tries."""

MAX_LIFE_S = 168 * 3600.0
"""The longest that a question waits: a week, after which nobody remembers what it was about."""

USED_LIFE_S = 300.0
"""For how long a used ticket is kept, so that a repetition whose answer was lost is told from a second call."""

# Each is asked of every call of its caller and tool, so their number bounds what a call costs.
MAX_GRANTS = 50
"""Grants of one caller for one tool."""
MAX_GRANTS_OF_TENANT = 10_000
"""Grants of one tenant."""
MAX_CALLS = 1_000_000
"""The most calls that a grant counts."""

# A revocation acts within a second in every process; the rest of it is for the trip to the store.
FRESH_S = 0.5
"""Seconds for which a process uses the grants that it has read before it asks the store again."""

FLUSH_S = 10.0
"""Seconds between two writes of how often a grant was used, which no decision needs exactly."""

MAX_GROUPS = 2_000
"""Callers and tools whose grants a process has in memory; the oldest are read again at their next call."""

MAX_VIEWS = 16
"""Agents and sessions of a caller for which a process has its grants for a tool sorted out; beyond, it begins anew."""

MAX_DEFAULTS = 2_000
"""Defaults of a tool's parameters that are filled in, nested ones counted; beyond it no rule matches its calls."""
MAX_DEFAULT_DEPTH = 16
"""Levels of a tool's parameters in which defaults are filled in."""

# A decision of the command line is heard within a second; one that nobody serves to hear is of no use later.
UNTOLD_LIFE_S = 60.0
"""For how long a decision of the command line waits for a process that tells its plugins."""
MAX_UNTOLD = 1_000
"""Tickets that one plugin has not been told of yet; it misses those beyond."""
CLOSE_S = 1.0
"""Seconds that plugins have at the end of the host for what they have not been told."""
