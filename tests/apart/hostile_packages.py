"""What a hostile package tries: each attack returns a proof of what it got, and nothing if it was refused.

An attack is a function of the facts that a test gives: paths, ports and ids of the host. It runs in a child process, so
that one which damages its process is not the end of the others. `HARMLESS` ones are also run without confinement,
where they have to succeed: an attack that cannot succeed proves nothing.
"""

from __future__ import annotations

import array
import ctypes
import errno
import mmap
import os
import platform
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolplug import FunctionProvider, ProviderContext, tool

Facts = Mapping[str, Any]
Attack = Callable[[Facts], object]
ATTACKS: dict[str, Attack] = {}
HARMLESS: set[str] = set()
_X86 = platform.machine() == "x86_64"


def harmless(attack: Attack) -> Attack:
    HARMLESS.add(attack.__name__)
    return dangerous(attack)


def dangerous(attack: Attack) -> Attack:
    ATTACKS[attack.__name__] = attack
    return attack


def system_call(number: int, *given: object) -> int:
    """Make a system call, and raise `OSError` as the kernel has it."""
    found = ctypes.CDLL(None, use_errno=True).syscall(number, *given)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


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


# The network


@harmless
def reach_the_loopback(facts: Facts) -> object:
    with socket.create_connection(("127.0.0.1", facts["port"]), 2) as there:
        return there.recv(99)


@harmless
def reach_an_address_of_the_host(facts: Facts) -> object:
    with socket.create_connection((facts["address"], facts["port"]), 2) as there:
        return there.recv(99)


@harmless
def ask_by_datagram(facts: Facts) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(2)
        asking.sendto(b"?", ("127.0.0.1", facts["datagrams"]))
        return asking.recv(99)


@harmless
def reach_an_abstract_socket(facts: Facts) -> object:
    with socket.socket(socket.AF_UNIX) as there:
        there.settimeout(2)
        there.connect(f"\0{facts['token']}")
        return there.recv(99)


@harmless
def reach_a_socket_by_its_path(facts: Facts) -> object:
    with socket.socket(socket.AF_UNIX) as there:
        there.settimeout(2)
        there.connect(facts["socket"])
        return there.recv(99)


@harmless
def see_the_interfaces_of_the_host(facts: Facts) -> object:
    return len(socket.if_nameindex()) > 1


@dangerous
def reach_the_metadata_of_a_cloud(facts: Facts) -> object:
    with socket.create_connection(("169.254.169.254", 80), 1):
        return "connected"


@harmless
def open_a_socket_of_the_hypervisor(facts: Facts) -> object:
    return socket.socket(40, socket.SOCK_STREAM)


@harmless
def watch_the_wire(facts: Facts) -> object:
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)


@harmless
def send_forged_packets(facts: Facts) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)


@harmless
def talk_to_the_kernel_of_routes(facts: Facts) -> object:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)


@dangerous
def have_the_proxy_reach_a_host_that_is_not_granted(facts: Facts) -> object:
    return _through_proxy(f"127.0.0.1:{facts['port']}")


@dangerous
def have_the_proxy_reach_a_granted_name_inside(facts: Facts) -> object:
    return _through_proxy(f"localhost:{facts['port']}")


@dangerous
def have_the_proxy_split_a_request(facts: Facts) -> object:
    return _through_proxy(f"granted.example:443 HTTP/1.1\r\n\r\nCONNECT 127.0.0.1:{facts['port']}")


def _through_proxy(target: str) -> object:
    _, _, place = os.environ.get("HTTPS_PROXY", "").rpartition("/")
    host, _, port = place.partition(":")
    with socket.create_connection((host or "127.0.0.1", int(port or 1)), 2) as there:
        there.settimeout(5)
        there.sendall(f"CONNECT {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        return b"" if b" 200 " not in (answer := there.recv(999)) else answer


# Other processes


@harmless
def signal_the_host(facts: Facts) -> object:
    os.kill(facts["host"], 0)
    return "it could be killed"


@harmless
def kill_a_process_of_the_host(facts: Facts) -> object:
    os.kill(facts["victim"], signal.SIGUSR1)
    return "signalled"


@harmless
def change_the_limits_of_the_host(facts: Facts) -> object:
    return resource.prlimit(facts["host"], resource.RLIMIT_NOFILE)


@harmless
def read_memory_of_the_victim(facts: Facts) -> object:
    number = 310 if _X86 else 270
    try:
        system_call(number, facts["victim"], None, 0, None, 0, 0)
    except OSError as error:
        return error.errno == errno.EFAULT
    return "read"


@harmless
def trace_a_process(facts: Facts) -> object:
    system_call(101 if _X86 else 117, 0, 0, 0, 0)  # PTRACE_TRACEME
    return "traced"


@harmless
def see_processes_of_the_host(facts: Facts) -> object:
    return os.path.exists(f"/proc/{facts['victim']}/stat") and len(_numbers()) > 10


def _numbers() -> list[str]:
    return [each for each in os.listdir("/proc") if each.isdigit()]


# The kernel


@dangerous
def mount_a_folder(facts: Facts) -> object:
    return system_call(165 if _X86 else 40, b"none", b"/tmp", b"tmpfs", 0, None)


@harmless
def make_a_user_namespace(facts: Facts) -> object:
    return system_call(272 if _X86 else 97, 0x10000000) == 0


@harmless
def clone_into_a_user_namespace(facts: Facts) -> object:
    pid = system_call(56 if _X86 else 220, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


@dangerous
def change_the_root(facts: Facts) -> object:
    os.chroot("/tmp")
    return "changed"


@harmless
def use_a_ring_of_the_kernel(facts: Facts) -> object:
    return system_call(425, 1, ctypes.create_string_buffer(256))


@harmless
def use_keys_of_the_kernel(facts: Facts) -> object:
    return system_call(250 if _X86 else 219, 0, -3, 1)


@harmless
def load_a_program_of_the_kernel(facts: Facts) -> object:
    return system_call(321 if _X86 else 280, 0, struct.pack("IIII", 2, 4, 4, 1), 16)


@harmless
def handle_faults_of_pages(facts: Facts) -> object:
    return system_call(323 if _X86 else 282, 0)


@harmless
def hide_memory_in_a_descriptor(facts: Facts) -> object:
    return os.memfd_create("hidden")


@harmless
def hide_memory_in_a_segment(facts: Facts) -> object:
    number = system_call(29 if _X86 else 194, 0, 4096, 0o1600)
    system_call(31 if _X86 else 195, number, 0, None)
    return number


@dangerous
def measure_the_machine(facts: Facts) -> object:
    return system_call(298 if _X86 else 241, bytes(array.array("I", [0] * 32)), 0, -1, -1, 0)


@dangerous
def become_root(facts: Facts) -> object:
    os.setuid(0)
    return "root"


@dangerous
def have_any_right(facts: Facts) -> object:
    lines = Path("/proc/self/status").read_text().splitlines()
    return [line for line in lines if line.startswith("Cap") and int(line.split()[1], 16)]


@dangerous
def raise_a_limit(facts: Facts) -> object:
    for name in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE):
        try:
            resource.setrlimit(name, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except (OSError, ValueError):
            continue
        return "raised"
    return ""


@dangerous
def call_what_a_newer_kernel_has(facts: Facts) -> object:
    for number in (463, 500, 0x40000000 + 1):
        try:
            system_call(number, 0, 0, 0)
        except OSError as error:
            if error.errno == errno.ENOSYS:
                continue
        return f"call {number}"
    return ""


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


class Damaging(FunctionProvider):
    """Does what a machine suffers from, within bounds that a test sets low."""

    async def start(self, site: ProviderContext) -> None:
        self.site = site

    @tool
    def pid(self) -> int:
        """Return the id of this process, as it sees it."""
        return os.getpid()

    @tool
    def damage(self, how: str) -> str:
        """Do it, and return what was reached."""
        return str(getattr(self, f"_{how}")())

    def _fork(self) -> int:
        for _ in range(400):
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
        time.sleep(5)
        return 400

    def _zombies(self) -> int:
        for _ in range(400):
            if os.fork() == 0:
                os._exit(0)
        time.sleep(5)
        return 400

    def _threads(self) -> int:
        for _ in range(400):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        time.sleep(5)
        return 400

    def _eat(self) -> int:
        held = bytearray()
        while len(held) < 400 * _MIB:
            held += b"x" * _MIB
            time.sleep(0.002)
        time.sleep(5)
        return len(held)

    def _eat_shared(self) -> int:
        held = mmap.mmap(-1, 400 * _MIB)
        for place in range(0, len(held), 4096):
            held[place] = 1
        time.sleep(5)
        return len(held)

    def _eat_in_children(self) -> int:
        for _ in range(8):
            if os.fork() == 0:
                held = b"x" * (40 * _MIB)
                time.sleep(60)
                os._exit(len(held) % 7)
        time.sleep(5)
        return 8

    def _fill_state(self) -> int:
        return self._fill(self.site.state_dir)

    def _fill_tmp(self) -> int:
        return self._fill(Path("/tmp"))

    def _fill_shared(self) -> int:
        return self._fill(Path("/dev/shm"))

    def _fill(self, folder: Path) -> int:
        for number in range(30):
            (folder / str(number)).write_bytes(b"x" * (2 * _MIB))
            time.sleep(0.02)
        time.sleep(5)
        return 30

    def _one_large_file(self) -> int:
        with open(self.site.state_dir / "large", "wb") as file:
            return sum(file.write(b"x" * _MIB) for _ in range(60))

    def _many_files(self) -> int:
        for number in range(25_000):
            (self.site.state_dir / str(number)).touch()
        time.sleep(5)
        return 25_000

    def _open_much(self) -> int:
        return len([os.open("/dev/null", os.O_RDONLY) for _ in range(600)])

    def _die(self) -> int:
        os._exit(3)

    def _crash(self) -> int:
        return ctypes.string_at(0)[0]

    def _kill_all(self) -> int:
        os.kill(-1, signal.SIGKILL)
        return 1

    def _stop_all(self) -> int:
        os.kill(0, signal.SIGSTOP)
        return 1

    def _stay(self) -> int:
        """Start a process that leaves its session, and end."""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for number in range(3, 200):
                    with suppress(OSError):
                        os.close(number)
                time.sleep(120)
            os._exit(0)
        time.sleep(0.5)
        os._exit(4)

    def _loop(self) -> int:
        while True:
            pass


_MIB = 1024 * 1024
