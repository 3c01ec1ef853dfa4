"""The routes of sessions, in the order of their description."""

from __future__ import annotations

from toolplug.http.routing import routes_in
from toolplug.parts.sessions.http import calls, event_stream, handlers

ROUTES = (*routes_in(handlers), *routes_in(event_stream), *routes_in(calls))
