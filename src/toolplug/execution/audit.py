"""The audit trail: one JSON object a line for each refusal and each change, on the logger `toolplug.audit`.

Arguments, results, tokens and session codes never stand in it.
"""

from __future__ import annotations

import json
import logging
from time import time

from toolplug.catalog.call import Principal

_LOGGER = logging.getLogger("toolplug.audit")


def audit(event: str, outcome: str, principal: Principal, target: str, request_id: str) -> None:
    """Write one line: `ts` (seconds since the epoch), event, outcome, principal, tenant, target, request id."""
    line = {
        "ts": round(time(), 3),
        "event": event,
        "outcome": outcome,
        "principal": principal.subject,
        "tenant": principal.tenant,
        "target": target,
        "request_id": request_id,
    }
    _LOGGER.info("%s", json.dumps(line, separators=(",", ":")))
