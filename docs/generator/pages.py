"""Which page is rendered from what."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from docs.generator.commands import commands_page
from docs.generator.configuration import configuration_page
from docs.generator.hooks import hooks_page
from docs.generator.http import http_page
from docs.generator.metrics import metrics_page
from docs.generator.plugins import plugins_page
from docs.generator.python import python_page
from docs.generator.sessions import sessions_page

PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "configuration.md": configuration_page,
    "hooks.md": hooks_page,
    "http.md": http_page,
    "metrics.md": metrics_page,
    "plugins.md": plugins_page,
    "python.md": python_page,
    "sessions.md": sessions_page,
}
