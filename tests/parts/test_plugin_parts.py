"""The hook `host_part`: section, scopes, routes, tools by caller and checks of a plugin, and what is wrong there."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from httpx2 import ASGITransport, AsyncClient
from tests.host.conftest import Package
from tests.http.all_routes import all_routes

import toolplug.http
from toolplug import Host, Principal, ToolCall, open_host
from toolplug.errors import ConfigError
from toolplug.host.file.configuration import read_configuration
from toolplug.http.routing import first_segments
from toolplug.packages.entry_points import find_installed

pytestmark = pytest.mark.anyio

Write = Callable[[str], Path]

BOARD = """
    from pydantic import BaseModel, ConfigDict
    from starlette.responses import JSONResponse
    from toolplug import HostPart, RunningPart, ToolDefinition, hookimpl, tool
    from toolplug.http import answers, part_of, route

    class Board(BaseModel):
        model_config = ConfigDict(extra="forbid")
        text: str = ""
        fails: str = ""

    class RunningBoard(RunningPart[Board]):
        closed = 0

        def __init__(self, services, settings):
            self.services, self.settings = services, settings

        def configure(self, settings):
            self.settings = settings
            self.services.tools_changed()
            self.fail("configure")

        async def aclose(self):
            RunningBoard.closed += 1
            self.fail("aclose")

        async def ready(self):
            self.fail("ready")
            return "" if self.settings.text else "nothing is pinned"

        def session_over(self, code):
            self.fail("session_over")

        def stop(self):
            self.fail("stop")

        def tools_for(self, caller):
            self.fail("tools_for")
            return [ToolDefinition(name=f"board_of_{caller.tenant}", description=self.settings.text)]

        async def execute(self, call, context):
            self.fail("execute")
            return f"{self.settings.text} for {context.principal.tenant}"

        def fail(self, what):
            if what in self.settings.fails:
                raise SystemExit("secret text")

    class Unwritten(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        value: RunningBoard

    async def opened(services, settings):
        if "open" in settings.fails:
            raise RuntimeError("no board")
        return RunningBoard(services, settings)

    @route("GET", "/v1/board", "board:read", "The board")
    @answers()
    async def read_board(request):
        return JSONResponse({"text": part_of(request, RunningBoard).settings.text})

    def routes():
        return [read_board]

    def checks(settings):
        if settings.fails == "checks":
            raise RuntimeError("secret text")
        return ["the text is too loud"] if settings.text.isupper() else []

    @tool
    def pin(text: str) -> str:
        "Pin a text."
        return text

    @hookimpl
    def host_part():
        return HostPart(
            name="board", settings=Board, open=opened, checks=checks, routes=routes, paths=("/v1/board",),
            scopes=("board:read",),
        )
"""
KEYS = """
auth:
  api_keys:
    - {key: reader, subject: ada, scopes: [tools:call, board:read]}
    - {key: other, subject: bob, tenant: lake, scopes: [tools:call]}
"""
READER = "\nauth: {api_keys: [{key: reader, subject: ada, scopes: [tools:call]}]}"
ADA, LAKE = Principal("ada", scopes=frozenset({"tools:call"})), Principal("bob", "lake", frozenset({"tools:call"}))


@pytest.fixture
def board(package: Package) -> None:
    package("acme-board", {"board": "board_mod"}, board_mod=BOARD)


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_configuration(path, {}, find_installed())
    return [str(problem).replace(f"{path.parent}/", "") for problem in caught.value.problems]


async def get(host: Host, path: str, key: str = "reader") -> tuple[int, str]:
    transport = ASGITransport(toolplug.http.create_app(host), client=("127.0.0.1", 1))
    async with AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get(path, headers={"authorization": f"Bearer {key}"})
        return answer.status_code, answer.text


@pytest.mark.usefixtures("board")
async def test_its_section_enables_the_plugin_with_its_routes_scopes_and_tools_by_caller(config: Write) -> None:
    path = config("board: {text: hello}" + KEYS)
    async with open_host(path) as host:
        assert await get(host, "/v1/board") == (200, '{"text":"hello"}')
        assert (await get(host, "/v1/board", "other"))[0] == 403
        assert (await get(host, "/v1/board", "nobody"))[0] == 401
        assert "/v1/board" in (await get(host, "/v1/openapi.json"))[1]
        assert [*(await host.catalog_for(ADA))] == ["pin", "board_of_default"]
        assert [*(await host.catalog_for(LAKE))] == ["pin", "board_of_lake"]
        assert await host.ready() == ()
        tools = host.executor_for(LAKE)
        answer = await tools.execute(ToolCall("1", "board_of_lake"))
        assert answer.output == "hello for lake"
        assert (await tools.execute(ToolCall("2", "board_of_default"))).status == "unknown_tool"


@pytest.mark.usefixtures("board")
async def test_a_reload_changes_closes_and_opens_it(config: Write) -> None:
    operator = Principal("op")
    async with open_host(config("board: {text: one}" + KEYS)) as host:
        listed = host.executor_for(ADA)
        assert "one" in listed.catalog["board_of_default"].definition.description
        config("board: {text: two}" + KEYS)
        await host.reload(by=operator)
        assert "two" in listed.catalog["board_of_default"].definition.description
        config("providers: {board: {enabled: true}}" + KEYS)
        await host.reload(by=operator)
        assert [*listed.catalog] == ["pin"]
        assert (await get(host, "/v1/board"))[0] == 404
        config("board: {}" + KEYS)
        await host.reload(by=operator)
        assert [*(await host.catalog_for(ADA))] == ["pin", "board_of_default"]
        assert [(part.part, part.reason) for part in await host.ready()] == [("board", "nothing is pinned")]


@pytest.mark.usefixtures("board")
async def test_agents_are_listed_no_tools_of_it(config: Write) -> None:
    async with open_host(config("board: {text: hello}\nagents: {clerk: {toolsets: []}}")) as host:
        assert [*(await host.catalog_for(ADA, agent="clerk"))] == []


@pytest.mark.usefixtures("board")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("board: {texts: hello}", "providers.yaml:1:9: board.texts: unknown key 'texts' (nearest: 'text')"),
        ("board: {text: 1}", "providers.yaml:1:15: board.text: should be text, not 1 (write it in quotes)"),
        ("board: {text: LOUD}", "providers.yaml:1:8: board: the text is too loud"),
        ("board: {fails: checks}", "providers.yaml:1:8: board: its checks raised RuntimeError at board_mod:"),
        ("boards: {}", "providers.yaml:1:1: boards: unknown key 'boards'"),
        (
            "providers: {board: {enabled: false}}\nboard: {}",
            "providers.yaml:2:8: board: the section 'board' needs the plugin 'board', whose entry is not enabled"
            " (set providers.board.enabled to true, or remove the entry)",
        ),
        (
            "providers: {board: {enabled: true}}\nauth: {api_keys: [{key: a, subject: a, scopes: [board:raed]}]}",
            "providers.yaml:2:49: auth.api_keys[0].scopes[0]: neither the host nor a route of an enabled provider asks"
            " for the scope 'board:raed' (nearest: 'board:read')",
        ),
    ],
)
def test_what_is_wrong_with_its_section_is_a_problem_with_its_line(config: Write, text: str, expected: str) -> None:
    (found,) = problems(config(text))
    assert found.startswith(expected)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (('name="board"', 'name="sessions"'), "gives the name 'sessions', which is taken by the host"),
        (('name="board"', 'name="responses"'), "gives the name 'responses', which is taken by the host"),
        (('name="board"', 'name="model_dump"'), "gives the name 'model_dump', which is taken by the host"),
        (('name="board"', 'name="approval"'), "gives the name 'approval', which is taken by the host"),
        (('name="board"', 'name="session"'), "gives the name 'session', which is taken by the host"),
        (
            (
                "@hookimpl\n",
                "@hookimpl(specname='host_part')\n    def second():\n        return host_part()\n\n    @hookimpl\n",
            ),
            "gives the name 'board', which is taken by another part of the same plugin",
        ),
        (('name="board"', 'name="Board"'), "gives the name 'Board'; a lower-case letter, then up to 63 of a-z 0-9 _"),
        (("settings=Board", "settings=dict"), "gives <class 'dict'> for settings; give the class of a pydantic model"),
        (
            ('model_config = ConfigDict(extra="forbid")', ""),
            "gives settings that ignore unknown keys; write model_config = ConfigDict(extra='forbid') into Board",
        ),
        (("checks=checks", "checks=1"), "gives 1 for checks, which is to be a function"),
        (('paths=("/v1/board",)', 'paths="/v1/board"'), "gives '/v1/board' for paths; give a tuple of texts"),
        (('paths=("/v1/board",)', 'paths=("/v1/board/a",)'), "gives the path '/v1/board/a'; give one or two segments"),
        (('scopes=("board:read",)', 'scopes=("read",)'), "gives the scope 'read'; write it as board:read"),
        (
            ('scopes=("board:read",)', 'scopes=("tools:call",)'),
            "gives the scope 'tools:call', which is one of the host",
        ),
        (("return HostPart(", "return dict("), "returned dict; return a HostPart"),
        (('name="board", settings', "name=missing, settings"), "raised NameError at board_mod:"),
        (("def host_part():", "def host_part(site):"), "takes 'site', and the arguments of this hook are none"),
    ],
)
def test_what_is_wrong_with_a_part_names_the_plugin_and_the_fix(
    config: Write, package: Package, change: tuple[str, str], expected: str
) -> None:
    assert change[0] in BOARD
    package("acme-board", {"board": "board_mod"}, board_mod=BOARD.replace(*change))
    text = "providers: {{board: {{enabled: true, required: {}}}}}"
    found = problems(config(text.format("true")))[0]
    assert found.startswith("providers.yaml:1:13: providers.board: acme-board 1.0")
    assert expected in found
    configuration = read_configuration(config(text.format("false")), {}, find_installed())
    record = configuration.providers.wanted["board"].record
    assert record is not None
    assert (record.state, expected in record.reason) == ("incompatible", True)


def test_no_path_of_a_host_can_be_that_of_a_plugin(config: Write, package: Package) -> None:
    for number, path in enumerate(sorted({first_segments(route.path) for route in all_routes()})):
        module = f"board_{number}"
        package(f"acme-{number}", {module: module}, **{module: BOARD.replace("/v1/board", path)})
        found = problems(config(f"providers: {{{module}: {{enabled: true}}}}"))[0]
        assert f"gives the path {path!r}" in found


NOTE = """
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    from toolplug import FunctionProvider, route

    class Declared(FunctionProvider):
        @route("GET", "/v1/board/{name}")
        async def read(self, request):
            return "a note"

    class Returned(FunctionProvider):
        def routes(self):
            async def read(request):
                return PlainTextResponse("a note")

            return [Route("/v1/board", read)]
"""
_NOTE_TAKEN = "which is a path of the part of provider 'board' (acme-board 1.0)"


@pytest.mark.usefixtures("board")
async def test_a_route_of_a_provider_below_the_path_of_a_part_is_a_problem_that_names_both(
    config: Write, package: Package
) -> None:
    package("acme-notes", {"declared": "note_mod:Declared", "returned": "note_mod:Returned"}, note_mod=NOTE)
    (found,) = problems(config("providers: {declared: {enabled: true}}\nboard: {}"))
    assert f"provider 'declared' (acme-notes 1.0) declares GET /v1/board/{{name}}, {_NOTE_TAKEN}" in found
    assert found.endswith("(set mount in it, such as mount: /declared, or enable one of them only)")
    returned = config("providers: {returned: {enabled: true}}\nboard: {}")
    with pytest.raises(ConfigError, match=re.escape(f"declares GET /v1/board, {_NOTE_TAKEN}")):
        await open_host(returned).__aenter__()


@pytest.mark.usefixtures("board")
@pytest.mark.parametrize(
    ("entries", "path"),
    [
        ("providers: {returned: {enabled: true, mount: /notes}}\nboard: {}", "/notes/v1/board"),
        ("providers: {returned: {enabled: true}}", "/v1/board"),
        ("providers: {returned: {enabled: true}, board: {enabled: true}}", "/v1/board"),
    ],
)
async def test_what_the_path_of_no_part_is_can_be_one_of_a_provider(
    config: Write, package: Package, entries: str, path: str
) -> None:
    package("acme-notes", {"returned": "note_mod:Returned"}, note_mod=NOTE)
    async with open_host(config(entries + READER)) as host:
        assert await get(host, path) == (200, "a note")


async def test_two_plugins_with_one_part_are_a_problem_of_the_second(config: Write, package: Package) -> None:
    package("acme-board", {"board": "board_mod"}, board_mod=BOARD)
    package("acme-other", {"other": "other_mod"}, other_mod=BOARD)
    (found,) = problems(config("providers: {board: {enabled: true}, other: {enabled: true}}"))
    assert "acme-other 1.0: host_part() gives the name 'board', which is taken by the part of provider 'board'" in found


async def test_two_entries_of_one_class_have_one_part(config: Write, package: Package) -> None:
    source = BOARD.replace("@hookimpl\n    def host_part():", "def host_part_():")
    source += """
    from toolplug import FunctionProvider

    class Plugin(FunctionProvider):
        @staticmethod
        def host_part():
            return host_part_()
"""
    package("acme-board", {"board": "board_mod:Plugin"}, board_mod=source)
    text = "providers: {one: {type: board, enabled: true}, two: {type: board, enabled: true}}\nboard: {text: hi}"
    async with open_host(config(text)) as host:
        assert [part.name for part in host.parts if part.entry is not None] == ["board"]


@pytest.mark.usefixtures("board")
async def test_a_part_that_cannot_be_opened_is_a_problem_unless_its_plugin_is_not_required(
    config: Write, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match=r"provider 'board' \(acme-board 1.0\): open\(\) of the part 'board' raised"):
        await open_host(config("board: {fails: open}")).__aenter__()
    tolerated = "providers: {board: {enabled: true, required: false}}\nboard: {fails: open}" + KEYS
    async with open_host(config(tolerated)) as host:
        assert (await get(host, "/v1/board"))[0] == 404
        assert [*(await host.catalog_for(ADA))] == ["pin"]
    assert "going on without it (required: false); fix the cause" in caplog.text


@pytest.mark.usefixtures("board")
async def test_a_part_that_raises_costs_the_host_nothing_else(config: Write, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    every = "configure aclose ready stop tools_for"
    async with open_host(config(f"board: {{fails: {every}}}")) as host:
        assert [*(await host.catalog_for(ADA))] == ["pin"]
        await host.reload(by=Principal("op"))
        (down,) = await host.ready()
        assert down.part == "board"
        host.stop()
    for what in ("configure()", "stop()", "tools_for()", "aclose()"):
        assert what in caplog.text
    assert "secret text" not in down.reason


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("return [read_board]", "return [1]"), "1 is no route; make it with @route and @answers of toolplug.http"),
        (
            ('"GET", "/v1/board"', '"GET", "/v1/bored"'),
            "GET /v1/bored begins with none of its paths, which are /v1/board",
        ),
        (
            ('"board:read", "The board"', '"board:write", "The board"'),
            "GET /v1/board needs the scope 'board:write'; add it",
        ),
        (("return [read_board]", "raise RuntimeError"), "routes() of the part 'board'"),
        (
            ('"GET", "/v1/board"', '"get", "/v1/board"'),
            "get /v1/board has no method that can be served; give one",
        ),
        (('"/v1/board", "b', '"/v1/board/{id:foo}", "b'), "GET /v1/board/{id:foo} has a path that cannot be matched: "),
        (('"/v1/board", "b', '"/v1/board/{id}/{id}", "b'), "has a path that cannot be matched: Duplicated param"),
        (
            ('"/v1/board", "b', '"/v1/board/{id:int}", "b'),
            "has a parameter with a convertor; none but :path",
        ),
        (('"The board")', '"The board", audience="plugin")'), "is for the plugin of a session, whose {code} its path"),
        (
            ('"The board")', '"The board", Unwritten)'),
            "GET /v1/board has the model <class 'board_mod.Unwritten'> wi",
        ),
        (("@answers()", "@answers(Unwritten)"), "GET /v1/board has the model <class 'board_mod.Unwritten'> wi"),
    ],
)
async def test_routes_that_it_did_not_announce_or_that_cannot_be_served_are_left_out(
    config: Write, package: Package, caplog: pytest.LogCaptureFixture, change: tuple[str, str], expected: str
) -> None:
    package("acme-board", {"board": "board_mod"}, board_mod=BOARD.replace(*change))
    async with open_host(config("board: {text: hello}" + KEYS)) as host:
        assert (await get(host, "/v1/board"))[0] == 404
        assert (await get(host, "/v1/board/1"))[0] == 404
        assert (await get(host, "/v1/openapi.json"))[0] == 200
    assert expected in caplog.text
    assert "provider 'board' (acme-board 1.0)" in caplog.text


async def test_a_provider_of_its_package_gets_it_as_a_service(config: Write, package: Package) -> None:
    source = (
        BOARD
        + """
    from toolplug import FunctionProvider

    class Reader(FunctionProvider):
        async def start(self, site):
            self.site = site

        @tool
        async def read(self) -> str:
            "Read the board."
            return self.site.service(RunningBoard).settings.text
"""
    )
    package("acme-board", {"board": "board_mod", "reader": "board_mod:Reader"}, board_mod=source)
    async with open_host(config("providers: {reader: {enabled: true}}\nboard: {text: hello}")) as host:
        assert (await host.executor_for(ADA).execute(ToolCall("1", "read"))).output == "hello"
