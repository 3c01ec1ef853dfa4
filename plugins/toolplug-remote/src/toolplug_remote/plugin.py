"""The plugin `host`: the links to other hosts that are open, and what is wrong with them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

from toolplug import FunctionProvider, OpenToolsetSource, ProviderContext, ToolsetLink, ToolsetSource, checked_transport
from toolplug_remote.kept_catalog import OWN, KeptCatalog
from toolplug_remote.link import HostLink
from toolplug_remote.protocol import MAX_RESULT_BYTES, address_of


class RemoteHosts(FunctionProvider):
    """Toolsets of other hosts. It has no tools of its own, and no settings: each toolset names its host."""

    def __init__(self) -> None:
        self._links: list[HostLink] = []
        self._site: ProviderContext | None = None

    async def start(self, site: ProviderContext) -> None:
        """Keep the context, whose egress rules the connections follow."""
        self._site = site

    def toolset_sources(self) -> Mapping[str, OpenToolsetSource]:
        """Return the one kind of sources, `host:URL`."""
        return {"host": self._open}

    @staticmethod
    def check_toolset_address(address: str) -> None:
        """Raise `ValueError` for an address that is no URL of a host."""
        address_of(address)

    async def diagnose(self) -> Sequence[str]:
        """Return a text for each host that cannot be reached, or that restricts what its toolset can do."""
        return [text for link in self._links for text in link.problems()]

    @asynccontextmanager
    async def _open(self, link: ToolsetLink) -> AsyncGenerator[ToolsetSource]:
        """Follow a host's catalog until the block ends. Raises `ValueError` for an address that is no URL."""
        if self._site is None:
            raise LookupError("the plugin has not been started")
        address = address_of(link.address)
        transport = await checked_transport(
            self._site.egress, trusted=[address.base], max_answer_bytes=MAX_RESULT_BYTES
        )
        catalog = KeptCatalog(self._site.store(OWN), link, self.log)
        async with transport, HostLink(link, address, transport, catalog, self.log) as opened:
            self._links.append(opened)
            try:
                yield opened
            finally:
                self._links.remove(opened)
