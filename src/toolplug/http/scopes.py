"""The scopes of the host's own routes; providers may ask for others of their own."""

from __future__ import annotations

from toolplug.execution.gates import CALL_SCOPE

READ = "tools:read"
CALL = CALL_SCOPE
SESSIONS = "sessions:write"
ADMIN = "admin"
APPROVALS = "approvals:write"
EVERY_SCOPE = frozenset({READ, CALL, SESSIONS, APPROVALS, ADMIN})
