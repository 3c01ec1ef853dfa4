"""The in-process host, the plugin's fixture, and what installing toolplug does to a foreign test suite."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toolplug import CallContext, FunctionProvider, Principal, ToolCall, tool
from toolplug.testing import in_process_host
from toolplug.testing.provider_check import made, running

pytest_plugins = ["pytester"]
HELLO: Mapping[str, object] = {"providers": {"hello": {"enabled": True, "greeting": "Hi"}}}
ONE = Principal(subject="ann", tenant="t1", scopes=frozenset({"tools:call"}))
TWO = Principal(subject="bob", tenant="t2", scopes=frozenset({"tools:read"}), agents=frozenset({"a"}))


@pytest.mark.anyio
@pytest.mark.requirement("I2-9-fakes")
async def test_without_principals_everybody_is_anonymous_and_may_do_everything() -> None:
    async with in_process_host(HELLO) as served:
        assert (await served.call("hello", name="Ann")).output == "Hi, Ann!"
        assert (await served.client.get("/v1/hello")).json() == {"greeting": "Hi, default!"}
        assert (await served.client.get("/v1/providers")).status_code == 200
        assert list(served.callers) == ["anonymous"]


@pytest.mark.anyio
@pytest.mark.requirement("I2-9-fakes")
async def test_each_principal_comes_in_with_a_key_of_its_own() -> None:
    async with in_process_host(HELLO, principals=[ONE, TWO]) as served:
        assert (await served.callers["ann"].client.get("/v1/hello")).json() == {"greeting": "Hi, t1!"}
        assert (await served.client.get("/v1/hello")).status_code == 200
        assert (await served.callers["bob"].client.get("/v1/hello")).status_code == 403
        assert (await served.nobody.get("/v1/hello")).status_code == 401
        assert (await served.callers["bob"].call("hello")).status == "unknown_tool"
        assert (await served.call("hello")).output == "Hi, world!"


@pytest.mark.anyio
@pytest.mark.requirement("I2-9-fakes")
async def test_opened_again_in_its_folder_it_is_the_same_host_restarted(in_process_host: Any, tmp_path: Path) -> None:
    for begun in (0, 1):
        async with in_process_host(HELLO) as served:
            assert len(await served.host.store.keys("begun")) == begun
            await served.host.store.commit(f"begun-{begun}", b"")
    assert (tmp_path / ".toolplug" / "state.db").is_file()


class Echo(FunctionProvider):
    """Says its key."""

    @tool
    async def echo(self) -> str:
        """Say the key."""
        return self.key


@pytest.mark.anyio
@pytest.mark.requirement("I2-9-fakes")
async def test_one_provider_runs_from_its_class_from_a_function_or_as_an_instance() -> None:
    for make in (Echo, partial(made, Echo), made(Echo)):
        async with running(make, key="mine") as registry:
            assert (await registry.execute(ToolCall("c", "echo"), CallContext())).output == "mine"


FOREIGN = """
import sys

def test_what_needs_an_extra_comes_when_it_is_asked_for(request):
    loaded = [name for name in sys.modules if name.startswith("toolplug")]
    assert sorted(loaded) == ["toolplug", "toolplug.exports", "toolplug.testing", "toolplug.testing.plugin"]
    assert callable(request.getfixturevalue("in_process_host"))
    assert "toolplug.testing.in_process" in sys.modules
"""


@pytest.mark.process
@pytest.mark.requirement("I2-9-fakes")
def test_a_foreign_suite_gets_one_fixture_and_nothing_is_loaded_before_it_is_asked_for(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(FOREIGN)
    pytester.runpytest_subprocess("-p", "no:anyio").assert_outcomes(passed=1)


@pytest.mark.process
@pytest.mark.requirement("I2-9-fakes")
def test_a_missing_http_client_is_named_with_the_line_that_installs_it() -> None:
    code = "import sys; sys.modules['httpx2'] = None; from toolplug.testing import running, in_process_host"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last == ("ModuleNotFoundError: in_process_host needs httpx2: pip install 'toolplug[testing]'")
