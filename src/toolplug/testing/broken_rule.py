"""The result of a check: every rule that does not hold, with its place and a fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class BrokenRule(NamedTuple):
    """One rule that does not hold. `rule` is its short name, `where` the tool, route, metric or method.

    ```python
    from toolplug.testing import BrokenRule

    broken = BrokenRule("description", "tool price", "it has no description", "write a docstring")
    assert str(broken) == "description: tool price: it has no description; write a docstring"
    ```
    """

    rule: str
    where: str
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.where}: {self.what}; {self.fix}"


class ContractBroken(AssertionError):
    """Raised by a check; `broken` has every broken rule, in the order of the rules.

    ```python
    import asyncio

    from toolplug import FunctionProvider, tool
    from toolplug.testing import ContractBroken, check_provider

    class Shop(FunctionProvider):
        @tool
        async def price(self, item: str) -> str:
            return f"{item}: 3.50 EUR"

    async def main():
        try:
            await check_provider(Shop, calls={"price": {"item": "tea"}})
        except ContractBroken as error:
            assert any("price" in each.where for each in error.broken)  # it has no description
        else:
            raise AssertionError("the check passes")

    asyncio.run(main())
    ```
    """

    def __init__(self, broken: Sequence[BrokenRule]) -> None:
        self.broken: tuple[BrokenRule, ...] = tuple(broken)
        super().__init__("\n".join(["the contract is broken:", *map(str, self.broken)]))


def raise_broken(broken: Sequence[BrokenRule]) -> None:
    """Raise `ContractBroken` if any rule is broken."""
    if broken:
        raise ContractBroken(broken)
