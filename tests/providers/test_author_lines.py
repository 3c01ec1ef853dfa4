"""What is wrong with a package's code is said with the line that its author can change."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from tests.host.conftest import Package, package

from toolplug.errors import ProviderError
from toolplug.packages.entry_points import find_installed
from toolplug.packages.loading import load

__all__ = ["package"]

HEAD = "from toolplug import FunctionProvider, tool\n"

MISTAKES = {
    "two methods are one tool": """
        class P(FunctionProvider):  # here
            @tool(name="x")
            async def a(self) -> None: ...
            @tool(name="x")
            async def b(self) -> None: ...
    """,
    "an annotation that nothing has": """
        class P(FunctionProvider):
            @tool  # here
            async def a(self, given: "Nothing") -> None: ...
    """,
    "any number of arguments": """
        class P(FunctionProvider):  # here
            @tool
            async def a(self, *given: str) -> None: ...
    """,
    "a timeout that is none": """
        class P(FunctionProvider):
            @tool(timeout="soon")  # here
            async def a(self) -> None: ...
    """,
    "a syntax error": """
        class P(FunctionProvider:  # here
            pass
    """,
    "an error in a library": """
        import json
        json.loads("nope")  # here
        class P(FunctionProvider): ...
    """,
    "a tool of an illegal name": """
        class P(FunctionProvider):  # here
            @tool(name="not legal")
            async def a(self) -> None: ...
    """,
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_the_authors_line(package: Package, tmp_path: Path, name: str) -> None:
    code = HEAD + textwrap.dedent(MISTAKES[name])
    package("toolplug-mistaken", {"mistaken": "mistaken_mod:P"}, mistaken_mod=code)

    with pytest.raises(ProviderError) as caught:
        load(find_installed().types["mistaken"][0])

    line = next(number for number, text in enumerate(code.splitlines(), 1) if "# here" in text)
    assert f"at {tmp_path}/site-packages/mistaken_mod.py:{line}" in str(caught.value)
    assert "/toolplug/" not in str(caught.value)
    assert caught.value.fix == "reinstall or update toolplug-mistaken, or remove its entry"


def test_the_author_of_an_editable_install_is_told_to_fix_the_line(package: Package, tmp_path: Path) -> None:
    package("toolplug-mine", {"mine": "mine_mod:P"}, mine_mod="raise ValueError('not yet')")
    info = tmp_path / "site-packages" / "toolplug_mine-1.0.dist-info"
    origin = {"url": "file:///home/me/mine", "dir_info": {"editable": True}}
    info.joinpath("direct_url.json").write_text(json.dumps(origin))

    with pytest.raises(ProviderError, match=r"raised ValueError: not yet at .*mine_mod.py:1") as caught:
        load(find_installed().types["mine"][0])

    assert caught.value.fix == "fix the line, or remove its entry"


@pytest.mark.parametrize(
    ("editable", "fix"),
    [
        (True, "install the package that has 'no_such_thing', or fix the line, or remove its entry"),
        (False, "install the package that has 'no_such_thing', or remove its entry"),
    ],
)
def test_a_dependency_that_is_not_installed_is_to_be_installed(
    package: Package, tmp_path: Path, editable: bool, fix: str
) -> None:
    package("toolplug-mine", {"mine": "mine_mod:P"}, mine_mod="import no_such_thing.inner")
    info = tmp_path / "site-packages" / "toolplug_mine-1.0.dist-info"
    if editable:
        info.joinpath("direct_url.json").write_text('{"url": "file:///mine", "dir_info": {"editable": true}}')

    with pytest.raises(ProviderError, match="No module named 'no_such_thing'") as caught:
        load(find_installed().types["mine"][0])

    assert caught.value.fix == fix
