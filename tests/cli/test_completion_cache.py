"""The cache of the completion of tool names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolplug.catalog.catalog import Catalog
from toolplug.cli.completion import MAX_CALLERS, keep_for_completion


@pytest.mark.requirement("C-10-completion")
def test_the_cache_keeps_the_catalogs_that_were_listed_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = tmp_path / "providers.yaml"
    config.write_text("")
    tenants = [f"t{number}" for number in range(MAX_CALLERS + 1)]
    for tenant in (*tenants[:-1], tenants[0], tenants[-1]):
        keep_for_completion(Catalog(()), config, tenant, None)
    (file,) = tmp_path.glob("toolplug/completion/*.json")
    kept = [json.loads(key)[0] for key in json.loads(file.read_text())["catalogs"]]
    assert kept == [*tenants[2:-1], tenants[0], tenants[-1]]
