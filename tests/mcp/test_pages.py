"""Long lists come in pages, each tool once, in the catalog's order."""

from __future__ import annotations

import orjson
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from tests.mcp.conftest import Opened
from tests.mcp.lists import catalog_of
from tests.plain_tools import plain_tool

from toolplug import Catalog
from toolplug.parts.mcp.content import PAGE_BYTES, PAGE_TOOLS, page

pytestmark = pytest.mark.requirement("C-5-mcp")


def listed(catalog: Catalog) -> list[list[str]]:
    """The names of each page."""
    pages: list[list[str]] = []
    cursor: str | None = None
    while True:
        found = page(catalog, cursor)
        assert found is not None
        assert len(found.tools) <= PAGE_BYTES + 2
        pages.append([tool["name"] for tool in orjson.loads(found.tools)])
        cursor = found.next_cursor
        if cursor is None:
            return pages


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(0, [0]), (PAGE_TOOLS, [PAGE_TOOLS]), (PAGE_TOOLS + 1, [PAGE_TOOLS, 1]), (2500, [1000, 1000, 500])],
)
def test_a_page_has_a_thousand_tools_at_most(count: int, sizes: list[int]) -> None:
    names = [f"tool_{number}" for number in range(count)]
    pages = listed(catalog_of(*names))
    assert [len(each) for each in pages] == sizes
    assert [name for each in pages for name in each] == names


def test_a_page_has_four_mebibytes_at_most() -> None:
    tools = [plain_tool(f"tool_{number}", description="x" * 8000) for number in range(700)]
    pages = listed(Catalog(tools))
    assert len(pages) == 2
    assert [name for each in pages for name in each] == [tool.definition.name for tool in tools]


def test_a_page_goes_on_behind_its_cursor_though_tools_came_and_went_before_it() -> None:
    found = page(catalog_of("new", "b", "c"), "b")
    assert found is not None
    assert [tool["name"] for tool in orjson.loads(found.tools)] == ["c"]


def test_a_cursor_whose_tool_has_gone_is_none() -> None:
    assert page(catalog_of("a"), "b") is None


@pytest.mark.mcp
@pytest.mark.anyio
async def test_a_client_with_a_wrong_cursor_is_told_to_begin_again(opened: Opened) -> None:
    async with opened() as client:
        with pytest.raises(MCPError) as raised:
            await client.list_tools(cursor="nobody")
    assert raised.value.code == INVALID_PARAMS
