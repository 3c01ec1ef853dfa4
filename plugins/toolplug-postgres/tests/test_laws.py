"""The PostgreSQL store keeps the laws, on a real server."""

from __future__ import annotations

import pytest

from toolplug.testing.store_laws import SharedStoreLaws, StoreLaws

pytestmark = [pytest.mark.needs("pg_createcluster"), pytest.mark.requirement("C-12-postgres-laws")]


@pytest.mark.judge
class TestLaws(StoreLaws): ...


@pytest.mark.process
class TestSharing(SharedStoreLaws): ...
