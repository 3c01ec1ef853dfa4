"""W3C Trace Context (https://www.w3.org/TR/trace-context/): the `traceparent` and `tracestate` of a call, as data.

Both come from strangers and are forwarded to others, so only what the specification allows is kept. An invalid
`traceparent` drops both, an invalid `tracestate` only itself; neither is an error of the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolplug.catalog.call import NO_TRACE_CONTEXT

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

# The specification asks that 512 characters are passed on; a longer list may be dropped whole.
MAX_TRACESTATE = 512
_MAX_MEMBERS = 32

# The version `ff` and ids of zeros alone are invalid by the specification.
_PARENT = re.compile(r"(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-[\x20-\x7e]*)?")
# The second form is that of a system with several tenants, `tenant@system`.
_KEY = r"[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13}"
# The value has neither comma nor equals sign, and its last character is no blank.
_MEMBER = re.compile(rf"({_KEY})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")


def trace_context(traceparent: object, tracestate: object = None) -> Mapping[str, str]:
    """Return the valid ones of both values under their names; none without a valid `traceparent`.

    A later version is read as version 00, which is what this one can pass on.
    """
    parent = _parent(traceparent) if isinstance(traceparent, str) else None
    if parent is None:
        return NO_TRACE_CONTEXT
    state = _state(tracestate) if isinstance(tracestate, str) else ""
    return {TRACEPARENT: parent, TRACESTATE: state} if state else {TRACEPARENT: parent}


def _parent(given: str) -> str | None:
    found = _PARENT.fullmatch(given)
    if found is None:
        return None
    version, ids, flags, rest = found.groups()
    if version == "00":
        # Only later versions may have further fields.
        return given if rest is None else None
    # Version 00 knows one flag, `sampled`; whoever writes a header sets the other bits to zero.
    return f"00-{ids}-{int(flags, 16) & 1:02x}"


def _state(given: str) -> str:
    """Return the list without blanks and empty members; empty if a member is invalid or a key is there twice."""
    if len(given) > MAX_TRACESTATE:
        return ""
    members = [member for part in given.split(",") if (member := part.strip(" \t"))]
    found = [_MEMBER.fullmatch(member) for member in members]
    keys = {match[1] for match in found if match is not None}
    return ",".join(members) if len(keys) == len(members) <= _MAX_MEMBERS else ""
