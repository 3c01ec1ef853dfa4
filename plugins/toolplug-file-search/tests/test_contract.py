"""The provider keeps the contract between providers and hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from toolplug import open_host
from toolplug.apart.provider import ApartProvider
from toolplug.testing.provider_check import check_provider
from toolplug_file_search.provider import FileSearch

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.mark.requirement("I2-9-all-use-it")
@pytest.mark.parametrize("run", [{}, {"process": True}], ids=["in the host", "apart"])
async def test_the_provider_keeps_the_contract(tmp_path: Path, run: Mapping[str, object]) -> None:
    (tmp_path / "river.md").write_text("# River\n\nThe river runs.\n")
    await check_provider(
        FileSearch,
        settings={"paths": [str(tmp_path)]},
        calls={"file_search": {"query": "river"}, "list_files": {}},
        run=run,
    )


def _write(folder: Path, **rules: object) -> Path:
    path = folder / "providers.yaml"
    path.write_text(json.dumps({"store": "memory://", "providers": {"file_search": {"enabled": True, **rules}}}))
    return path


@pytest.mark.requirement("I36-default")
async def test_it_runs_in_a_process_of_its_own_unless_its_entry_says_otherwise(tmp_path: Path) -> None:
    kinds: list[type] = []
    rules: tuple[dict[str, object], ...] = ({}, {"run": {"process": False}})
    for run in rules:
        async with open_host(_write(tmp_path, **run)) as host:
            kinds.append(type(host.registry.running()["file_search"].provider))
    assert kinds == [ApartProvider, FileSearch]
