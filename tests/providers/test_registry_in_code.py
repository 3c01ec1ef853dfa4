"""A registry that a host's own code makes: what it takes, and what it says of the usual slips."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr

from toolplug import (
    CallContext,
    ConfigError,
    FunctionProvider,
    FunctionRegistry,
    Principal,
    ProviderContext,
    ToolCall,
    ToolResult,
    ToolStatus,
    open_host,
    tool,
)
from toolplug.errors import InvalidDefinition
from toolplug.testing.broken_rule import ContractBroken
from toolplug.testing.provider_check import check_provider, running

pytestmark = pytest.mark.anyio


class CornerShop(FunctionProvider):
    @tool
    async def price(self) -> str:
        """Return the price."""
        return f"5 at {self.key}"


class Bakery(FunctionProvider):
    @tool
    async def price(self) -> str:
        """Return the price."""
        return "7"

    @tool
    async def bread(self, context: CallContext) -> str:
        """Return who asks."""
        return context.principal.subject


@tool
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}"


@tool(name="add_up")
def total(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


class Stocks(FunctionProvider):
    class Config(BaseModel):
        api_key: SecretStr

    @tool
    async def quote(self) -> str:
        """Return a quote."""
        return str(self.config.api_key)


@pytest.mark.requirement("C-12-registry-forms")
async def test_a_sequence_of_instances_classes_and_functions_is_taken_and_the_first_wins() -> None:
    async with FunctionRegistry([CornerShop(), Bakery, greet, total]) as registry:
        assert list(registry.catalog) == ["price", "bread", "greet", "add_up"]
        assert [record.key for record in registry.records()] == ["corner_shop", "bakery", "greet", "total"]
        assert (await registry.execute(ToolCall("1", "price"))).output == "5 at corner_shop"
        assert (await registry.execute(ToolCall("2", "greet", {"name": "Ada"}))).output == "Hello, Ada"
        assert (await registry.execute(ToolCall("3", "add_up", {"first": 1, "second": 2}))).output == "3"


async def test_a_mapping_takes_classes_and_functions_too() -> None:
    async with FunctionRegistry({"shop": CornerShop, "hello": greet}) as registry:
        assert (await registry.execute(ToolCall("1", "price"))).output == "5 at shop"
        assert registry.catalog["greet"].definition.ref.source == "hello"


async def test_two_instances_of_a_class_in_a_sequence_have_two_keys() -> None:
    async with FunctionRegistry([CornerShop(), CornerShop()]) as registry:
        assert [record.key for record in registry.records()] == ["corner_shop", "corner_shop_2"]


@pytest.mark.parametrize("given", [lambda: None, 5, object, "shop"])
def test_what_is_no_provider_is_refused_by_name(given: object) -> None:
    with pytest.raises(InvalidDefinition, match=r"'shop': .* is no provider; give a FunctionProvider, its class, a"):
        FunctionRegistry({"shop": given})  # type: ignore[dict-item]


async def test_a_function_without_a_module_is_a_provider_like_any_other() -> None:
    def hello() -> str:
        return "hello"

    hello.__module__ = None  # type: ignore[assignment]
    async with FunctionRegistry([tool(hello)]) as registry:
        assert (await registry.execute(ToolCall("1", "hello"))).output == "hello"


@pytest.mark.parametrize("key", ["Not A Key", "", "1st", "a" * 65, "ä", "a-b", "_a", 5])
def test_a_key_that_could_not_stand_in_the_file_is_refused(key: object) -> None:
    with pytest.raises(InvalidDefinition) as refusal:
        FunctionRegistry({key: CornerShop})  # type: ignore[dict-item]
    said = f"{key!r} is no key of a provider; write a lower-case letter, then up to 63 of a-z 0-9 _, as web_search"
    assert str(refusal.value) == said


def test_what_is_no_provider_is_told_without_its_address() -> None:
    with pytest.raises(InvalidDefinition, match="'shop': an instance of object is no provider"):
        FunctionRegistry({"shop": object()})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (greet, "greet is one provider; give a list, [greet], or a mapping of keys to providers"),
        (Bakery, "Bakery is one provider; give a list, [Bakery], or a mapping of keys to providers"),
        (Bakery(), "Bakery() is one provider; give a list, [Bakery()], or a mapping of keys to providers"),
        *(
            (
                path,
                "'providers.yaml' is no list of providers; for the providers of a file:"
                " FunctionRegistry.from_yaml('providers.yaml')",
            )
            for path in ("providers.yaml", Path("providers.yaml"))
        ),
    ],
)
def test_one_provider_or_a_path_in_place_of_a_list_is_refused_with_the_fix(given: object, message: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        FunctionRegistry(given)  # type: ignore[arg-type]
    assert str(refused.value) == message


def test_one_instance_under_two_keys_is_refused() -> None:
    shop = CornerShop()
    with pytest.raises(InvalidDefinition, match="'a' and 'b' are the same instance of CornerShop; make one for each"):
        FunctionRegistry({"a": shop, "b": shop})


@pytest.mark.requirement("C-12-not-entered")
async def test_a_registry_that_is_not_entered_says_so() -> None:
    registry = FunctionRegistry([CornerShop])
    view = registry.view(lambda catalog: catalog.prefixed("shop"))
    closed = ToolResult(
        "1",
        "price",
        'tool "price" is unavailable: its registry is not entered; call it inside `async with registry:`',
        ToolStatus.UNAVAILABLE,
        metadata={"code": "not_entered"},
    )
    assert await registry.execute(ToolCall("1", "price")) == closed
    async with registry:
        assert (await view.execute(ToolCall("1", "shop.price"))).status is ToolStatus.SUCCESS
        assert (await registry.execute(ToolCall("1", "nothing"))).status is ToolStatus.UNKNOWN_TOOL
    assert await registry.execute(ToolCall("1", "price")) == closed
    assert (await view.execute(ToolCall("1", "shop.price"))).metadata == {"code": "not_entered"}


async def test_a_model_is_not_sent_the_empty_list_of_a_registry_that_is_not_entered() -> None:
    registry = FunctionRegistry([CornerShop])
    view = registry.view(lambda catalog: catalog.prefixed("shop"))
    for ask in (registry.for_openai, registry.for_anthropic, registry.for_gemini, view.for_openai):
        with pytest.raises(RuntimeError) as refused:
            ask()
        assert str(refused.value) == (
            "there are no tools yet: its registry is not entered; call it inside `async with registry:`"
        )
    async with registry:
        assert len(view.for_openai()) == len(registry.for_gemini()) == 1
    async with FunctionRegistry([]) as empty:
        assert empty.for_openai() == empty.for_anthropic() == empty.for_gemini() == []


async def test_a_call_without_context_is_anonymous_or_the_executors_own_principal() -> None:
    async with FunctionRegistry([Bakery]) as registry:
        assert (await registry.execute(ToolCall("1", "bread"))).output == "anonymous"


@pytest.mark.requirement("C-12-default-context")
async def test_an_executor_for_a_principal_implies_it() -> None:
    ada, ben = (Principal(subject=name, scopes=frozenset({"tools:call"})) for name in ("ada", "ben"))
    async with open_host({"store": "memory://", "agents": {"chef": {"toolsets": []}}}) as host:
        await host.registry.apply(FunctionRegistry([Bakery])._instances)
        first, second = host.executor_for(ada), host.executor_for(ben)
        assert (await first.execute(ToolCall("1", "bread"))).output == "ada"
        assert (await second.execute(ToolCall("1", "bread"))).output == "ben"
        assert (await first.execute(ToolCall("1", "bread"), CallContext(principal=ben))).output == "ben"
        agent = host.executor_for(ada, agent="chef")
        assert (await agent.execute(ToolCall("1", "bread"))).status is ToolStatus.UNKNOWN_TOOL


async def test_missing_settings_are_one_message_before_start() -> None:
    with pytest.raises(ConfigError) as caught:
        async with running(Stocks):
            pass
    (problem,) = caught.value.problems
    assert "Stocks needs a config: give api_key of its Config" in problem.message
    assert "settings=" in problem.hint

    with pytest.raises(ContractBroken) as broken:
        await check_provider(Stocks, calls={"quote": {}})
    (rule,) = broken.value.broken
    assert (rule.rule, rule.what) == ("settings", "Stocks needs a config: give api_key of its Config")
    assert "settings=" in rule.fix
    await check_provider(Stocks, settings={"api_key": "key"}, calls={"quote": {}})


def test_an_unknown_dialect_is_named_with_those_that_there_are() -> None:
    registry = FunctionRegistry([CornerShop])
    with pytest.raises(
        ValueError, match="no dialect 'cohere'; there are 'chat', 'responses', 'anthropic', 'gemini', 'mcp'"
    ):
        registry.catalog.render("cohere")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\(nearest: 'responses'\)"):
        registry.catalog.render("response")  # type: ignore[arg-type]


@pytest.mark.requirement("I33-7-completion")
def test_completion_shows_what_users_need_and_everything_else_still_works() -> None:
    registry = FunctionRegistry()
    shown = [name for name in dir(registry) if not name.startswith("_")]
    assert {"call", "catalog", "execute", "for_openai", "answer", "records"} <= {*shown}
    assert len(shown) <= 15
    assert all(hasattr(registry, name) for name in (*shown, "apply", "add_dependent"))


class Slow(FunctionProvider):
    async def start(self, site: ProviderContext) -> None:
        await site.in_thread(self.work)

    def work(self) -> None:
        """Take two seconds, a tenth of a processor."""
        for _ in range(10):
            began = time.thread_time()
            while time.thread_time() - began < 0.02:
                pass
            time.sleep(0.2)


class Hung(FunctionProvider):
    async def start(self, site: ProviderContext) -> None:
        await asyncio.Event().wait()


@pytest.mark.slow
@pytest.mark.requirement("H-time-loop")
async def test_a_start_that_gets_little_of_the_processor_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolplug.providers.generation.START_S", 0.4)
    async with FunctionRegistry({"slow": Slow()}) as registry:
        assert [record.state for record in registry.records()] == ["active"]
    with pytest.raises(ConfigError, match=r"has not ended after 0\.4 s"):
        async with FunctionRegistry({"hung": Hung()}):
            pass
