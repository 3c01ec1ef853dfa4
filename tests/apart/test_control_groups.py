"""Where the kernel keeps the memory of a provider's processes, they begin in a group of their own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.apart.plain import Plain
from tests.apart.starting import needs_confinement, provider_of, until

from toolplug import CallContext, ToolCall
from toolplug.apart.confinement import cgroups
from toolplug.apart.confinement.cgroups import Cgroup, NoCgroups, group_of_memory, limit_memory, open_cgroups
from toolplug.apart.entries import apart_class
from toolplug.config.run_settings import RunSettings
from toolplug.providers.entry import DesiredProvider, ProviderEntry
from toolplug.providers.registry import FunctionRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("I36-confined")]

if sys.platform != "linux":
    pytest.skip("other systems have no control groups", allow_module_level=True)


CALL = ToolCall("c", "one", {"text": "tea"})


class FolderGroups:
    """Control groups of plain files, where a machine delegates none to its tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.limits: list[Mapping[str, str]] = []

    def create(self, limits: Mapping[str, str]) -> Cgroup:
        folder = self.folder / f"group-{len(self.limits)}"
        folder.mkdir()
        (folder / "cgroup.procs").touch()
        (folder / "memory.events").write_text("low 0\noom_kill 0\n")
        self.limits.append(limits)
        return Cgroup(folder)


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderGroups:
    made = FolderGroups(tmp_path)
    monkeypatch.setattr(cgroups, "_own_cgroups", lambda: made)
    return made


async def check_group(groups: FolderGroups, run: RunSettings) -> None:
    made = apart_class(Plain, {}, "made", run)
    wanted = DesiredProvider(ProviderEntry(key="made", type="made", run=run), lambda: made)
    async with FunctionRegistry() as registry:
        await registry.apply([wanted])
        process = vars(provider_of(registry))["_process"]
        folder = groups.folder / "group-0"
        entered = int((folder / "cgroup.procs").read_text())
        assert entered == process.pid
        assert groups.limits == [limit_memory(256 * 1024**2)]
        # The kernel ends the whole group, and tells nobody but who asks.
        (folder / "memory.events").write_text("low 0\noom_kill 1\n")
        process.kill()
        ended = "its processes hold more than 256MiB of memory"
        await until(lambda: ended in process.exit_reason)
        for name in ("cgroup.procs", "memory.events"):
            (folder / name).unlink()
        await until(lambda: not folder.exists())
        assert ended in process.exit_reason
        await until(lambda: len(groups.limits) == 2)  # the next one has a group of its own
        async with asyncio.timeout(60):
            while (await registry.execute(CALL, CallContext())).output != "tea":
                await asyncio.sleep(0.05)


async def test_a_process_begins_in_its_group_and_its_end_by_the_kernel_is_told(groups: FolderGroups) -> None:
    await check_group(groups, RunSettings.model_validate({"process": True, "memory": "256MiB"}))


@needs_confinement
async def test_a_confined_process_begins_in_its_group(groups: FolderGroups) -> None:
    await check_group(groups, RunSettings.model_validate({"process": True, "network": [], "memory": "256MiB"}))


def test_without_groups_or_a_number_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cgroups, "_own_cgroups", lambda: FolderGroups(tmp_path / "missing"))
    assert group_of_memory(None) is None
    assert group_of_memory(1) is None  # the folder cannot be made
    monkeypatch.setattr(cgroups, "_own_cgroups", lambda: None)
    assert group_of_memory(1) is None


def test_a_group_that_is_not_delegated_says_which_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_own_group", lambda: tmp_path)
    with pytest.raises(NoCgroups, match=r"cgroup\.subtree_control: No such file"):
        open_cgroups()
    (tmp_path / "cgroup.subtree_control").write_text("cpu")
    (tmp_path / "cgroup.controllers").write_text("cpu pids")
    with pytest.raises(NoCgroups, match="has no controllers for memory and pids"):
        open_cgroups()
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    (tmp_path / "cgroup.type").write_text("domain")
    with pytest.raises(NoCgroups, match="is not delegated to toolplug"):
        open_cgroups()
