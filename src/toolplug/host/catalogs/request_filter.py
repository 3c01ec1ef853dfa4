"""The toolsets that a request asks for, among those of its agent: the rest is not listed, and each call of it refused.

Effective set = agent ∩ tenant ∩ principal ∩ request (CONTRACT.md section 7). A tool that only the request leaves out is
no secret from its caller, so a call of it is `denied`, not `unknown_tool`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from toolplug.catalog.call import Principal
from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.layers import layered


class FilterGate(NamedTuple):
    """Refuses whoever calls."""

    name = "request"
    origin = "the request"
    hides = False

    def refusal(self, principal: Principal) -> str | None:
        return "its toolset is not among those that the request asks for"


_LEFT_OUT = FilterGate()


def left_out(catalog: Catalog) -> Catalog:
    """Nothing to list; a call of one of these tools is answered by its own plan, which refuses it."""
    refused = catalog.planned(lambda _, plan: replace(plan, gates=(*plan.gates, _LEFT_OUT)))
    listed = Catalog(refused.values(), prefixes=refused.prefixes)
    return Catalog(prefixes=catalog.prefixes, away=layered(listed, refused.away or EMPTY_CATALOG))
