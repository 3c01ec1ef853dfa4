"""The class that plugin authors derive from: its key, config and log, its constructor, its default hooks."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from prometheus_client import Counter
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import JSONResponse

from toolplug.catalog.call import CallContext, ToolCall, current_tenant
from toolplug.catalog.definition import ToolDefinition
from toolplug.errors import InvalidArguments, InvalidDefinition, ToolError
from toolplug.providers.authoring import bound_tools, route, tool
from toolplug.providers.provider import FunctionProvider, build_provider, config_model
from toolplug.providers.routes import bound_routes


class Notes(FunctionProvider):
    """Keeps short notes, one list a tenant."""

    class Config(BaseModel):
        limit: int = Field(100, ge=1, description="notes kept for each tenant")

    async def start(self, site):
        self.notes: dict[str, list[str]] = {}
        self.written = Counter("notes_written", "Notes written", registry=None)

    def collectors(self):
        return [self.written]

    @tool
    async def add_note(self, text: Annotated[str, Field(max_length=500)], context: CallContext) -> int:
        """Write one note and return how many there are."""
        mine = self.notes.setdefault(context.principal.tenant, [])
        if len(mine) >= self.config.limit:
            raise ToolError(f"{self.config.limit} notes are kept already; delete one first")
        mine.append(text)
        self.written.inc()
        return len(mine)

    @tool(read_only=True, stub="notes")
    async def find_notes(self, query: str, context: CallContext) -> list[str]:
        """Find the notes that contain the query."""
        return [note for note in self.notes.get(context.principal.tenant, []) if query in note]

    @route("GET", "/v1/notes", scope="notes:read")
    async def list_notes(self, request):
        return JSONResponse(self.notes.get(request.state.tenant, []))


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(id="c1", name=name, arguments=arguments)


@pytest.mark.requirement("FR-001", "FR-002", "FR-004", "C-12-example-provider")
@pytest.mark.anyio
async def test_the_documented_provider_works_as_it_stands() -> None:
    notes = build_provider(Notes, "notes", Notes.Config(limit=1))
    await notes.start(None)  # type: ignore[arg-type]
    assert notes.name() == "notes"
    assert [(item.name, item.description) for item in notes.tools()] == [
        ("add_note", "Write one note and return how many there are."),
        ("find_notes", "Find the notes that contain the query."),
    ]
    assert [notes.can_execute(name) for name in ("add_note", "find_notes", "list_notes")] == [True, True, False]
    assert await notes.execute(call("add_note", text="otters"), CallContext()) == 1
    assert await notes.execute(call("find_notes", query="ott"), CallContext()) == ["otters"]
    with pytest.raises(ToolError, match="1 notes are kept already"):
        await notes.execute(call("add_note", text="seals"), CallContext())
    assert [(item.method, item.path, item.scope) for item in bound_routes(notes)] == [
        ("GET", "/v1/notes", "notes:read")
    ]
    (written,) = notes.collectors()
    (family,) = written.collect()
    assert family.samples[0].value == 1
    await notes.aclose()


@pytest.mark.requirement("FR-002", "FR-004", "C-12-hook-defaults")
@pytest.mark.anyio
async def test_a_provider_of_nothing_but_a_class_is_legal() -> None:
    class Empty(FunctionProvider): ...

    empty = build_provider(Empty, "empty", None)
    await empty.start(None)  # type: ignore[arg-type]
    assert (empty.name(), list(empty.tools()), list(empty.routes()), list(empty.collectors())) == ("empty", [], [], [])
    assert not empty.can_execute("anything")
    assert empty.config is None
    await empty.aclose()


@pytest.mark.requirement("C-12-config")
def test_an_instance_has_key_config_and_log() -> None:
    notes = build_provider(Notes, "diary", Notes.Config(limit=3))
    assert (notes.key, notes.config.limit) == ("diary", 3)
    assert notes.log is logging.getLogger("toolplug.providers.diary")


@pytest.mark.requirement("C-12-config")
def test_two_instances_of_a_class_share_neither_key_nor_config() -> None:
    one, two = build_provider(Notes, "one", Notes.Config(limit=1)), build_provider(Notes, "two", Notes.Config(limit=2))
    assert (one.key, one.config.limit, two.key, two.config.limit) == ("one", 1, "two", 2)
    assert (Notes().key, Notes().config.limit) == ("", 100)


def test_an_instance_made_by_hand_takes_a_config_a_mapping_or_nothing() -> None:
    given = Notes.Config(limit=5)
    assert Notes(given).config is given
    assert Notes({"limit": 6}).config == Notes.Config(limit=6)
    assert Notes().config == Notes.Config()


@pytest.mark.requirement("C-12-config", "C-12-config-open")
def test_a_mapping_with_extra_keys_is_refused_unless_the_model_allows_them() -> None:
    class Open(FunctionProvider):
        class Config(BaseModel):
            model_config = ConfigDict(extra="allow")

    with pytest.raises(ValidationError, match="limits"):
        Notes({"limits": 6})
    assert Open({"anything": 1}).config.anything == 1


def test_a_config_that_needs_more_is_asked_for_when_it_is_used() -> None:
    class Search(FunctionProvider):
        class Config(BaseModel):
            url: str

    search = Search()
    with pytest.raises(InvalidDefinition, match=r"Search needs a config: give url of its Config"):
        assert search.config
    search.config = Search.Config(url="http://localhost")
    assert search.config.url == "http://localhost"


def test_a_config_that_is_no_model_is_refused() -> None:
    class Wrong(FunctionProvider):
        class Config:
            limit = 5

    with pytest.raises(InvalidDefinition, match=r"Wrong.* is no pydantic model"):
        config_model(Wrong)
    assert config_model(Notes) is Notes.Config
    assert config_model(FunctionProvider) is None


@pytest.mark.requirement("C-12-config")
def test_a_constructor_of_ones_own_finds_everything_in_place_and_need_not_call_the_base() -> None:
    class Own(FunctionProvider):
        class Config(BaseModel):
            limit: int = 7

        def __init__(self) -> None:
            self.seen = (self.key, self.config.limit, self.log.name)

    own = build_provider(Own, "own", Own.Config(limit=3))
    assert isinstance(own, Own)
    assert own.seen == ("own", 3, "toolplug.providers.own")
    assert Own().seen == ("", 7, "toolplug.providers")


def test_a_constructor_gets_what_it_names() -> None:
    class Both(FunctionProvider):
        def __init__(self, config: object, key: str, retries: int = 3) -> None:
            super().__init__(config, key=key)
            self.seen = (config, key, retries)

    class Either(FunctionProvider):
        def __init__(self, config: object) -> None:
            self.seen = config

    both, either = build_provider(Both, "both", {"a": 1}), build_provider(Either, "either", {"b": 2})
    assert isinstance(both, Both)
    assert isinstance(either, Either)
    assert (both.seen, both.key, both.config) == (({"a": 1}, "both", 3), "both", {"a": 1})
    assert (either.seen, either.key, either.config) == ({"b": 2}, "either", {"b": 2})


@pytest.mark.anyio
async def test_execute_converts_arguments_and_runs_a_blocking_tool_apart_from_the_loop() -> None:
    class Counting(FunctionProvider):
        @tool
        def count(self, numbers: set[int]) -> tuple[list[int], str]:
            return sorted(numbers), current_tenant()

        @tool
        def fail(self) -> None:
            raise ToolError("no")

    counting = Counting()
    assert await counting.execute(call("count", numbers=[2, 1, 2.0]), CallContext()) == ([1, 2], "default")
    with pytest.raises(ToolError, match="no"):
        await counting.execute(call("fail"), CallContext())
    with pytest.raises(InvalidArguments):
        await counting.execute(call("count", numbers=["x"]), CallContext())


@pytest.mark.anyio
async def test_execute_waits_for_a_blocking_tool_until_the_deadline_only() -> None:
    ended = threading.Event()

    class Waiting(FunctionProvider):
        @tool
        def wait(self) -> None:
            ended.wait()

    now = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        await Waiting().execute(call("wait"), CallContext(deadline=now))
    ended.set()


@pytest.mark.requirement("FR-001")
@pytest.mark.anyio
async def test_tools_and_execute_may_be_written_by_hand() -> None:
    class Mixed(FunctionProvider):
        @tool
        async def declared(self) -> str:
            return "declared"

        def tools(self) -> Sequence[ToolDefinition]:
            return [*super().tools(), ToolDefinition(name="dynamic")]

        async def execute(self, call: ToolCall, context: CallContext) -> object:
            return "dynamic" if call.name == "dynamic" else await super().execute(call, context)

    mixed = Mixed()
    assert [mixed.can_execute(name) for name in ("declared", "dynamic", "other")] == [True, True, False]
    assert await mixed.execute(call("declared"), CallContext()) == "declared"
    assert await mixed.execute(call("dynamic"), CallContext()) == "dynamic"


@pytest.mark.anyio
async def test_a_tool_that_is_listed_and_run_by_nobody_says_so() -> None:
    class Listing(FunctionProvider):
        def tools(self) -> Sequence[ToolDefinition]:
            return [ToolDefinition(name="lonely")]

    with pytest.raises(LookupError, match="Listing lists 'lonely' but has no @tool and no execute"):
        await Listing().execute(call("lonely"), CallContext())


def test_a_subclass_of_a_provider_has_its_tools_and_config() -> None:
    class Diary(Notes):
        class Config(Notes.Config):
            title: str = "Diary"

        @tool
        async def read_all(self, context: CallContext) -> list[str]:
            """Read every note."""
            return self.notes.get(context.principal.tenant, [])

    diary: Any = Diary()
    assert [bound.definition.name for bound in bound_tools(diary)] == ["add_note", "find_notes", "read_all"]
    assert (diary.config.title, diary.config.limit) == ("Diary", 100)
