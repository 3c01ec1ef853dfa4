"""Any play of plugins, readers, callers and faults: the invariants of sessions hold."""

from __future__ import annotations

import pytest
from tests.playing import AT_LENGTH, playing
from tests.sessions.machine import SessionsMachine

WHAT = ("I3-machine", "DYN-AC-10", "H-stream-race", "H-stream-reconnect", "C-6-atomic-revision")


@pytest.mark.slow
@pytest.mark.requirement(*WHAT)
class TestSessions(SessionsMachine.TestCase):
    settings = playing(40, 30)


@pytest.mark.judge
@pytest.mark.timeout(1200)
@pytest.mark.requirement(*WHAT)
@pytest.mark.long(35)
class TestSessionsAtLength(SessionsMachine.TestCase):
    settings = playing(350 * AT_LENGTH, 60)
