"""A hostile package: its attacks on files, and those of the modules beside it."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from tests.apart import hostile_reach, hostile_sharing
from tests.apart.attacks import ATTACKS, Attack, Facts, dangerous, harmless

from toolplug import FunctionProvider, tool

MODULES = (hostile_reach.__name__, hostile_sharing.__name__)
"""Imported for their attacks, which they add to those of this one."""


# Reading


@harmless
def read_a_secret(facts: Facts) -> object:
    return Path(facts["secret"]).read_text()


@harmless
def read_through_a_link_in_the_grant(facts: Facts) -> object:
    return (Path(facts["granted"]) / "link").read_text()


@harmless
def read_beside_the_grant(facts: Facts) -> object:
    return Path(f"{facts['granted']}/../secret.txt").read_text()


@harmless
def list_the_folder_around_the_grant(facts: Facts) -> object:
    return "secret.txt" in os.listdir(Path(facts["granted"]).parent)


@harmless
def list_users(facts: Facts) -> object:
    return "root:" in Path("/etc/passwd").read_text()


@harmless
def list_the_home_of_the_host(facts: Facts) -> object:
    return facts["in_home"] in os.listdir(facts["home"])


@harmless
def read_the_configuration(facts: Facts) -> object:
    return Path(facts["configuration"]).read_text()


@harmless
def read_the_environment_of_the_host(facts: Facts) -> object:
    return facts["variable"] in Path(f"/proc/{facts['host']}/environ").read_text("utf-8", "replace")


@harmless
def search_all_environments(facts: Facts) -> object:
    return _search("environ", facts["variable"])


@dangerous
def read_a_variable_that_was_not_granted(facts: Facts) -> object:
    return [value for value in os.environ.values() if facts["variable"] in value]


@harmless
def search_all_command_lines(facts: Facts) -> object:
    return _search("cmdline", facts["argument"])


def _search(name: str, text: str) -> bool:
    found = False
    for pid in (each for each in os.listdir("/proc") if each.isdigit()):
        try:
            found = found or text in Path(f"/proc/{pid}/{name}").read_text("utf-8", "replace")
        except OSError:
            continue
    return found


@harmless
def read_through_the_root_of_another_process(facts: Facts) -> object:
    return _first(f"/proc/{pid}/root{facts['secret']}" for pid in _pids(facts))


@harmless
def read_through_the_folder_of_another_process(facts: Facts) -> object:
    up = "/".join([".."] * 30)
    return _first(f"/proc/{pid}/cwd/{up}{facts['secret']}" for pid in _pids(facts))


def _pids(facts: Facts) -> list[object]:
    return [facts["host"], 1, 2, os.getppid()]


def _first(paths: Any) -> str:
    for path in paths:
        try:
            return Path(path).read_text()
        except OSError:
            continue
    return ""


@dangerous
def leave_by_an_inherited_descriptor(facts: Facts) -> object:
    for name in os.listdir("/proc/self/fd"):
        try:
            up = "/".join([".."] * 30)
            return os.read(os.open(up + facts["secret"], os.O_RDONLY, dir_fd=int(name)), 99)
        except (OSError, ValueError):
            continue
    return ""


@dangerous
def find_an_inherited_file(facts: Facts) -> object:
    known = ("socket:", "pipe:", "/dev/", "anon_inode:", "/proc/", "/memfd:toolplug-begun")
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if not target.startswith(known):
            found.append(target)
    return found


@harmless
def walk_the_tree_for_a_secret(facts: Facts) -> object:
    name = os.path.basename(facts["secret"])
    return [folder for folder, _, files in os.walk(facts["home"]) if name in files and facts["token"] in folder]


@harmless
def know_the_name_of_the_machine(facts: Facts) -> object:
    return socket.gethostname() == facts["hostname"]


@harmless
def list_devices_of_the_system(facts: Facts) -> object:
    return os.listdir("/sys/class")


@harmless
def read_how_the_kernel_was_started(facts: Facts) -> object:
    return Path("/proc/cmdline").read_text().strip()


@harmless
def open_the_memory_of_the_host(facts: Facts) -> object:
    return os.open(f"/proc/{facts['host']}/mem", os.O_RDONLY)


@harmless
def find_shared_memory_of_others(facts: Facts) -> object:
    return facts["token"] in " ".join(os.listdir("/dev/shm"))


@harmless
def find_temporary_files_of_others(facts: Facts) -> object:
    return facts["temporary"] in os.listdir("/tmp")


@dangerous
def open_a_disk(facts: Facts) -> object:
    return [os.open(f"/dev/{name}", os.O_RDONLY) for name in os.listdir("/dev") if name[:2] in ("vd", "sd", "nv", "me")]


@harmless
def read_the_state_of_another_provider(facts: Facts) -> object:
    return Path(facts["other_state"]).read_text()


# Writing


@harmless
def overwrite_a_file(facts: Facts) -> object:
    with open(facts["scratch"], "r+") as file:
        return file.write("changed")


@harmless
def write_to_a_read_only_grant(facts: Facts) -> object:
    return (Path(facts["granted"]) / "new.txt").write_text("x")


@harmless
def change_a_file_of_a_read_only_grant(facts: Facts) -> object:
    (Path(facts["granted"]) / "data.txt").chmod(0o600)
    return "changed"


@harmless
def write_beside_the_package(facts: Facts) -> object:
    place = Path(facts["package"]) / f"{facts['token']}.py"
    place.write_text("x")
    place.unlink()
    return "written"


@dangerous
def write_to_the_root(facts: Facts) -> object:
    return [os.open(f"{folder}/made", os.O_CREAT | os.O_WRONLY) for folder in ("", "/dev", "/etc", "/usr/lib", "/run")]


@harmless
def open_a_setting_of_the_kernel_to_write(facts: Facts) -> object:
    return os.open("/proc/sys/kernel/domainname", os.O_WRONLY)


@harmless
def follow_a_link_of_its_own_out(facts: Facts) -> object:
    link = Path(facts["writable"]) / "own"
    link.unlink(missing_ok=True)
    link.symlink_to(facts["secret"])
    return link.read_text()


@harmless
def link_a_file_in(facts: Facts) -> object:
    os.link(facts["secret"], f"{facts['writable']}/linked")
    return Path(facts["writable"], "linked").read_text()


@harmless
def leave_a_program_that_runs_as_the_host(facts: Facts) -> object:
    place = Path(facts["writable"]) / "setuid"
    place.write_text("#!/bin/sh\n")
    place.chmod(0o4755)
    return place.stat().st_mode & 0o4000


@harmless
def create_a_program_that_runs_as_the_host(facts: Facts) -> object:
    os.umask(0)
    descriptor = os.open(f"{facts['writable']}/created", os.O_CREAT | os.O_WRONLY, 0o4755)
    return os.fstat(descriptor).st_mode & 0o4000


@harmless
def make_a_device_of_its_own(facts: Facts) -> object:
    os.mknod(f"{facts['writable']}/null", 0o020666, os.makedev(1, 3))
    return "made"


class HostilePackage(FunctionProvider):
    """Runs one attack, or all of them, each in a child."""

    @tool
    def attack(self, names: list[str], facts: dict[str, object]) -> dict[str, str]:
        """Return what each attack got."""
        return {name: got for name in names if (got := _in_child(ATTACKS[name], facts))}

    @tool
    def pid(self) -> int:
        """Return the id of this process."""
        return os.getpid()


def _in_child(attack: Attack, facts: Facts) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            got = attack(facts)
            os.write(writing, str(got if got else "").encode()[:200])
        except BaseException as error:
            print(f"{attack.__name__}: {type(error).__name__} {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        got = pipe.read().decode("utf-8", "replace")
    os.waitpid(child, 0)
    return got
