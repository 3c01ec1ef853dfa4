"""The limits of scripts that are not settings."""

from __future__ import annotations

MAX_CODE = 64 * 1024
"""Characters of a script; a model writes a hundredth of it."""
MAX_PRINTED = 64 * 1024
"""Characters of what a script prints; what is beyond is counted only."""
MAX_TRACEBACK = 4_000
"""Characters of an error that a script ends with: a message of it may be of any length."""
CHECKOUT_S = 10.0
"""Seconds for which a script waits for a process of the pool."""
MOST_CHECKOUTS = 100
"""Scripts that one process runs before it is replaced, as whatever it may have kept of them goes with it."""
SUSPENSIONS = 4
"""How often a script may stop for each call that it may make: for its name, the call, its answer and a sleep."""
MORE_SUSPENSIONS = 200
"""And besides, for names that are no tools."""

MAX_STUB_NODES = 200
"""Schemas that are read for one stub; what is beyond is `Any`."""
MAX_STUB_DEPTH = 6
"""Levels of a schema that a stub shows; what is below is `Any`."""
MAX_LITERALS = 50
"""Values of an enumeration that a stub lists; a longer one is the type of its values."""
MAX_STUB_TEXT = 600
"""Characters of a tool's description in its stub."""
MAX_TABLES = 64
"""Lists of functions that are kept, one for each list of tools that callers have."""
MAX_LISTED = 20
"""Functions that the description of `run_code` lists; with more of them, models search."""
MAX_DESCRIPTION = 8 * 1024
"""Bytes of a description, by the host; where the functions need more, models search, too."""
MAX_QUERY = 400
"""Characters of a query for functions."""
MAX_FOUND = 10
"""Functions that a query finds."""

LEASE_S = 6.0
"""Seconds after which a run counts as lost whose process no longer renews its lease."""
RENEWED_EVERY_S = 2.0
"""Two renewals of a lease may be late."""
LOOK_S = 0.05
"""Seconds until the second look at a run that another call goes on with; each later pause is twice as long."""
MAX_LOOK_S = 1.0
"""But no longer than this: a call that waits for a minute reads the store 64 times, and not 1,200 times."""
LOST_KEPT_S = 86_400.0
"""A day: for so long it is known what a run had made that was lost."""
ANSWER_KEPT_S = 120.0
"""Seconds for which the end of a run that has paused is known: calls that came meanwhile get it."""
MAX_ANSWER = 256 * 1024
"""Characters of an end that is kept."""
MAX_PAUSED = 4 * 1024 * 1024
"""Bytes of a run that is kept while it waits: all values of the script."""
MAX_SHOWN = 200
"""Characters of a call as the journal and the answers of a run show it; its arguments may have a megabyte."""
MAX_LINES = 100
"""Calls that the journal and the answers of a run list one by one, the newest ones; those before are counted."""
MAX_EQUAL = 20
"""Runs of equal scripts of one caller that are looked at."""
MAX_BITS = 14_000
"""Bits of an integer in JSON: Python reads 4,300 digits, and no more."""
MAX_BITS_OF_TEXT = 100_000
"""Bits of an integer that is shown as a text, 30,000 digits; of a longer one only how long it is."""
