"""A confined provider has what it was granted and nothing else, whatever its package tries."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.apart.attacks import ATTACKS, HARMLESS
from tests.apart.damaging import Damaging
from tests.apart.hostile_packages import HostilePackage
from tests.apart.starting import is_gone, needs_confinement, provider_of, until

from toolplug import CallContext, ToolCall
from toolplug.apart.confinement.bounds import MAX_FILES
from toolplug.apart.entries import apart_class
from toolplug.config.run_settings import RunSettings
from toolplug.providers.entry import DesiredProvider, ProviderEntry
from toolplug.providers.registry import FunctionRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I36-confined")]


WAITING = "import signal; signal.signal(10, signal.SIG_IGN); print(flush=True); signal.pause()"


@pytest.fixture
def facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[dict[str, Any]]:
    """Things of the host that a package could want, each with the secret."""
    token = f"secret-{secrets.token_hex(8)}"
    folder = tmp_path / token
    for name in ("granted", "writable", "other"):
        (folder / name).mkdir(parents=True)
    for name in ("secret.txt", "scratch.txt", "providers.yaml", "granted/data.txt", "other/state"):
        (folder / name).write_text(token)
    (folder / "granted" / "link").symlink_to(folder / "secret.txt")
    # As the variable of a process: what is set later is not in /proc.
    command = [
        sys.executable,
        "-c",
        "import signal; signal.signal(10, signal.SIG_IGN); print(flush=True); signal.pause()",
        f"argument-{token}",
    ]
    variables = {**os.environ, "TOKEN": f"variable-{token}"}
    beside = tmp_path.parent / token
    beside.touch()
    shared = Path("/dev/shm") / token
    shared.touch()
    temporary = Path("/tmp") / token
    temporary.touch()
    terminal, own_terminal = os.openpty()
    address = socket.gethostbyname(socket.gethostname())
    with (
        subprocess.Popen(command, env=variables, stdout=subprocess.PIPE) as victim,
        socket.create_server(("", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as named,
    ):
        datagrams.bind(("127.0.0.1", 0))
        abstract.bind(f"\0{token}")
        named.bind(str(path := Path(f"/tmp/{token}.socket")))
        for each in (tcp, abstract, named):
            each.listen()
            Thread(target=answer_connections, args=(each, token.encode()), daemon=True).start()
        Thread(target=answer_datagrams, args=(datagrams, token.encode()), daemon=True).start()
        assert victim.stdout is not None
        victim.stdout.readline()
        yield {
            "token": token,
            "secret": str(folder / "secret.txt"),
            "scratch": str(folder / "scratch.txt"),
            "granted": str(folder / "granted"),
            "writable": str(folder / "writable"),
            "configuration": str(folder / "providers.yaml"),
            "other_state": str(folder / "other" / "state"),
            "package": str(Path(__file__).parent),
            "home": str(tmp_path.parent),
            "in_home": beside.name,
            "host": victim.pid,
            "victim": victim.pid,
            "variable": f"variable-{token}",
            "argument": f"argument-{token}",
            "hostname": socket.gethostname(),
            "temporary": token,
            "terminal": os.ttyname(own_terminal),
            "port": tcp.getsockname()[1],
            "address": address,
            "datagrams": datagrams.getsockname()[1],
            "socket": str(path),
        }
        victim.kill()
        victim.wait()
    os.close(terminal)
    os.close(own_terminal)
    for each in (beside, shared, temporary, path):
        each.unlink()


def answer_connections(listening: socket.socket, text: bytes) -> None:
    while True:
        try:
            there, _ = listening.accept()
        except OSError:
            return
        with there:
            there.sendall(text)


def answer_datagrams(listening: socket.socket, text: bytes) -> None:
    while True:
        try:
            _, who = listening.recvfrom(99)
        except OSError:
            return
        listening.sendto(text, who)


@asynccontextmanager
async def running(kind: type, **run: object) -> AsyncGenerator[FunctionRegistry]:
    settings = RunSettings.model_validate({"process": True, **run})
    made = apart_class(kind, {}, "made", settings)
    wanted = DesiredProvider(ProviderEntry(key="made", type="made", run=settings), lambda: made)
    async with FunctionRegistry() as registry:
        await registry.apply([wanted])
        yield registry


async def attack(registry: FunctionRegistry, names: list[str], facts: Mapping[str, object]) -> dict[str, str]:
    result = await registry.call("attack", names=names, facts=dict(facts))
    assert isinstance(result.structured, dict), result
    return {str(name): str(got) for name, got in result.structured.items()}


@pytest.mark.process
@needs_confinement
async def test_no_attack_of_a_hostile_package_succeeds(facts: dict[str, Any]) -> None:
    files = [facts["granted"], f"{facts['writable']}:rw"]
    network = [f"localhost:{facts['port']}", "granted.example"]
    async with running(HostilePackage, confine="required", files=files, network=network) as registry:
        assert await attack(registry, sorted(ATTACKS), facts) == {}
        # What it was granted, it has.
        assert len(ATTACKS) >= 60
    assert Path(facts["scratch"]).read_text() == facts["token"]


@pytest.mark.process
async def test_the_harmless_ones_succeed_where_nothing_is_confined(facts: dict[str, Any]) -> None:
    async with running(HostilePackage) as registry:
        got = await attack(registry, sorted(HARMLESS), facts)
    assert sorted(HARMLESS - got.keys()) == []


TIGHT = {"memory": "150MiB", "processes": 40, "descriptors": 128, "disk": "10MiB"}
ENDED = {
    "fork": "more than 40 processes and threads",
    "zombies": "more than 40 processes and threads",
    "threads": "more than 40 processes and threads",
    "eat": "more than 150MiB of memory",
    "eat_shared": "more than 150MiB of memory",
    "eat_in_children": "more than 150MiB of memory",
    "eat_in_sockets": "more than 150MiB of memory",
    "open_in_children": "more than 2048 open files",
    "fill_deleted": "it has written more than 10MiB",
    "fill_mapped": "it has written more than 10MiB",
    "die": "ended",
    "crash": "ended",
    "stay": "ended",
}
"""What ends the process that does it, with what the log says."""
REFUSED = ("kill_all", "one_large_file", "fill_tmp", "fill_shared", "open_much")
"""What fails in the call, and nowhere else."""


USUAL = ("fork", "eat", "eat_in_sockets", "fill_deleted", "stay")


@needs_confinement
@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=pytest.mark.process if how in USUAL else pytest.mark.judge) for how in ENDED]
)
async def test_what_damages_a_machine_ends_its_own_process_and_nothing_else(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = _count_of_user()
    # A fork has the memory of its parent, which counts for both.
    bounds = {**TIGHT, "memory": "4096MiB"} if "threads" in ENDED[how] or "files" in ENDED[how] else TIGHT
    async with running(Damaging, confine="required", **bounds) as registry:
        result = await registry.call("damage", how=how)
        assert result.is_error, result.output
        provider = provider_of(registry)
        if how in ("fork", "zombies", "threads") and os.geteuid():
            return  # the kernel itself refuses the next one, unless the host is root
        await until(lambda: not provider.restarting and ENDED[how] in caplog.text)
        assert (await registry.call("pid")).structured is not None
    await until(lambda: _count_of_user() <= before + 3)


def _count_of_user() -> int:
    """Return how many processes run bubblewrap, or what a provider has left."""
    return len([each for each in _command_lines() if "bwrap" in each or "toolplug.apart.worker" in each])


def _command_lines() -> list[str]:
    found: list[str] = []
    for pid in (each for each in os.listdir("/proc") if each.isdigit()):
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace"))
        except OSError:
            continue
    return found


@needs_confinement
@pytest.mark.parametrize("how", REFUSED)
@pytest.mark.judge
async def test_what_the_kernel_bounds_fails_in_the_call(how: str) -> None:
    async with running(Damaging, confine="required", **TIGHT) as registry:
        result = await registry.call("damage", how=how)
        assert result.is_error, result.output
        assert (await registry.call("pid")).structured is not None


@needs_confinement
@pytest.mark.parametrize(
    ("how", "said"),
    [
        pytest.param("fill_state", "it has written more than 10MiB", marks=pytest.mark.process),
        pytest.param("many_files", f"they have more than {MAX_FILES} files", marks=pytest.mark.judge),
        pytest.param("fill_deep", "its folders cannot be counted", marks=pytest.mark.process),
    ],
)
async def test_what_it_has_written_is_not_forgotten_by_a_restart(
    how: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(Damaging, confine="required", **TIGHT) as registry:
        provider = provider_of(registry)
        assert (await registry.call("damage", how=how)).is_error
        await until(lambda: caplog.text.count(said) > 1, within_s=60)
        for each in provider._site.state_dir.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        await until(lambda: not provider.restarting, within_s=60)
        assert (await registry.call("pid")).structured is not None


@needs_confinement
@pytest.mark.judge
@pytest.mark.parametrize("how", ["loop", "stop_all"])
async def test_a_call_that_holds_its_process_is_ended_at_its_deadline(how: str) -> None:
    async with running(Damaging, confine="required", **TIGHT) as registry:
        provider = provider_of(registry)
        pid = provider._process.pid  # type: ignore[union-attr]
        context = CallContext(deadline=asyncio.get_running_loop().time() + 1)
        result = await registry.execute(ToolCall("c", "damage", {"how": how}), context)
        assert result.status == "timeout"
        await until(lambda: is_gone(pid))
        await until(lambda: not provider.restarting)
        assert (await registry.call("pid")).structured is not None
