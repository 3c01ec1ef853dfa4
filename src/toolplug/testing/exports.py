"""The public names of `toolplug.testing`, imported on first use: the pytest plugin imports none of them.

A name that needs an extra raises only when it is used. Type checkers read the same list in `__init__.pyi`.
"""

from __future__ import annotations

from collections.abc import Callable

from toolplug.exports import loader, make_lister

HOMES = {
    "BrokenRule": "toolplug.testing.broken_rule",
    "ContractBroken": "toolplug.testing.broken_rule",
    "FaultyProvider": "toolplug.testing.faulty",
    "HttpRecording": "toolplug.testing.http_recording",
    "ManualClock": "toolplug.testing.store_fixtures",
    "RecordedRequest": "toolplug.testing.http_recording",
    "RouteAnswer": "toolplug.testing.provider_rules.isolation",
    "SharedStoreLaws": "toolplug.testing.store_laws",
    "StoreLaws": "toolplug.testing.store_laws",
    "TenantCaller": "toolplug.testing.provider_rules.isolation",
    "UnrecordedRequest": "toolplug.testing.http_recording",
    "check_executor": "toolplug.testing.executor_laws",
    "check_provider": "toolplug.testing.provider_check",
    "in_process_host": "toolplug.testing.in_process",
    "made": "toolplug.testing.provider_check",
    "recorded_http": "toolplug.testing.http_recording",
    "running": "toolplug.testing.provider_check",
}

NAMES = list(HOMES)
load: Callable[[str], object] = loader("toolplug.testing", HOMES)
list_names: Callable[[], list[str]] = make_lister("toolplug.testing", NAMES)
