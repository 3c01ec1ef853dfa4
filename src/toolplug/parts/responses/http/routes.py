"""The routes of the Responses API and of chat completions, in the order of their description."""

from __future__ import annotations

from toolplug.http.routing import routes_in
from toolplug.parts.responses.http import chat_completions, create, stored

ROUTES = (*routes_in(create), *routes_in(stored), *routes_in(chat_completions))
