"""The checks of tenants, metrics and texts find the provider that breaks a rule, and say where."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from runpy import run_path
from types import ModuleType
from typing import Annotated, Any

import pytest
from prometheus_client import Counter
from prometheus_client.registry import Collector
from pydantic import BaseModel, Field
from starlette.requests import Request

from toolplug import CallContext, FunctionProvider, route, tool
from toolplug.testing.broken_rule import ContractBroken
from toolplug.testing.provider_check import check_provider
from toolplug.testing.provider_rules.routes import TenantCaller

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I15-4-checked-tenants-metrics-texts")]

CALLS = {"add_note": {"text": "buy milk"}}
README = "| `limit` | 10 | notes of a tenant |\n| `folder` | none | where they are |\n"


class Notes(FunctionProvider):
    """Keeps every rule; each one below differs in one thing."""

    class Config(BaseModel):
        limit: Annotated[int, Field(description="notes of a tenant")] = 10
        folder: Annotated[str | None, Field(description="where they are")] = None

    def __init__(self, config: object = None, *, key: str = "") -> None:
        super().__init__(config, key=key)
        self.kept: dict[str, list[str]] = {}
        self.counter = Counter("notes_added", "Notes added.", ["kind"], registry=None)

    def owner(self, context: CallContext) -> str:
        return context.principal.tenant

    def label(self, text: str, context: CallContext) -> str:
        return "note"

    def collectors(self) -> Sequence[Collector]:
        return [self.counter]

    @tool
    async def add_note(self, text: str, context: CallContext) -> int:
        """Write one note and return how many there are.

        Args:
            text: what to note
        """
        mine = self.kept.setdefault(self.owner(context), [])
        mine.append(text)
        self.counter.labels(self.label(text, context)).inc()
        return len(mine)

    @route("GET", "/v1/notes")
    async def listed(self, request: Request) -> object:
        """List the notes of the caller's tenant."""
        return self.kept.get(request.state.tenant, [])

    @route("POST", "/v1/notes")
    async def added(self, request: Request) -> object:
        """Write a note."""
        self.kept.setdefault(request.state.tenant, []).append(request.query_params.get("text", ""))
        return {"kept": True}


class OneForAll(Notes):
    def owner(self, context: CallContext) -> str:
        return "everyone"

    @route("GET", "/v1/notes")
    async def listed(self, request: Request) -> object:
        """List every note."""
        return [text for notes in self.kept.values() for text in notes]


class ByName(Notes):
    """Two tenants may have a user of the same name."""

    def owner(self, context: CallContext) -> str:
        return context.principal.subject

    @route("GET", "/v1/notes")
    async def listed(self, request: Request) -> object:
        """List the notes of the caller's name."""
        return self.kept.get(request.state.principal.subject, [])


async def write(caller: TenantCaller) -> object:
    return (await caller.call("add_note", text="oat milk")).structured


async def sees(caller: TenantCaller, written: object) -> bool:
    assert written == 1
    return "oat milk" in str((await caller.request("GET", "/v1/notes")).body)


async def post(caller: TenantCaller) -> object:
    return (await caller.request("POST", "/v1/notes?text=tea", {"any": "body"})).status


async def sees_tea(caller: TenantCaller, written: object) -> bool:
    assert written == 200
    return (await caller.request("GET", "/v1/notes")) == (200, ["tea"])


async def never(caller: TenantCaller, written: object) -> bool:
    return False


async def fails(caller: TenantCaller) -> object:
    raise LookupError("no such tool")


async def broken_by(make: type[FunctionProvider], **given: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(ContractBroken) as caught:
        await check_provider(make, **{"calls": CALLS, **given})
    return [(item.rule, item.where, item.what) for item in caught.value.broken]


async def test_a_provider_that_keeps_tenants_apart_and_describes_all_passes(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(README)
    await check_provider(Notes, calls=CALLS, isolation=[(write, sees)], readme=tmp_path / "README.md")
    await check_provider(Notes, uncalled=CALLS, isolation=[(post, sees_tea)])


@pytest.mark.parametrize("make", [OneForAll, ByName])
async def test_what_another_tenant_sees_is_found(make: type[FunctionProvider]) -> None:
    assert await broken_by(make, isolation=[(write_any, sees_any)]) == [
        ("isolation", "write_any, sees_any", "a caller of another tenant sees it")
    ]


async def write_any(caller: TenantCaller) -> object:
    return await caller.call("add_note", text="oat milk")


async def sees_any(caller: TenantCaller, written: object) -> bool:
    return "oat milk" in str((await caller.request("GET", "/v1/notes")).body)


async def test_a_pair_that_shows_nothing_or_fails_is_found() -> None:
    assert await broken_by(Notes, isolation=[(write, never), (fails, sees)]) == [
        ("isolation", "write, never", "the writer does not see it"),
        ("isolation", "fails, sees", "raised LookupError: no such tool"),
    ]


class ByText(Notes):
    def label(self, text: str, context: CallContext) -> str:
        return text


class ByTenant(Notes):
    def label(self, text: str, context: CallContext) -> str:
        return context.principal.tenant


class Uncollected(Notes):
    def collectors(self) -> Sequence[Collector]:
        return []


class Group:
    def __init__(self) -> None:
        self.seen = Counter("notes_seen", "Notes seen.", registry=None)


class Grouped(Notes):
    def __init__(self, config: object = None, *, key: str = "") -> None:
        super().__init__(config, key=key)
        self.group = Group()


METRICS = [
    (ByText, "metric-labels", "metric 'notes_added'", "kind='buy milk', which is the argument 'text' of 'add_note'"),
    (ByTenant, "metric-labels", "metric 'notes_added'", "kind='tested', which is the caller's tenant"),
    (Uncollected, "collectors", "self.counter", "is not returned by collectors()"),
    (Grouped, "collectors", "self.group.seen", "is not returned by collectors()"),
]


@pytest.mark.parametrize(("make", "rule", "where", "what"), METRICS)
async def test_a_metric_with_a_value_of_callers_or_without_a_scrape_is_found(
    make: type[FunctionProvider], rule: str, where: str, what: str
) -> None:
    [found] = await broken_by(make)
    assert found[:2] == (rule, where)
    assert found[2].endswith(what)


async def test_a_metric_of_a_module_that_no_scrape_has_is_found(tmp_path: Path) -> None:
    file = tmp_path / "counted.py"
    file.write_text(
        "from prometheus_client import Counter\nfrom toolplug import FunctionProvider\n"
        "CALLS = Counter('counted_calls', 'Calls.', registry=None)\nclass Counted(FunctionProvider): ...\n"
    )
    module = ModuleType("counted_by_a_test")
    vars(module).update(run_path(str(file), run_name=module.__name__))
    sys.modules[module.__name__] = module
    try:
        with pytest.raises(
            ContractBroken, match=r"^the contract is broken:\ncollectors: CALLS of its module: is not re"
        ):
            await check_provider(module.Counted)
    finally:
        del sys.modules[module.__name__]


class Undescribed(FunctionProvider):
    class Nested(BaseModel):
        deep: int = 1

    class Described(BaseModel):
        """The text of each parameter of this type."""

    class Config(BaseModel):
        plain: int = 1
        limit: Annotated[int, Field(description="notes of a tenant")] = 10
        nested: Annotated[Undescribed.Nested | None, Field(description="more")] = None

    @tool
    async def add_note(self, text: str, also: Undescribed.Described) -> None:
        """Write one note."""

    @route("GET", "/v1/notes")
    async def listed(self, request: Request) -> object:
        return []


async def test_each_parameter_route_and_setting_without_a_text_is_found(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("`limits`, `nested.limit`: not the setting\n\n`plain`, `nested`\n")
    calls = {"add_note": {"text": "milk", "also": {}}}
    assert await broken_by(Undescribed, readme=readme, calls=calls) == [
        ("descriptions", "parameter 'text' of tool 'add_note'", "has no description"),
        ("descriptions", "route GET /v1/notes", "has no description"),
        ("descriptions", "field 'plain' of Undescribed.Config", "has no description"),
        ("descriptions", "field 'deep' of Nested", "has no description"),
        ("readme", "README.md", "does not name the setting 'limit'"),
    ]


async def test_a_readme_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    [(rule, where, what)] = await broken_by(Notes, readme=tmp_path / "none.md")
    assert (rule, where) == ("readme", str(tmp_path / "none.md"))
    assert what.startswith("cannot be read: ")
