"""What a provider was granted, open from its start to its end: the same for each of its processes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from toolplug.apart.confinement.bounds import UNCOUNTED, measure_disk
from toolplug.apart.confinement.confinement import Confinement
from toolplug.apart.confinement.file_grants import OpenedFile, open_grants
from toolplug.apart.confinement.network import NetworkProxy
from toolplug.apart.confinement.sandbox import Opening
from toolplug.net.egress import Egress
from toolplug.runtime.threads import in_own_thread


class Access:
    """The opened files, the folder of its own and the proxy of one provider."""

    def __init__(self, confinement: Confinement, log: Callable[[int, str], None]) -> None:
        self._confinement = confinement
        self._log = log
        self._files: list[OpenedFile] = []
        self._proxy: NetworkProxy | None = None

    async def open(self, state_dir: Path, egress: Egress) -> Opening:
        """Open all of it. Raises `InvalidDefinition` for a file that is gone."""
        confinement = self._confinement
        if confinement.sandbox is None:
            own = _absolute(state_dir)
            return Opening(state_dir=own, counted=(own,))
        self._files = open_grants(confinement.files)
        if confinement.run.network:
            self._proxy = NetworkProxy(confinement.run.network, egress, self._log)
            await self._proxy.start()
        proxy = None if self._proxy is None else self._proxy.path
        own, written = _absolute(state_dir), [Path(each.grant.path) for each in self._files if each.grant.writable]
        before = await in_own_thread(partial(measure_disk, written))
        if before is None:
            self._log(logging.WARNING, f"what it writes to granted folders is not counted: {UNCOUNTED}")
            return Opening(self._files, own, proxy, (own,))
        return Opening(self._files, own, proxy, (own, *written), before)

    async def aclose(self) -> None:
        """Let go of all of it."""
        proxy, self._proxy = self._proxy, None
        files, self._files = self._files, []
        for each in files:
            each.close()
        if proxy is not None:
            await proxy.aclose()


def _absolute(folder: Path) -> Path:
    """Return the same folder for a process that runs elsewhere."""
    return Path(os.path.abspath(folder))
