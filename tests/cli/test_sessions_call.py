"""`toolplug sessions call`: one call through a running host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from tests.cli.conftest import Run
from tests.cli.done import Done
from tests.cli.lending import lending
from tests.cli.process import toolplug
from tests.http.served import served

from toolplug import open_host

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("C-10-sessions")]

Write = Callable[..., Path]

OPEN = "providers: {hello: {enabled: true}}"
CLOSED = f"""{OPEN}
auth:
  api_keys:
    - {{key: diary-key, subject: diary}}
    - {{key: reader-key, subject: reader, scopes: [tools:read]}}
    - {{key: other-key, subject: other, tenant: t2}}
"""
REPORTING = """
    from toolplug import CallContext, FunctionProvider, tool

    class Reporting(FunctionProvider):
        @tool
        async def count(self, context: CallContext) -> str:
            context.report(1, 2, "half")
            return "done"
"""


async def ran(run: Run, *arguments: str) -> Done:
    """The command beside the loop on which the application answers."""
    return await asyncio.to_thread(run, "sessions", "call", *arguments)


async def test_a_tool_of_the_application_answers_on_stdout(run: Run, write: Write) -> None:
    async with lending(write(OPEN)) as diary:
        at = ("--url", diary.url)
        assert await ran(run, diary.code, "diary.write", "text=12", "day=3", *at) == (0, '{"text":"12","day":3}\n', "")
        assert (await ran(run, diary.code, "diary__write", "text=12", *at)).out == '{"text":"12","day":1}\n'
        assert (await ran(run, diary.code, "hello", "name=Ada", *at)).out == "Hello, Ada!\n"
        answer = await ran(run, diary.code, "diary.write", '{"text": "x"}', *at, "--json")
    assert (answer.code, answer.json) == (
        0,
        {
            "call_id": "cli",
            "output": '{"text":"x","day":1}',
            "is_error": False,
            "status": "success",
            "structured": {"text": "x", "day": 1},
            "metadata": {},
        },
    )


@pytest.mark.requirement("C-10-stderr")
async def test_progress_goes_to_stderr(run: Run, write: Write, package: Callable[..., None]) -> None:
    package("toolplug-reporting", {"reporting": "reporting_mod:Reporting"}, reporting_mod=REPORTING)
    async with lending(write("providers: {reporting: {enabled: true}}")) as diary:
        assert await ran(run, diary.code, "count", "--url", diary.url) == (0, "done\n", "1 of 2 half\n")


@pytest.mark.requirement("C-10-exit-codes", "C-10-stderr")
async def test_a_result_that_is_an_error_exits_1_with_its_status_on_stderr(run: Run, write: Write) -> None:
    async with lending(write(OPEN)) as diary:
        at = ("--url", diary.url)
        assert await ran(run, diary.code, "fails", *at) == (1, "no luck\n", "tool_error\n")
        unknown = 'session has no tool "fail"\n'
        assert await ran(run, diary.code, "fail", *at) == (1, unknown, "unknown_tool (nearest: 'fails')\n")
        assert (await ran(run, diary.code, "diary.write", "day=x", *at)).code == 2


async def test_a_key_of_the_environment_or_of_a_file_opens_the_session(
    run: Run, write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("diary-key\n")
    async with lending(write(CLOSED), api_key="diary-key") as diary:
        line = (diary.code, "diary.write", "text=a", "--url", diary.url)
        refused = await ran(run, *line)
        assert (refused.code, refused.out) == (1, "")
        assert refused.err.endswith(" (set $TOOLPLUG_KEY, or name a file with --key-file)\n")
        assert (await ran(run, *line, "--json")).codes == ["authentication_required"]
        assert (await ran(run, *line, "--key-file", "key")).code == 0
        monkeypatch.setenv("TOOLPLUG_KEY", "diary-key")
        assert (await ran(run, *line)).code == 0
        for key, code in {
            "reader-key": "insufficient_scope",
            "other-key": "session_not_found",
            diary.application.token: "wrong_audience",
        }.items():
            monkeypatch.setenv("TOOLPLUG_KEY", key)
            told = await ran(run, *line)
            assert (await ran(run, *line, "--json")).codes == [code]
            assert key not in told.err
            assert told.err.endswith(")\n")


@pytest.mark.requirement("C-2-secrets-hidden")
async def test_a_file_that_holds_no_key_is_refused_without_being_shown(run: Run, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("one\ntwo")
    done = await ran(run, "ABCDEFGH", "write", "--key-file", "key")
    assert done == (1, "", "key: the key is not one word of visible ASCII\n")
    missing = await ran(run, "ABCDEFGH", "write", "--key-file", "nosuch")
    assert (missing.code, missing.err) == (1, "nosuch: No such file or directory\n")


@pytest.mark.requirement("C-10-exit-codes")
async def test_what_does_not_name_a_session_of_a_host_is_refused(run: Run, write: Write) -> None:
    write(OPEN)
    assert (await ran(run, "../metrics", "write", "--json")).codes == ["invalid_session_code"]
    wrong = await ran(run, "ABCDEFGH", "write", "--url", "localhost:8080")
    assert (wrong.code, "write it as http://127.0.0.1:8080" in wrong.err) == (2, True)
    away = await ran(run, "ABCDEFGH", "write", "--url", "http://127.0.0.1:1")
    assert away.code == 1
    assert away.err.startswith("no host answers at http://127.0.0.1:1: ")
    assert away.err.endswith(" (toolplug serve -c providers.yaml starts one; --url says where)\n")
    async with lending(write(OPEN)) as diary:
        unknown = await ran(run, "ABCDEFGH", "write", "--url", diary.url, "-c", "prod.yaml")
    assert unknown.err.startswith("ABCDEFGH: no such session (toolplug sessions list -c prod.yaml shows the codes")


@contextmanager
def stranger(*answers: Response) -> Iterator[str]:
    """The URL of a server that is no host of ours; it gives these answers in turn."""
    given = iter(answers)

    async def answer(request: Request) -> Response:
        return next(given)

    routes = [Route("/{path:path}", answer, methods=["GET", "POST"])]
    with served(open_host({"store": "memory://"}), Starlette(routes=routes)) as port:
        yield f"http://127.0.0.1:{port}"


async def test_what_is_no_host_is_told_apart(run: Run) -> None:
    tools = Response('{"tools": []}', media_type="application/json")
    line = ("ABCDEFGH", "write", "--url")
    with stranger(PlainTextResponse("hi"), PlainTextResponse("no", 418)) as url:
        assert "is no toolplug host" in (await ran(run, *line, url)).err
        assert "is no toolplug host: status 418" in (await ran(run, *line, url)).err
    with stranger(tools, Response(": bye\n\n", media_type="text/event-stream")) as url:
        assert "closed the connection before the result" in (await ran(run, *line, url)).err


async def test_without_the_extra_the_line_that_installs_it_is_told(write: Write, tmp_path: Path) -> None:
    write(OPEN)
    site = tmp_path / "site"
    site.mkdir()
    (site / "httpx2.py").write_text("raise ModuleNotFoundError('No module named httpx2', name='httpx2')\n")
    done = await asyncio.to_thread(toolplug, "sessions", "call", "ABCDEFGH", "write", folder=tmp_path, site=site)
    assert (done.code, done.err) == (1, "sessions call needs the package 'httpx2' (pip install 'toolplug[client]')\n")
    listed = await asyncio.to_thread(toolplug, "sessions", "--help", folder=tmp_path, site=site)
    assert listed.code == 0
