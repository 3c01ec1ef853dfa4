"""What the log says of a request that failed: where, and not the exception's text, which may hold what was sent."""

from __future__ import annotations

import logging
from traceback import extract_tb

_LOG = logging.getLogger("toolplug.http")


def log_fault(what: str, error: BaseException, request_id: str) -> None:
    """One line with the exception's type and innermost place; the traceback only for those who debug."""
    frames = extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"
    _LOG.error("%s raised %s at %s (request %s)", what, type(error).__name__, place, request_id)
    _LOG.debug("traceback of request %s", request_id, exc_info=error)
