"""The id under which a request stands in answers, audit lines and logs."""

from __future__ import annotations

import re
from random import getrandbits

_ACCEPTED = re.compile(rb"[A-Za-z0-9._-]{1,64}")


def request_id(given: bytes | None) -> str:
    """The client's own `X-Request-Id` where it is one, else a new one: a name and no secret."""
    if given is not None and _ACCEPTED.fullmatch(given):
        return given.decode()
    return f"{getrandbits(64):016x}"
