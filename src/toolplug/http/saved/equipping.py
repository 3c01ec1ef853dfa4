"""Which saved toolset is equipped."""

from __future__ import annotations

import orjson

from toolplug.errors import SavedToolsetRefused
from toolplug.host.host import Host
from toolplug.http.exchange import Exchange
from toolplug.http.saved.asking import answer_toolset, asking


async def equip_toolset(host: Host, exchange: Exchange) -> None:
    """Make one toolset the caller's choice. Raises `SavedToolsetRefused`."""
    caller = await asking(host, exchange)
    await answer_toolset(exchange, await host.saved_toolsets.equip(caller, exchange.params["name"]))


async def unequip_toolset(host: Host, exchange: Exchange) -> None:
    """List everything again; the same where nothing was equipped."""
    name = await host.saved_toolsets.unequip(await asking(host, exchange))
    await exchange.answer(200, orjson.dumps({"unequipped": name}))


async def active_toolset(host: Host, exchange: Exchange) -> None:
    """Answer the equipped toolset. Raises `SavedToolsetRefused` where there is none."""
    shown = await host.saved_toolsets.active(await asking(host, exchange))
    if shown is None:
        raise SavedToolsetRefused("no_toolset_equipped", "no toolset is equipped; every tool is listed", "name")
    await answer_toolset(exchange, shown)
