"""The routes of the Responses API, in the order of their description."""

from __future__ import annotations

from toolplug.http.routing import routes_in
from toolplug.parts.responses.http import create, stored

ROUTES = (*routes_in(create), *routes_in(stored))
