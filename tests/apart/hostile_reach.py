"""Attacks of a hostile package on the network, on other processes and on the kernel."""

from __future__ import annotations

import array
import ctypes
import errno
import os
import resource
import signal
import socket
import struct
from pathlib import Path

from tests.apart.attacks import X86, Facts, dangerous, harmless, system_call

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
    number = 310 if X86 else 270
    try:
        system_call(number, facts["victim"], None, 0, None, 0, 0)
    except OSError as error:
        return error.errno == errno.EFAULT
    return "read"


@harmless
def trace_a_process(facts: Facts) -> object:
    system_call(101 if X86 else 117, 0, 0, 0, 0)  # PTRACE_TRACEME
    return "traced"


@harmless
def see_processes_of_the_host(facts: Facts) -> object:
    return os.path.exists(f"/proc/{facts['victim']}/stat") and len(_numbers()) > 10


def _numbers() -> list[str]:
    return [each for each in os.listdir("/proc") if each.isdigit()]


# The kernel


@dangerous
def mount_a_folder(facts: Facts) -> object:
    return system_call(165 if X86 else 40, b"none", b"/tmp", b"tmpfs", 0, None)


@harmless
def make_a_user_namespace(facts: Facts) -> object:
    return system_call(272 if X86 else 97, 0x10000000) == 0


@harmless
def clone_into_a_user_namespace(facts: Facts) -> object:
    pid = system_call(56 if X86 else 220, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
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
    return system_call(250 if X86 else 219, 0, -3, 1)


@harmless
def load_a_program_of_the_kernel(facts: Facts) -> object:
    return system_call(321 if X86 else 280, 0, struct.pack("IIII", 2, 4, 4, 1), 16)


@harmless
def handle_faults_of_pages(facts: Facts) -> object:
    return system_call(323 if X86 else 282, 0)


@harmless
def hide_memory_in_a_descriptor(facts: Facts) -> object:
    return os.memfd_create("hidden")


@harmless
def hide_memory_in_a_segment(facts: Facts) -> object:
    number = system_call(29 if X86 else 194, 0, 4096, 0o1600)
    system_call(31 if X86 else 195, number, 0, None)
    return number


@dangerous
def measure_the_machine(facts: Facts) -> object:
    return system_call(298 if X86 else 241, bytes(array.array("I", [0] * 32)), 0, -1, -1, 0)


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
