"""`file_search` in a process of its own, as it runs by default, and in the host's: what a search costs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from benchmarks.apart import cpu_s, process_of
from benchmarks.calling import ALICE
from benchmarks.file_search import queries, texts
from benchmarks.frame import MILLISECONDS, Batch, Row
from toolplug import CallContext, Host, ToolCall, open_host

FILES, TEXTS = 10, 300
"""Files that are searched, and texts of each: 800 KB."""


@asynccontextmanager
async def _serving(*, process: bool) -> AsyncGenerator[Host]:
    with TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "docs").mkdir()
        for number in range(FILES):
            part = texts(FILES * TEXTS)[number * TEXTS : (number + 1) * TEXTS]
            (folder / "docs" / f"{number}.txt").write_text("\n\n".join(part), "utf-8")
        entry = {"enabled": True, "paths": ["docs"], "refresh": 3600, "run": {"process": process}}
        file = folder / "providers.yaml"
        file.write_text(json.dumps({"store": "memory://", "providers": {"file_search": entry}}), "utf-8")
        async with open_host(file, environ={}) as host:
            while len(await _found(host, "list_files")) < FILES:  # noqa: ASYNC110  another process has no event of it
                await asyncio.sleep(0.1)
            yield host


async def _found(host: Host, name: str, **arguments: object) -> Sequence[object]:
    call = ToolCall(id="c1", name=name, arguments=arguments)
    result = await host.executor_for(ALICE).execute(call, CallContext(principal=ALICE))
    assert not result.is_error, result.output
    value = json.loads(result.output)
    return value["files" if name == "list_files" else "results"]


@asynccontextmanager
async def searching(*, process: bool) -> AsyncGenerator[Batch]:
    """Search one query after the other; the cost is the CPU time of both processes."""
    async with _serving(process=process) as host:
        there = process_of(host.registry, "file_search") if process else None

        async def batch(n: int) -> float:
            began = process_time() + cpu_s(there)
            for query in islice(cycle(queries()), n):
                assert await _found(host, "file_search", query=query)
            return process_time() + cpu_s(there) - began

        yield batch


ROWS = (
    Row(
        name="file_search in a process of its own",
        ours=partial(searching, process=True),
        other=partial(searching, process=False),
        against="in the host's process",
        hold=1.6,
        aim=1.3,
        unit=MILLISECONDS,
        pairs=31,
        batch_s=0.1,
    ),
)
