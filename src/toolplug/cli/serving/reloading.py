"""What SIGHUP asks for: the configuration is read again while the host serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from toolplug.cli.options import operator
from toolplug.cli.refusal import problems_in
from toolplug.errors import ToolplugError
from toolplug.host.host import Host

_LOG = logging.getLogger("toolplug.cli.serve")


class Reloading:
    """Makes what the configuration says now so, one time after another; a wrong one changes nothing."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._wanted = asyncio.Event()

    def want(self) -> None:
        """Have it read again, once for all who want it meanwhile."""
        self._wanted.set()

    async def run(self, reloaded: Callable[[], None]) -> None:
        """Read it again whenever that is wanted, until cancelled; each time that it was made so, call `reloaded`."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                done = await self._host.reload(by=operator())
            except (ToolplugError, OSError) as error:
                for problem in problems_in(error):
                    _LOG.error("the configuration was not read again: %s", problem)
            except Exception:  # noqa: BLE001  a named boundary: what a package's own code raises ends nothing that runs
                _LOG.exception("the configuration was not read again")
            else:
                reloaded()
                _LOG.info("configuration read again: started %s, kept %s, stopped %s", *map(_names, done))


def _names(keys: tuple[str, ...]) -> str:
    return ", ".join(keys) or "nothing"
