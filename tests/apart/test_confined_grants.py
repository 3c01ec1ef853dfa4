"""What a confined provider is granted works, is the same after a restart, and is refused or said where it cannot be."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.apart import granted
from tests.apart.granted import Granted, Listening
from tests.apart.plain import Plain
from tests.apart.starting import is_gone, needs_confinement, provider_of, until
from tests.cli.conftest import Run, run

from toolplug import CallContext, Principal, ToolCall
from toolplug.apart.entries import apart_class
from toolplug.apart.processes import SOURCE
from toolplug.config.run_settings import RunSettings
from toolplug.errors import InvalidDefinition
from toolplug.net.egress import Egress
from toolplug.providers.entry import DesiredProvider, ProviderEntry
from toolplug.providers.registry import FunctionRegistry
from toolplug.testing import check_provider

__all__ = ["run"]

pytestmark = [pytest.mark.anyio, pytest.mark.process, pytest.mark.requirement("I36-confined")]


def wanted(kind: type, key: str = "made", **run: object) -> DesiredProvider:
    settings = RunSettings.model_validate({"process": True, **run})
    made = apart_class(kind, {}, key, settings)
    return DesiredProvider(ProviderEntry(key=key, type=key, run=settings), lambda: made)


@asynccontextmanager
async def running(*providers: DesiredProvider) -> AsyncGenerator[FunctionRegistry]:
    async with FunctionRegistry() as registry:
        await registry.apply(providers)
        yield registry


@needs_confinement
async def test_files_variables_and_the_folder_of_its_own_are_there_and_stay_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRANTED", "tea")
    monkeypatch.setenv("KEPT_BACK", "milk")
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "note").write_text("of the host")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "note").write_text("secret")
    (tmp_path / "outer").mkdir()
    (tmp_path / "outer" / "inner").mkdir()
    (tmp_path / "outer" / "inner" / "note").write_text("inner")
    files = [str(tmp_path / "link"), f"{tmp_path}/outer:rw", f"{tmp_path}/outer/inner"]
    async with running(wanted(Granted, confine="required", files=files, environment=["GRANTED", "UNSET"])) as registry:
        provider = provider_of(registry)

        async def text(path: str) -> str:
            return (await registry.call("read", path=str(tmp_path / path))).output

        assert await text("link/note") == "of the host"
        assert (await registry.call("write", path=f"{tmp_path}/link/note", text="x")).is_error
        assert (await registry.call("write", path=f"{tmp_path}/outer/new", text="written")).structured == 7
        assert (tmp_path / "outer" / "new").read_text() == "written"
        assert await text("outer/inner/note") == "inner"
        variables = (await registry.call("variables")).structured
        assert isinstance(variables, dict)
        assert variables["GRANTED"] == "tea"
        assert {"KEPT_BACK", "UNSET", "HTTPS_PROXY"}.isdisjoint(variables)
        assert (await registry.call("state")).output == "1"

        # The operator's link leads elsewhere now: what was granted is what it led to.
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to(tmp_path / "secret")
        await registry.call("leave")
        await until(lambda: not provider.restarting)
        assert await text("link/note") == "of the host"
        assert (await registry.call("state")).output == "2"


@needs_confinement
@pytest.mark.parametrize("how", ["moved", "deleted"])
async def test_a_link_that_it_puts_in_the_place_of_a_grant_is_not_followed(tmp_path: Path, how: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "note").write_text("secret")
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "note").write_text("inner")
    # Written in the host: of what is mounted there, the process itself cannot move the place.
    async with running(wanted(Granted, confine="required", files=[f"{tmp_path}/outer:rw", str(inner)])) as registry:
        assert (await registry.call("replace_by_link", path=str(inner), target=f"{tmp_path}/secret")).is_error
        if how == "moved":
            inner.rename(tmp_path / "outer" / "away")
            inner.symlink_to(tmp_path / "secret")
        else:
            # As the kernel names what is deleted.
            shutil.rmtree(inner)
            (tmp_path / "outer" / "inner (deleted)").symlink_to(tmp_path / "secret")
        provider = provider_of(registry)
        pid = provider._process.pid  # type: ignore[union-attr]
        await registry.call("leave")
        await until(lambda: is_gone(pid))
        await until(lambda: not provider.restarting or provider._failures > 1)
        assert "secret" not in (await registry.call("read", path=f"{inner}/note")).output


@needs_confinement
async def test_the_way_to_a_grant_cannot_be_led_elsewhere(tmp_path: Path) -> None:
    inner, elsewhere = tmp_path / "outer" / "way" / "inner", tmp_path / "elsewhere"
    inner.mkdir(parents=True)
    elsewhere.mkdir()
    files = [f"{tmp_path}/outer:rw", str(inner)]
    async with running(wanted(Granted, confine="required", files=files)) as registry:
        # Where bubblewrap has the tree of the host while it mounts.
        assert (await registry.call("replace_by_link", path=str(inner.parent), target=f"/oldroot{elsewhere}")).is_error
        assert (await registry.call("write", path=f"{inner.parent}/note", text="as before")).output == "9"
        provider = provider_of(registry)
        await registry.call("leave")
        await until(lambda: not provider.restarting)
        assert not [*elsewhere.iterdir()]
    inner.parent.rename(tmp_path / "way")
    inner.parent.symlink_to(tmp_path / "way")
    with pytest.raises(InvalidDefinition, match="way is a link in"):
        async with running(wanted(Granted, confine="required", files=files)):
            raise AssertionError("it must not start")


PLAIN = "405 this proxy takes CONNECT only: use https\n"


@needs_confinement
async def test_a_granted_host_is_reached_through_the_proxy_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello from the host")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server, FunctionRegistry() as registry:
        port = server.sockets[0].getsockname()[1]
        await registry.apply([wanted(Granted, confine="required", network=[f"localhost:{port}"])])

        async def connect(target: str) -> str:
            return (await registry.call("connect", target=target)).output

        refused = await connect(f"localhost:{port}")
        assert refused.startswith("HTTP/1.1 403")
        assert "egress.allow does not list it" in refused
        provider_of(registry)._access._proxy._egress = Egress(("loopback",))  # type: ignore[union-attr]
        assert (await connect(f"LOCALHOST:{port}")).endswith("hello from the host")
        for target, said in (
            (f"127.0.0.1:{port}", "run.network does not grant"),
            ("localhost:1", "run.network does not grant"),
            ("nonsense", "HOST:PORT"),
        ):
            assert said in await connect(target)
        assert (await registry.call("fetch_plain", url="http://example.com/")).output == PLAIN
        assert (await registry.call("ignore_the_proxy")).is_error
        await until(lambda: "a call found no network" in caplog.text)


@needs_confinement
async def test_records_of_others_and_hooks_are_grants() -> None:
    ada = CallContext(Principal("ada", "a", frozenset({"tools:call"})))
    async with running(wanted(Granted, confine="required")) as registry:
        for tenant, is_refused in (("a", False), ("b", True)):
            result = await registry.execute(ToolCall("c", "records_of", {"tenant": tenant}), ada)
            assert result.is_error is is_refused, result.output
    async with running(wanted(Granted, confine="required", tenants="all")) as registry:
        result = await registry.execute(ToolCall("c", "records_of", {"tenant": "b"}), ada)
        assert result.structured == []


@needs_confinement
@pytest.mark.parametrize("hooks", [[], ["before_call"]])
async def test_a_hook_around_the_calls_of_others_is_off_unless_it_is_granted(hooks: list[str]) -> None:
    async with running(wanted(Listening, confine="required", hooks=hooks), wanted(Plain, "plain")) as registry:
        result = await registry.call("one", text="tea")
        assert (result.status, "not with me" in result.output) == (("denied", True) if hooks else ("success", False))
        texts = await provider_of(registry).diagnose()
        assert "all is well here" in texts
        assert ("its hooks before_call are off: run.hooks does not grant them" in texts) is not bool(hooks)


@needs_confinement
async def test_the_contract_holds_in_confinement() -> None:
    await check_provider(Plain, calls={"one": {"text": "tea"}}, run={"process": True, "confine": "required"})


async def test_without_bubblewrap_required_refuses_and_try_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Exception, match=r"must be confined .*bubblewrap is not installed"):
        wanted(Plain, confine="required")
    async with running(wanted(Plain, network=["a.example"])) as registry:
        assert (await registry.call("one", text="tea")).output == "tea"
        (record,) = registry.records()
        assert record.reason.startswith("not confined: bubblewrap is not installed")
        assert record.reason in caplog.text
        assert record.reason in await provider_of(registry).diagnose()


FILE = """
store: memory://
providers:
  made:
    enabled: true
    type: '{path}:Granted'
    run: {{process: true, files: [./data], environment: [TZ], memory: 300MiB{more}}}
"""


Doctor = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def doctor(run: Run, tmp_path: Path) -> Doctor:
    """Return the status and the two forms of what `doctor` prints of this file, with more in `run`."""

    def asked(more: str = "") -> tuple[int, dict[str, Any], str]:
        (tmp_path / "data").mkdir(exist_ok=True)
        file = tmp_path / "providers.yaml"
        file.write_text(FILE.format(path=granted.__file__, more=more))
        told, text = (run("doctor", "-c", str(file), *options) for options in (["--json"], []))
        return told.code, json.loads(told.out), text.out

    return asked


@needs_confinement
def test_doctor_shows_what_is_asked_for_and_granted(doctor: Doctor) -> None:
    status, found, text = doctor()
    assert status == 0, text
    assert found["processes"] == {
        "made": {
            "confined": True,
            "reason": "",
            "asked": None,
            "granted": ["files: ./data", "environment: TZ"],
            "bounds": {"memory": "300MiB", "processes": 128, "descriptors": 256, "disk": "256MiB"},
        }
    }
    for line in (
        "made runs in a process of its own, confined",
        "asks for: its package does not say",
        "granted: files: ./data; environment: TZ",
        "bounds: memory 300MiB, processes 128, descriptors 256, disk 256MiB",
    ):
        assert line in text


def test_doctor_says_where_it_is_not_confined_and_what_to_do(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _, found, text = doctor()
    assert "made runs in a process of its own, not confined" in text
    assert "not confined: bubblewrap is not installed" in json.dumps(found["warnings"])
    status, found, text = doctor(", confine: required")
    assert (status, "it must be confined" in text, "apt-get install bubblewrap" in text) == (1, True, True)


def test_a_grant_that_is_not_there_names_its_place(doctor: Doctor) -> None:
    status, _, text = doctor(", network: ['https://x/']")
    assert (status, "providers.yaml:7" in text, "a host such as" in text) == (1, True, True)


UNPRIVILEGED = """
import subprocess, sys
sys.path[:0] = sys.argv[1:]
from pathlib import Path
from toolplug.apart.confinement.confinement import confine
from toolplug.config.run_settings import RunSettings
from toolplug.errors import InvalidDefinition
found = confine(RunSettings(process=True, confine="required"), Path("/"), sys.executable)
if found.sandbox is None:
    sys.exit(f"not confined: {found.refusal}")
look = "import os; print(os.getuid(), sorted(os.listdir('/')), sorted(os.listdir('/proc/self/fd')))"
with found.sandbox.wrap([sys.executable, "-I", "-S", "-c", look]) as command:
    print(subprocess.check_output(command.words, pass_fds=command.descriptors, env={}, text=True))
"""
SYSTEM_PYTHON = "/usr/bin/python{}.{}".format(*sys.version_info)


@needs_confinement
@pytest.mark.skipif(os.geteuid() != 0, reason="this user is unprivileged: the other tests are this one")
@pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason=f"there is no {SYSTEM_PYTHON}, which any user can run")
async def test_a_user_without_any_privilege_confines_as_root_does() -> None:
    folders = [str(SOURCE), *(each for each in sys.path if each.endswith("site-packages"))]
    script = [SYSTEM_PYTHON, "-c", UNPRIVILEGED, *folders]

    def run() -> subprocess.CompletedProcess[str]:
        nobody = {"user": 65534, "group": 65534, "extra_groups": []}
        return subprocess.run(script, capture_output=True, text=True, cwd="/", check=False, **nobody)  # type: ignore[call-overload]

    done = await asyncio.to_thread(run)
    if "ModuleNotFoundError" in done.stderr or "PermissionError" in done.stderr:
        pytest.skip("the checkout is in a folder that only root can read")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("65534 [")
    assert "'home'" not in done.stdout
    assert done.stdout.strip().endswith("['0', '1', '2', '3']")
