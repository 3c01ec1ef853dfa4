"""Why a session that the store may have cannot be shown, as a problem that says what to do."""

from __future__ import annotations

from toolplug.errors import AccessError, Problem, SessionGone, SessionNotFound

_LISTING = "toolplug sessions list shows the codes of a tenant"


def access_problem(error: AccessError, code: str, tenant: str) -> Problem:
    """The problem behind an error of `StoredSessions`."""
    if isinstance(error, SessionGone):
        return Problem(code=error.state, message=str(error), path=code)
    if isinstance(error, SessionNotFound):
        message = f"tenant {tenant!r} has no such session"
        return Problem(code="session_not_found", message=message, path=code, hint=_LISTING)
    return Problem(code="invalid_session_code", message=str(error), path=code, hint=_LISTING)
