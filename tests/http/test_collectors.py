"""The providers' own collectors at `/metrics`, while their providers are active."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from httpx2 import AsyncClient
from tests.host.conftest import Package
from tests.http.conftest import ROOT, client_of, settings

from toolplug import Host, open_host
from toolplug.http import create_app

pytestmark = pytest.mark.anyio

COUNTING = """
    from prometheus_client import Counter
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
    from pydantic import BaseModel
    from toolplug import FunctionProvider

    class Counting(FunctionProvider):
        class Config(BaseModel):
            begin: int = 1

        async def start(self, site):
            self.counted = Counter("counted", "What was counted.", registry=None)
            self.counted.inc(self.config.begin)

        def collectors(self):
            return [self.counted]

    class Raising(Counting):
        def collectors(self):
            class Bad(Collector):
                def collect(self):
                    raise SystemExit("the secret of the collector")

            return [Bad(), *super().collectors()]

    class Forging(Counting):
        scrapes = 0

        def collectors(self):
            class Forger(Collector):
                def collect(collector):
                    self.scrapes += 1
                    for number in range(60):
                        yield GaugeMetricFamily(f"antwort_builtin_{self.scrapes}_{number}", "", value=1)
                    counted = CounterMetricFamily("counted", "", labels=["provider"])
                    counted.add_metric(["counting"], 9)
                    yield counted

            return [Forger()]
"""
POINTS = {"forging": "counting_mod:Forging", "counting": "counting_mod:Counting", "raising": "counting_mod:Raising"}


@asynccontextmanager
async def scraped(package: Package, providers: dict[str, object]) -> AsyncIterator[tuple[Host, AsyncClient]]:
    package("toolplug-counting", POINTS, counting_mod=COUNTING)
    async with open_host(settings(providers=providers), environ={}) as host, client_of(create_app(host)) as client:
        yield host, client


async def counted(client: AsyncClient) -> list[str]:
    """The lines of the family `counted` and of the errors of collectors."""
    lines = (await client.get("/metrics")).text.splitlines()
    return [line for line in lines if line.startswith(("counted_total", "antwort_builtin_collector_errors_total"))]


@pytest.mark.requirement("C-5-collectors-lifetime", "FR-004", "FR-012")
async def test_a_providers_collectors_are_there_while_it_is_active(package: Package) -> None:
    async with scraped(package, {"counting": {"enabled": True}}) as (_, client):
        assert await counted(client) == ["counted_total 1.0"]
        await client.post("/v1/providers/counting/disable", headers=ROOT)
        assert await counted(client) == []
        await client.post("/v1/providers/counting/enable", headers=ROOT)
        assert await counted(client) == ["counted_total 1.0"]


@pytest.mark.requirement("C-5-collectors-merged")
async def test_families_of_one_name_are_one_family_labelled_by_provider(package: Package) -> None:
    providers: dict[str, object] = {
        "counting": {"enabled": True},
        "again": {"enabled": True, "type": "counting", "begin": 5},
    }
    async with scraped(package, providers) as (_, client):
        assert await counted(client) == [
            'counted_total{provider="counting"} 1.0',
            'counted_total{provider="again"} 5.0',
        ]
        assert (await client.get("/metrics")).text.count("# TYPE counted_total counter") == 1


async def test_of_metrics_with_the_host_s_names_a_bounded_number_is_noted(package: Package) -> None:
    providers: dict[str, object] = {
        "forging": {"enabled": True},
        "counting": {"enabled": True},
    }
    async with scraped(package, providers) as (host, client):
        for _ in range(3):
            # A family of another provider's name cannot say that it is that one's.
            found = ['counted_total{provider="forging"} 9.0', 'counted_total{provider="counting"} 1.0']
            assert await counted(client) == found
        assert len(host.registry.left_out_metrics) == 100


@pytest.mark.requirement("C-5-collectors-guarded", "H-provider-fails-collectors", "H-trust-no-leak")
async def test_a_collector_that_raises_loses_only_its_own_lines_and_is_counted(
    package: Package, caplog: pytest.LogCaptureFixture
) -> None:
    async with scraped(package, {"raising": {"enabled": True}}) as (_, client):
        assert await counted(client) == [
            "counted_total 1.0",
            'antwort_builtin_collector_errors_total{provider="raising"} 1.0',
        ]
        assert "secret" not in caplog.text


@pytest.mark.requirement("C-5-collectors-reload")
async def test_at_a_reload_the_new_generations_collectors_stand_in_place_of_the_old(
    package: Package,
) -> None:
    package("toolplug-counting", POINTS, counting_mod=COUNTING)
    environ = {"BEGIN": "1"}
    providers = {"counting": {"enabled": True, "begin": "${BEGIN}"}}
    host = open_host(settings(providers=providers), environ=environ)
    async with host, client_of(create_app(host)) as client:
        assert await counted(client) == ["counted_total 1.0"]
        environ["BEGIN"] = "7"
        assert (await client.post("/v1/reload", headers=ROOT)).json()["started"] == ["counting"]
        assert await counted(client) == ["counted_total 7.0"]
