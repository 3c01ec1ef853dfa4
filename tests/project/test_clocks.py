"""Which clock the product reads, and where."""

from __future__ import annotations

import ast

import pytest
from tests.project.sources import product

BY_THE_WALL = {
    "plugins/toolplug-code-interpreter/src/toolplug_code_interpreter/container.py",
    "plugins/toolplug-code-interpreter/src/toolplug_code_interpreter/containers.py",
    "plugins/toolplug-code-mode/src/toolplug_code_mode/scripts.py",
    "plugins/toolplug-console/src/toolplug_console/feed.py",
    "plugins/toolplug-console/src/toolplug_console/provider.py",
    "plugins/toolplug-console/src/toolplug_console/shared_hour.py",
    "plugins/toolplug-file-search/src/toolplug_file_search/storage/library.py",
    "plugins/toolplug-journal/src/toolplug_journal/command.py",
    "plugins/toolplug-journal/src/toolplug_journal/provider.py",
    "plugins/toolplug-journal/src/toolplug_journal/routes.py",
    "plugins/toolplug-notify/src/toolplug_notify/sender.py",
    "plugins/toolplug-openapi/src/toolplug_openapi/answers.py",
    "plugins/toolplug-postgres/src/toolplug_postgres/notifications.py",
    "plugins/toolplug-web-search/src/toolplug_web_search/backends.py",
    "src/toolplug/cli/serving/over_http.py",
    "src/toolplug/cli/serving/reload.py",
    "src/toolplug/execution/accounting.py",
    "src/toolplug/parts/responses/loop.py",
    "src/toolplug/parts/responses/openai_backend.py",
    "src/toolplug/stores/memory.py",
    "src/toolplug/stores/open.py",
    "src/toolplug/sqlite/store.py",
}
"""Audit lines and responses carry the time of day, a Retry-After may be one, and a store's TTLs follow its clock.

Files are stamped with it too, which tells a reload what was saved while the process started. Records of the plugins
carry it (files, calls, entries of the journal), an approval ends at a time of day, and a webhook is signed with one.

Nothing else may read it.
"""

READINGS = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}


def _reads_the_wall_clock(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "time" and not {"time", "time_ns"}.isdisjoint(name.name for name in node.names)
    if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
        return False
    return (node.value.id, node.attr) in READINGS


@pytest.mark.slow
@pytest.mark.requirement("H-time-deadlines")
def test_no_deadline_or_limit_is_measured_by_a_clock_that_jumps() -> None:
    found = {source.name for source in product() if any(_reads_the_wall_clock(node) for node in source.nodes)}
    assert found == BY_THE_WALL
