"""The deployments in which the wire tests run unchanged; `TOOLPLUG_WIRE` has the names of those of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from _pytest.mark.structures import ParameterSet
from tests.cli.process import Serving, serving
from tests.commit import number_of_commit
from tests.postgres_server import postgres
from tests.redis_server import redis
from tests.wire.proxy import round_robin

SHARED = "sqlite:///./state.db?shared=true"
"""A store for several hosts on one machine."""
REPLICAS = 3
START_S = 120.0
"""Seconds within which hosts that start at once, on a busy machine, must listen."""
REPLICATED = ("redis", "postgres")
"""Three hosts behind a proxy, with their records on a server."""
DEPLOYMENTS = ("one", "workers", "sqlite", *REPLICATED)
"""One process, two workers, and three hosts behind a proxy with their records in SQLite, Redis and PostgreSQL."""


NEEDS: Mapping[str, Sequence[str]] = {
    "sqlite": ("nginx",),
    "redis": ("nginx", "redis-server"),
    "postgres": ("nginx", "pg_createcluster"),
}
"""The programs that a deployment needs."""


def chosen(default: str = "workers") -> Sequence[ParameterSet]:
    """Return the deployments of this run as parameters of a fixture: `TOOLPLUG_WIRE`, a list with commas, or `all`."""
    names = os.environ.get("TOOLPLUG_WIRE", default)
    found = DEPLOYMENTS if names == "all" else tuple(names.split(","))
    unknown = sorted({*found} - {*DEPLOYMENTS})
    assert not unknown, f"TOOLPLUG_WIRE names {unknown}; there are {', '.join(DEPLOYMENTS)}"
    return [pytest.param(name, marks=pytest.mark.needs(*NEEDS.get(name, ()))) for name in found]


@contextmanager
def deployed(
    name: str, folder: Path, settings: Mapping[str, object], port: int, site: Path | None = None
) -> Iterator[str]:
    """Run the deployment with these sections of providers.yaml at a port; gives its base URL.

    `site` is a folder with further packages.
    """
    alone = name in ("one", "workers")
    count = 1 if alone else REPLICAS
    arguments = ("--port", str(port if alone else 0), *(("--workers", "2") if name == "workers" else ()))
    with ExitStack() as life:
        match name:
            case "one" | "workers":
                store = "sqlite:///./state.db"
            case "sqlite":
                store = SHARED
            case "redis":
                store = f"redis://127.0.0.1:{life.enter_context(redis()).port}"
            case _:
                store = life.enter_context(postgres()).url()
        hosts = life.enter_context(running(folder, store, count, *arguments, site=site, **settings))
        yield hosts[0].url if alone else life.enter_context(round_robin([host.url for host in hosts], folder, port))
        for host in hosts:
            host.process.terminate()
        for host in hosts:
            assert host.end() == 0, host.lines[-20:]


@contextmanager
def running(
    folder: Path, store: str, count: int, *arguments: str, site: Path | None = None, **settings: object
) -> Iterator[list[Serving]]:
    """So many hosts on one store, each a process of its own."""
    (folder / "providers.yaml").write_text(yaml.safe_dump({"store": store, **settings}, sort_keys=False))
    with ExitStack() as life:
        hosts = [life.enter_context(serving(*arguments, folder=folder, site=site)) for _ in range(count)]
        for host in hosts:
            host.wait_for("toolplug listening on ", patience_s=START_S)
        yield hosts


def rotated() -> str:
    """Return the replicated deployment that the checked-out commit is tested in: one or the other, by its hash."""
    return REPLICATED[number_of_commit() % len(REPLICATED)]


if __name__ == "__main__":
    print(rotated())
