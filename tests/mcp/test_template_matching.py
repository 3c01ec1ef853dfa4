"""Finding the template of a URI among those of servers that want it to take long."""

from __future__ import annotations

import asyncio

import pytest
from tests.cpu_cost import UNBOUNDED, longest_callback
from tests.plain_tools import plain_tool

from toolplug.catalog.offering import OfferedEntry, Offering
from toolplug.parts.mcp.discovery.offers import MAX_URI_BYTES, MAX_VARIABLES
from toolplug.parts.mcp.sdk.offering_handlers import RequestRefused, resource_of, template_variables

pytestmark = [pytest.mark.slow, pytest.mark.requirement("I14-5-passed-through", "H-mcp-floods")]

COSTLY = "b://h/x/" + "yx" * 1_000
"""It has the separator of the templates many times, and in the end does not match."""


def offering(count: int) -> Offering:
    plan = plain_tool("template").plan
    keys = [
        "b://h/" + "".join(f"{{v{variable}of{number}}}x" for variable in range(MAX_VARIABLES))
        for number in range(count)
    ]
    return Offering(templates={key: OfferedEntry(key=key, fields={}, plan=plan) for key in keys})


def test_many_costly_templates_do_not_hold_the_loop() -> None:
    with longest_callback() as longest, pytest.raises(RequestRefused, match="no resource"):
        asyncio.run(resource_of(offering(500), COSTLY, template_variables))
    assert longest.units < UNBOUNDED


def test_a_long_uri_matches_no_template_and_is_not_looked_at() -> None:
    def match(template: str, uri: str) -> None:
        raise AssertionError

    with pytest.raises(RequestRefused, match="no resource"):
        asyncio.run(resource_of(offering(1), "b://" + "x" * MAX_URI_BYTES, match))
