"""`check_provider` passes for a provider in a process of its own, in the same words."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.apart.everything import Everything

from toolplug.testing import check_provider

pytestmark = pytest.mark.anyio

CALLS: Mapping[str, Mapping[str, object]] = {
    "echo": {"value": "tea"},
    "blocking": {},
    "nested": {"inner": {"size": 1}},
    "who": {},
    "rich": {},
    "large": {"size": 10},
    "data": {"size": 10},
    "chain": {"depth": 1},
}


@pytest.mark.judge
@pytest.mark.requirement("I36-apart")
async def test_the_check_of_providers_passes_in_a_process_of_its_own() -> None:
    uncalled = ["fail", "note", "ask", "hang", "die"]
    await check_provider(
        Everything,
        calls=CALLS,
        uncalled=uncalled,
        prompts={"greet": {"who": "Bo"}, "praise": {"name": "tea"}},
        resources={"things://{name}": {"name": "cup"}},
        run={"process": True},
        within_s=10,
    )


async def test_what_runs_in_workers_is_checked_in_a_process() -> None:
    with pytest.raises(ValueError, match=r"check it with run=\{'process': True\}"):
        await check_provider(Everything, run={"worker": True})
