"""What `toolplug.client` offers, and what it costs to import."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from toolplug import client

OWN = {
    f"toolplug.{part}"
    for part in ("catalog", "client", "config", "errors", "exports", "library_types", "runtime", "signatures")
}


@pytest.mark.requirement("C-12-client")
def test_every_public_name_is_there_and_says_what_it_is() -> None:
    assert client.__all__ == [
        "Application",
        "Backoff",
        "Capability",
        "Difference",
        "Environment",
        "HostError",
        "HostRefused",
        "HostUnreachable",
        "OfferedTool",
        "Requirement",
        "SessionOver",
        "Snapshot",
        "StatusChanged",
        "Tool",
        "ToolUpdates",
        "ToolsChanged",
        "compare_tools",
        "needed_capabilities",
        "watch",
    ]
    assert [name for name in client.__all__ if not getattr(client, name).__doc__] == []


@pytest.mark.process
@pytest.mark.requirement("C-12-client")
def test_importing_it_loads_nothing_of_the_host() -> None:
    code = "import json, sys, toolplug.client; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = [name for name in json.loads(done.stdout) if name.startswith("toolplug.")]
    assert {".".join(name.split(".")[:2]) for name in loaded} == OWN
    assert not {"starlette", "pluggy", "prometheus_client", "yaml"} & set(json.loads(done.stdout))
