"""The parts of a confinement, each by itself: its settings, its filter, its words where it cannot be had."""

from __future__ import annotations

import errno
import mmap
import os
import platform
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from toolplug import FunctionRegistry
from toolplug.apart.confinement import bounds
from toolplug.apart.confinement.bounds import (
    DISK,
    MAX_FILES,
    MEMORY,
    Bounds,
    measure,
    measure_disk,
    measure_open,
    measure_sockets,
)
from toolplug.apart.confinement.confinement import Confinement, explain, find_bubblewrap
from toolplug.apart.confinement.file_grants import list_grants
from toolplug.apart.confinement.interpreter import environment_parts
from toolplug.apart.confinement.network import is_granted
from toolplug.apart.confinement.system_calls import filter_program, has_filter, refused_numbers
from toolplug.apart.permissions import Permissions
from toolplug.apart.running import lacks_network
from toolplug.config.run_settings import RunSettings
from toolplug.errors import ConfigError, InvalidDefinition

pytestmark = pytest.mark.requirement("I36-confined")


# Settings


@pytest.mark.parametrize(
    "given", [{"network": []}, {"files": []}, {"environment": ["TZ"]}, {"confine": "try"}, {"confine": "required"}]
)
def test_confinement_begins_with_the_first_grant(given: Mapping[str, object]) -> None:
    run = RunSettings.model_validate({"process": True, **given})
    assert run.confined
    assert Bounds.of(run)[0] == MEMORY


def test_bounds_alone_confine_nothing_and_have_no_default() -> None:
    run = RunSettings.model_validate({"process": True, "memory": "64MiB"})
    assert not run.confined
    assert Bounds.of(run) == Bounds(memory=64 * 1024 * 1024)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"memory": "64MiB"}, "add process: true"),
        ({"process": True, "hooks": ["before_call"]}, "add confine: try"),
        ({"process": True, "tenants": "all"}, "add confine: try"),
        ({"process": True, "network": ["https://api.example.com/"]}, "a host such as"),
        ({"process": True, "network": ["api.example.com:99999"]}, "a host such as"),
        ({"process": True, "files": [":rw"]}, "a path such as"),
        ({"process": True, "environment": ["A=b"]}, "the name of a variable"),
        ({"process": True, "confine": "maybe"}, "required"),
        ({"process": True, "confine": "try", "hooks": ["stores"]}, "before_call"),
        ({"process": True, "processes": 1}, "greater than or equal to 4"),
    ],
)
def test_what_would_do_nothing_or_means_nothing_is_refused(given: Mapping[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        RunSettings.model_validate(given)


@pytest.mark.parametrize(
    ("granted", "host", "port", "is_it"),
    [
        ("api.example.com", "api.example.com", 443, True),
        ("api.example.com", "api.example.com", 80, False),
        ("api.example.com", "evil.api.example.com", 443, False),
        ("api.example.com", "api.example.com.evil.example", 443, False),
        ("*.example.com", "api.example.com", 443, True),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "evilexample.com", 443, False),
        ("api.example.com:8443", "api.example.com", 8443, True),
        ("api.example.com:8443", "api.example.com", 443, False),
        ("[fd00::1]", "fd00::1", 443, True),
        ("[fd00::1]:8443", "fd00::1", 8443, True),
    ],
)
def test_a_word_grants_a_host_and_port(granted: str, host: str, port: int, is_it: bool) -> None:
    assert is_granted((granted,), host, port) is is_it


def test_a_file_is_granted_by_its_place_or_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    grants = list_grants(("./a/b:rw", "a"), tmp_path)
    assert [(grant.path, grant.writable) for grant in grants] == [
        (f"{tmp_path}/a", False),
        (f"{tmp_path}/a/b", True),
    ]
    (tmp_path / "kernel").symlink_to("/proc")
    for word, said in (
        ("./none", "there is no"),
        ("/", "cannot be granted"),
        ("/proc/1", "cannot"),
        ("kernel", "cannot"),
    ):
        with pytest.raises(InvalidDefinition, match=said):
            list_grants((word,), tmp_path)


def test_a_file_that_is_not_there_is_reported_at_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "a.py").write_text("", "utf-8")
    file = tmp_path / "providers.yaml"
    lines = [
        "providers:",
        "  a:",
        "    type: ./a.py",
        "    enabled: true",
        "    run:",
        "      process: true",
        "      files:",
        "        - ./there",
        "        - ./none:rw",
    ]
    file.write_text("\n".join(lines), "utf-8")
    with pytest.raises(ConfigError) as caught:
        FunctionRegistry.from_yaml(file)
    (problem,) = caught.value.problems
    assert (problem.path, problem.line) == ("providers.a.run.files[1]", 9)
    assert f"./none:rw: there is no {tmp_path}/none" in problem.message


def test_what_a_package_asks_for_and_is_not_granted_is_named() -> None:
    run = RunSettings.model_validate({"process": True, "network": ["a.example"]})
    asked = Permissions(network=("a.example", "b.example"), hooks=("before_call",), files=("./notes:rw",))
    assert Confinement(run=run, asked=asked).list_ungranted() == [
        "it asks for network: b.example, which run.network does not grant",
        "it asks for hooks: before_call, which run.hooks does not grant",
        "it asks for files: ./notes:rw, and run.files grants none",
    ]
    assert Confinement(asked=asked).list_ungranted() == []


# Where it cannot be had

DENIED = "bwrap: No permissions to create new namespace, likely because the kernel does not allow it"
MAP = "bwrap: setting up uid map: Permission denied"
PROC = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted"


@pytest.mark.parametrize(
    ("failure", "files", "fix"),
    [
        (DENIED, {"/.dockerenv": "", "/proc/self/status": "Seccomp:\t2\n"}, "--security-opt seccomp=unconfined"),
        (DENIED, {"/.dockerenv": "", "/proc/self/status": "Seccomp:\t0\n"}, "--security-opt apparmor=unconfined"),
        (PROC, {"/run/.containerenv": ""}, "--security-opt systempaths=unconfined"),
        (
            MAP,
            {"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"},
            "apparmor_restrict_unprivileged_userns=0",
        ),
        (DENIED, {"/proc/sys/kernel/unprivileged_userns_clone": "0"}, "unprivileged_userns_clone=1"),
        (DENIED, {"/proc/sys/user/max_user_namespaces": "0"}, "user.max_user_namespaces="),
        (DENIED, {}, "a security module"),
        ("bwrap: Unknown option --size", {}, "update bubblewrap"),
        ("", {}, "update bubblewrap"),
    ],
)
def test_the_one_option_to_set_is_named(failure: str, files: Mapping[str, str], fix: str) -> None:
    found = explain(failure, files.get)
    assert fix in found.fix
    assert found.reason.startswith("bubblewrap does not start: ")


def test_a_host_without_bubblewrap_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_bubblewrap()
    assert not isinstance(found, str)
    if platform.system() == "Linux" and has_filter():
        assert (found.reason, found.fix) == (
            "bubblewrap is not installed: there is no bwrap on the PATH",
            "apt-get install bubblewrap",
        )


# The filter, run as the kernel runs it

ALLOWED = 0x7FFF0000
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CALLS = {
    "x86_64": {
        "read": 0,
        "openat": 257,
        "chmod": 90,
        "clone": 56,
        "socket": 41,
        "execve": 59,
        "clone3": 435,
        "fcntl": 72,
        "setsockopt": 54,
    },
    "aarch64": {
        "read": 63,
        "openat": 56,
        "chmod": 52,
        "clone": 220,
        "socket": 198,
        "execve": 221,
        "clone3": 435,
        "fcntl": 25,
        "setsockopt": 208,
    },
}


DONE = "the call does nothing, and says that it is done"


def verdict(machine: str, number: int, *given: int, audit: int | None = None) -> int | str:
    """Return what the filter says: 0 for allowed, or the error, or `DONE`."""
    data = struct.pack("=IIQ6Q", number, audit or MACHINES[machine], 0, *given, *[0] * (6 - len(given)))
    program = list(struct.iter_unpack("=HBBI", filter_program(machine)))
    held, place = 0, 0
    while True:
        code, if_true, if_false, constant = program[place]
        place += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("=I", data, constant)
            case 0x06:
                return 0 if constant == ALLOWED else constant & 0xFFFF or DONE
            case _:
                met = {0x15: held == constant, 0x35: held >= constant, 0x45: bool(held & constant)}[code]
                place += if_true if met else if_false


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_refuses_what_it_names_and_nothing_that_programs_need(machine: str) -> None:
    calls = CALLS[machine]
    assert {verdict(machine, number) for number in refused_numbers(machine).values()} == {errno.EPERM}
    assert [verdict(machine, calls[name]) for name in ("read", "execve", "openat", "chmod", "clone")] == [0] * 5
    assert verdict(machine, calls["read"], audit=0x40000003) == errno.EPERM
    assert [verdict(machine, number) for number in (463, 2**20, calls["clone3"], 437)] == [errno.ENOSYS] * 4


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_looks_at_flags_modes_and_families(machine: str) -> None:
    calls = CALLS[machine]
    assert verdict(machine, calls["clone"], 0x11) == 0
    assert verdict(machine, calls["clone"], 0x10000000) == errno.EPERM
    assert verdict(machine, calls["clone"], 0x20011) == errno.EPERM
    assert verdict(machine, calls["chmod"], 0, 0o755) == 0
    assert verdict(machine, calls["chmod"], 0, 0o4755) == errno.EPERM
    assert verdict(machine, calls["chmod"], 0, 0o2755) == errno.EPERM
    assert verdict(machine, calls["openat"], 0, 0, os.O_RDONLY, 0o4000) == 0  # without O_CREAT there is no mode
    assert verdict(machine, calls["openat"], 0, 0, 0o101, 0o644) == 0
    assert verdict(machine, calls["openat"], 0, 0, 0o101, 0o4755) == errno.EPERM
    assert [verdict(machine, calls["socket"], family) for family in (1, 2, 10)] == [0] * 3
    assert {verdict(machine, calls["socket"], family) for family in (3, 16, 17, 38, 40)} == {errno.EAFNOSUPPORT}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_filter_refuses_leases_and_long_pipes_and_leaves_buffers_as_they_are(machine: str) -> None:
    fcntl, setsockopt = CALLS[machine]["fcntl"], CALLS[machine]["setsockopt"]
    assert [verdict(machine, fcntl, 5, do) for do in (1, 2, 4, 6, 1030)] == [0] * 5
    assert [verdict(machine, fcntl, 5, do) for do in (1024, 1031)] == [errno.EPERM] * 2
    assert [verdict(machine, setsockopt, 5, socket.SOL_SOCKET, what) for what in (2, 9, 15)] == [0] * 3
    assert [verdict(machine, setsockopt, 5, socket.SOL_SOCKET, what) for what in (7, 8)] == [DONE] * 2
    assert [verdict(machine, setsockopt, 5, socket.IPPROTO_TCP, what) for what in (7, 8)] == [0] * 2


def test_the_other_numbers_of_an_x86_64_processor_are_refused() -> None:
    assert verdict("x86_64", 0x40000000 + 101) == errno.ENOSYS


# Counting


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")


@needs_proc
def test_this_process_is_counted_with_its_threads_and_memory() -> None:
    use = measure(Path("/proc"), os.getpid(), None)
    assert use.processes >= 1
    assert use.memory > 10 * 1024 * 1024
    assert 3 < measure(Path("/proc"), None, 3).processes < measure(Path("/proc"), None, None).processes


def test_files_are_counted_until_there_are_too_many(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "data").write_bytes(b"x" * 100_000)
    (tmp_path / "loop").symlink_to(tmp_path)
    found = measure_disk([tmp_path, tmp_path / "none"])
    assert found is not None
    assert 100_000 <= found < DISK
    for number in range(MAX_FILES + 1):
        os.symlink("x", tmp_path / str(number))
    assert measure_disk([tmp_path]) is None


def test_a_folder_that_cannot_be_read_is_not_counted_as_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    scandir, refusal = os.scandir, [errno.EACCES]

    def refuse(place: Path) -> object:
        if place.name == "inner":
            raise OSError(refusal[0], os.strerror(refusal[0]))
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refuse)
    assert measure_disk([tmp_path]) is None
    # A provider makes folders in folders, until their path is longer than the kernel takes.
    refusal[0] = errno.ENAMETOOLONG
    assert measure_disk([tmp_path]) is None
    refusal[0] = errno.ENOENT
    assert measure_disk([tmp_path]) is not None


@needs_proc
def test_deleted_files_count_while_they_are_open_or_mapped(tmp_path: Path) -> None:
    # A /proc that has this process alone.
    processes, folder = tmp_path / "proc", tmp_path
    processes.mkdir()
    (processes / str(os.getpid())).symlink_to("/proc/self")
    before = measure_open(processes, [folder], 10_000)
    assert before is not None
    with (folder / "named").open("wb") as named, (folder / "deleted").open("w+b", buffering=0) as deleted:
        named.write(b"x" * 200_000)
        deleted.write(b"x" * 200_000)
        (folder / "deleted").unlink()
        opened = measure_open(processes, [folder], 10_000)
        assert opened is not None
        assert opened.descriptors == before.descriptors + 2
        assert 200_000 <= opened.deleted - before.deleted < 300_000
        held = mmap.mmap(deleted.fileno(), 0)
        twice = os.dup(deleted.fileno())
        assert measure_open(processes, [folder], 10_000) == opened._replace(descriptors=opened.descriptors + 2)
        os.close(twice)
    # The map has the file, whose descriptor is closed; Python keeps one of its own.
    found = measure_open(processes, [folder], 10_000)
    assert found is not None
    assert 200_000 <= found.deleted - before.deleted < 300_000
    held.close()
    assert measure_open(processes, [folder], 10_000) == before
    assert measure_open(processes, [folder], 2) == (3, 0)


@needs_proc
def test_what_a_process_has_mapped_is_counted_up_to_a_length(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / str(os.getpid())).symlink_to("/proc/self")
    monkeypatch.setattr(bounds, "MAX_MAPPED", 100)
    assert measure_open(tmp_path, [tmp_path], 10_000) is None


@needs_proc
def test_sockets_count_as_what_they_may_hold(tmp_path: Path) -> None:
    for name, text in {
        "sockstat": "sockets: used 3\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 1\n",
        "tcp": "head\n  0: 0100007F:1F90 00000000:0000 01 00000100:00000010 00:00000000 00000000 0 0 1\n",
        "tcp6": "head\n  0: 0:1F90 0:0000 01 00000000:00000001 00:00000000 00000000 0 0 1\n",
    }.items():
        (tmp_path / name).write_text(text)
    usual = int(Path("/proc/sys/net/core/wmem_default").read_text())
    assert measure_sockets(tmp_path, 10**9) == 3 * usual + 0x100 + 0x10 + 1
    assert measure_sockets(tmp_path, 1) == 3 * usual
    (tmp_path / "tcp6").unlink()
    assert measure_sockets(tmp_path, 10**9) == 3 * usual + 0x100 + 0x10


def test_an_error_of_no_network_is_known_behind_others() -> None:
    outer = RuntimeError("the request has failed")
    outer.__cause__ = OSError(errno.ENETUNREACH, "Network is unreachable")
    assert lacks_network(outer)
    assert lacks_network(socket.gaierror(-3, "Temporary failure in name resolution"))
    assert not lacks_network(ConnectionRefusedError(errno.ECONNREFUSED, "refused"))


def test_packages_beside_the_libraries_of_a_prefix_are_part_of_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of pip in Debian's own Python: its prefix is /usr, and they are in /usr/local."""
    beside, other = tmp_path / "local" / "dist-packages", tmp_path / "share" / "settings"
    for folder in (beside, other):
        folder.mkdir(parents=True)
    asked = (str(tmp_path), str(tmp_path), [str(beside), str(other)])
    monkeypatch.setattr("toolplug.apart.confinement.interpreter._ask_host", lambda: asked)
    paths = [part.path for part in environment_parts(sys.executable)]
    assert (str(beside) in paths, any(path.startswith(str(other)) for path in paths)) == (True, False)
