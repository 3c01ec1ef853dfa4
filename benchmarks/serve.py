"""`toolplug serve` as a process of its own: what people run, with sessions, SQLite and an API key."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import DEVNULL
from sysconfig import get_path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from benchmarks.process import Served, running

KEY = "only-for-benchmarks-7f0c1d52"

NO_SECTIONS: Mapping[str, object] = MappingProxyType({})

_LISTENING = re.compile(r"^toolplug listening on http://127\.0\.0\.1:(\d+)$", re.MULTILINE)
_START_S = 30.0


def settings(folder: Path, sections: Mapping[str, object] = NO_SECTIONS) -> Mapping[str, object]:
    """The document, with its state in this folder; the limits are so high that none of them acts."""
    return {
        "providers": {"hello": {"enabled": True}},
        "auth": {"api_keys": [{"key": KEY, "subject": "alice", "tenant": "t1"}]},
        "http": {"edge": {"connections_per_peer": 10_000, "streams_per_key": 10_000}},
        "store": f"sqlite:///{folder / 'state.db'}",
        "sessions": {
            "grace": "1h",
            "max_tools": 1000,
            "max_updates_per_minute": 1_000_000,
            "max_sessions": 20_000,
        },
        **sections,
    }


@contextmanager
def hosted(**sections: object) -> Generator[Served]:
    """Serve until it is no longer needed, with these sections too.

    Its log, an audit line for each change included, goes into a file.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        config, log = folder / "providers.yaml", folder / "log"
        config.write_text(json.dumps(settings(folder, sections)), encoding="utf-8")
        command = [Path(get_path("scripts")) / "toolplug", "serve", "-c", config, "--port", "0"]
        with log.open("w", encoding="utf-8") as lines, running(command, stdout=DEVNULL, stderr=lines) as process:
            yield Served(pid=process.pid, port=_port(log))


@contextmanager
def replicas(count: int, store: str) -> Generator[list[Served]]:
    """Serve with so many hosts that share a store."""
    with ExitStack() as life:
        yield [life.enter_context(hosted(store=store)) for _ in range(count)]


def _port(log: Path) -> int:
    give_up_at = time.monotonic() + _START_S
    while True:
        text = log.read_text(encoding="utf-8")
        found = _LISTENING.search(text)
        if found is not None:
            return int(found[1])
        if time.monotonic() > give_up_at:
            raise RuntimeError(f"toolplug serve does not listen: {text}")
        time.sleep(0.02)
