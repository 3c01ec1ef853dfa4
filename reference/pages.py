"""Which page is rendered from what."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reference.commands import commands_page
from reference.configuration import configuration_page
from reference.hooks import hooks_page
from reference.http import http_page
from reference.metrics import metrics_page
from reference.python import python_page

PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "configuration.md": configuration_page,
    "hooks.md": hooks_page,
    "http.md": http_page,
    "metrics.md": metrics_page,
    "python.md": python_page,
}
