"""The store keeps the laws, on one server and on a cluster.

The laws set the clock of the store; `test_expiry.py` looks at the server's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from toolplug.stores.store import Store
from toolplug.testing import store_laws
from toolplug_redis.store import RedisStore


class _OnOneServer:
    @pytest.fixture
    def open_store(self, node) -> Callable[..., Store]:
        return partial(RedisStore, node.address)


class _OnACluster:
    @pytest.fixture
    def open_store(self, cluster) -> Callable[..., Store]:
        return partial(RedisStore, cluster.address)


@pytest.mark.process
@pytest.mark.requirement("I17-3-redis-laws")
class TestSharing(_OnOneServer, store_laws.SharedStoreLaws): ...


@pytest.mark.judge
@pytest.mark.requirement("I17-3-redis-laws")
class TestOneServer(_OnOneServer, store_laws.StoreLaws): ...


@pytest.mark.judge
@pytest.mark.requirement("I17-3-redis-laws")
class TestCluster(_OnACluster, store_laws.StoreLaws, store_laws.SharedStoreLaws): ...
