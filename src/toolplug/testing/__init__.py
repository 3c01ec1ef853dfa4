"""Testing tools for authors of providers and hosts; the pytest plugin imports none of them."""

from toolplug.exports import loader, make_lister

HOMES = {
    "BrokenRule": "toolplug.testing.broken_rule",
    "ContractBroken": "toolplug.testing.broken_rule",
    "FaultyProvider": "toolplug.testing.faulty",
    "HttpRecording": "toolplug.testing.http_recording",
    "ManualClock": "toolplug.testing.store_fixtures",
    "RecordedRequest": "toolplug.testing.http_recording",
    "RouteAnswer": "toolplug.testing.provider_rules.routes",
    "SharedStoreLaws": "toolplug.testing.store_laws",
    "StoreLaws": "toolplug.testing.store_laws",
    "TenantCaller": "toolplug.testing.provider_rules.routes",
    "UnrecordedRequest": "toolplug.testing.http_recording",
    "check_executor": "toolplug.testing.executor_laws",
    "check_provider": "toolplug.testing.provider_check",
    "in_process_host": "toolplug.testing.in_process",
    "made": "toolplug.testing.provider_check",
    "recorded_http": "toolplug.testing.http_recording",
    "running": "toolplug.testing.provider_check",
}
__getattr__ = loader("toolplug.testing", HOMES)
__dir__ = make_lister("toolplug.testing", HOMES)
