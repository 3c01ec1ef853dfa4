"""The provider keeps the contract between providers and hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolplug.testing.provider_check import check_provider
from toolplug_file_search.provider import FileSearch

pytestmark = [pytest.mark.anyio, pytest.mark.process]


@pytest.mark.requirement("I2-9-all-use-it")
async def test_the_provider_keeps_the_contract(tmp_path: Path) -> None:
    (tmp_path / "river.md").write_text("# River\n\nThe river runs.\n")
    await check_provider(
        FileSearch,
        settings={"paths": [str(tmp_path)]},
        calls={"file_search": {"query": "river"}, "list_files": {}},
    )
