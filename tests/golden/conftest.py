"""Golden files: what the outside sees of toolplug, byte for byte.

`pytest tests/golden` compares with the files of this folder, and `pytest tests/golden --record-golden` writes them
again. Record only after reading the diff of a failing run: each line of it is a change that somebody can notice.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.golden.transcript import Transcript
from tests.golden.wire import Wire

from toolplug import open_host
from toolplug.http import create_app

FOLDER = Path(__file__).parent
RECORD = "--record-golden"
INSTALLED = {"toolplug", "toolplug-desk", "toolplug-hello"}
"""The only distributions with providers that a golden file may know of, whatever else is installed."""
PATIENCE_S = 60
"""After so long a scenario waits for what never comes."""

KEYS = """
store: memory://
auth:
  api_keys:
    - {key: alice-key, subject: alice, tenant: t1}
    - {key: bob-key, subject: bob, tenant: t2}
    - {key: reader-key, subject: reader, tenant: t1, scopes: [tools:read]}
    - {key: caller-key, subject: caller, tenant: t1, scopes: [tools:call]}
    - {key: keeper-key, subject: keeper, tenant: t1, scopes: [desk:write]}
    - {key: judge-key, subject: judge, tenant: t1, scopes: [approvals:write]}
    - {key: root-key, subject: root, tenant: t1, scopes: [admin, operator]}
    - {key: one-agent-key, subject: one, tenant: t1, agents: [researcher]}
    - {key: two-agents-key, subject: two, tenant: t1, agents: [researcher, writer]}
"""
DESK = """
providers:
  desk: {enabled: true, public_routes: true}
"""

Golden = Callable[[str, str], None]
Opened = Callable[..., AbstractAsyncContextManager[Wire]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(RECORD, action="store_true", help="write the golden files of tests/golden again")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(name, text)` compares a text with the file `<name>.txt`, or writes it."""
    recording = bool(request.config.getoption(RECORD, default=False))

    def compare(name: str, text: str) -> None:
        Transcript.compare(FOLDER / f"{name}.txt", text, recording=recording)

    return compare


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The desk's distribution, as pip would leave it, and no other providers but hello."""
    folder = tmp_path / "site"
    info = folder / "toolplug_desk-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolplug-desk\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[toolplug.providers]\ndesk = tests.golden.sample_provider:Sample\n")
    monkeypatch.syspath_prepend(str(folder))
    finder = importlib.metadata.MetadataPathFinder
    found = finder.find_distributions

    def known(
        context: importlib.metadata.DistributionFinder.Context,
    ) -> Iterator[importlib.metadata.Distribution]:
        return (one for one in found(context) if not _has_providers(one) or one.metadata["Name"] in INSTALLED)

    monkeypatch.setattr(finder, "find_distributions", known)
    return folder


def _has_providers(distribution: importlib.metadata.Distribution) -> bool:
    return any(point.group == "toolplug.providers" for point in distribution.entry_points)


def named(yaml: str) -> str:
    """The configuration with what its keys name: agents at its end, and no scope of a provider that it lacks."""
    if "researcher" in yaml and "\nagents:" not in yaml:
        yaml += "\nagents: {researcher: {}, writer: {}}\n"
    return yaml if "desk:" in yaml.replace("[desk:write]", "") else yaml.replace("[desk:write]", "[]")


@pytest.fixture
def opened(site: Path, tmp_path: Path, golden: Golden) -> Opened:
    """`async with opened(name, yaml) as wire:` serves that configuration; leaving compares what was recorded."""

    @asynccontextmanager
    async def serve(name: str, *yaml: str, entered: bool = True) -> AsyncIterator[Wire]:
        file = tmp_path / "providers.yaml"
        file.write_text(named("".join(yaml) or KEYS + DESK), "utf-8")
        transcript = Transcript()
        transcript.hide(str(tmp_path), "<folder>")
        async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
            host = open_host(file, environ={})
            if entered:
                await stack.enter_async_context(host)
            yield Wire(create_app(host), transcript, file)
        golden(name, transcript.text())

    return serve
