"""How long a failed discovery rests before it is tried again."""

from __future__ import annotations

FIRST_S = 30.0
LONGEST_S = 3600.0
_DOUBLED_AT_MOST = 10


def backoff_s(failures: int, luck: float) -> float:
    """After so many failures in a row, the first is 1: 30 s doubling to an hour, of which up to a quarter is left out.

    `luck` is drawn from 0 to 1, so that servers that failed together are not tried together.
    """
    whole = min(FIRST_S * 2 ** min(failures - 1, _DOUBLED_AT_MOST), LONGEST_S)
    return whole * (1 - luck / 4)
