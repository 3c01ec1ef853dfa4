"""Any play of changes, failures, restarts and requests: what is shown is true, and in the end everybody knows all."""

from __future__ import annotations

import pytest
from tests.discovery.machine import DiscoveryMachine
from tests.playing import AT_LENGTH, playing

WHAT = ("C-8-bounded", "C-8-last-good", "C-8-old-hash", "C-8-recovered", "DISC-not-stale-silently")


@pytest.mark.slow
@pytest.mark.requirement(*WHAT)
class TestDiscovery(DiscoveryMachine.TestCase):
    settings = playing(30, 25)


@pytest.mark.judge
@pytest.mark.timeout(1200)
@pytest.mark.requirement(*WHAT)
class TestDiscoveryAtLength(DiscoveryMachine.TestCase):
    settings = playing(200 * AT_LENGTH, 50)
