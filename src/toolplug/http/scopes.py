"""The scopes of the host's own routes; providers may ask for others of their own."""

from __future__ import annotations

READ = "tools:read"
CALL = "tools:call"
ADMIN = "admin"
EVERY_SCOPE = frozenset({READ, CALL, "sessions:write", "approvals:write", ADMIN})
