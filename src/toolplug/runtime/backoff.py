"""Exponential backoff of loops that connect again for as long as they run.

Not tenacity, which repeats one function: these wait between connections that each last for hours, and the next pause
depends on how long the last one was open.
"""

from __future__ import annotations

# A float overflows at 2.0 ** 1024, and a loop that fails for a week counts that far. Thirty doublings of a millisecond
# are twelve days, so the cap never shows in the result.
_MOST_DOUBLINGS = 30


def pause_after(failures: int, first_s: float, longest_s: float) -> float:
    """Return the seconds to wait after so many failures in a row: `first_s` after one, doubled up to `longest_s`.

    Make it shorter by a random part, so that those who failed together do not come back together.
    """
    return min(first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), longest_s)
