"""The filter of a confined process's system calls: a program for the kernel, which checks each call (seccomp).

It refuses what reaches around the namespaces, what has been the way into many kernels, and what takes memory that no
bound counts. The library for this, libseccomp, has no maintained binding on PyPI; the program is a list of comparisons:

    load the architecture    another one: refuse        (a 32-bit call has other numbers)
    load the number          beyond the known: refuse   (a call that a newer kernel has)
    for each refused number  equal: refuse
    for `clone`              with a flag of a new namespace: refuse
    for each that has a mode with the bits of setuid or setgid: refuse
    for `socket`             of another family than Unix and internet: refuse
    for `fcntl`              a lease, or a longer pipe: refuse
    for `setsockopt`         the size of a buffer: do nothing, and say that it is done
    allow

`clone3` and `openat2` are refused as unknown: what they are to do is in memory, where a filter cannot look. Libraries
then use `clone` and `openat`. A file that another user runs as the host's user would be a way out of a granted folder.
Some things the kernel counts for each user, and the provider is the host's user: it would take all 128 instances of
inotify, or all memory of pipes, from the host. A lease holds up for 45 s who opens a file.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_INSTRUCTION = struct.Struct("=HBBI")
"""`struct sock_filter` of linux/filter.h: code, jump if true, jump if false, constant."""
_LOAD, _EQUAL, _GREATER_EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_REFUSE, _DONE = 0x00050000, 0
"""The answer of an error, and the one that is none: the call does nothing, and returns 0."""
_NUMBER, _ARCHITECTURE, _ARGUMENTS, _ARGUMENT = 0, 4, 16, 8
"""Offsets in `struct seccomp_data` and its size of an argument, whose low half comes first on both architectures."""
_CREATES = 0o20000100
"""O_CREAT, and the bit that O_TMPFILE has for itself: without them there is no mode."""
_SETUID_SETGID = 0o6000
_FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6: a vsock, for one, reaches the machine around a virtual one through every namespace."""
_OF_FILES = (1024, 1031)
"""F_SETLEASE, F_SETPIPE_SZ."""
_OF_SOCKETS, _BUFFERS = 1, (7, 8)
"""SOL_SOCKET; SO_SNDBUF, SO_RCVBUF: the host counts each socket as one with the usual buffer. Programs ask for another
one as a hint, and some fail when it is refused."""
_NEW_NAMESPACES = 0x7E020080
"""CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
_BEYOND = 463
"""462, `mseal`, is the last call that is known here; from 424 on they have one number on all architectures."""

_COMMON = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "memfd_secret": 447,
    "set_mempolicy_home_node": 450,
    "statmount": 457,
    "listmount": 458,
    "lsm_get_self_attr": 459,
    "lsm_set_self_attr": 460,
    "lsm_list_modules": 461,
}

_UNKNOWN = (435, 437)
"""clone3, openat2."""


class _Architecture(NamedTuple):
    """`audit` is its AUDIT_ARCH number; x86-64 has a second set of numbers (x32) from `foreign` on.

    `modes`: which argument of a call is a mode, counted from 0. `opens`: the same of calls with flags before the mode.
    """

    audit: int
    clone: int
    socket: int
    fcntl: int
    setsockopt: int
    modes: Mapping[int, int]
    opens: Mapping[int, int]
    refused: Mapping[str, int]
    foreign: int | None = None


_X86_64 = _Architecture(
    audit=0xC000003E,
    clone=56,
    socket=41,
    fcntl=72,
    setsockopt=54,
    modes={85: 1, 90: 1, 91: 1, 133: 1, 259: 2, 268: 2, 452: 2},  # creat chmod fchmod mknod mknodat fchmodat fchmodat2
    opens={2: 2, 257: 3},  # open openat
    foreign=0x40000000,
    refused={
        "shmget": 29,
        "shmat": 30,
        "shmctl": 31,
        "semget": 64,
        "semop": 65,
        "semctl": 66,
        "msgget": 68,
        "msgsnd": 69,
        "msgrcv": 70,
        "msgctl": 71,
        "ptrace": 101,
        "syslog": 103,
        "uselib": 134,
        "personality": 135,
        "ustat": 136,
        "sysfs": 139,
        "vhangup": 153,
        "modify_ldt": 154,
        "pivot_root": 155,
        "_sysctl": 156,
        "adjtimex": 159,
        "chroot": 161,
        "acct": 163,
        "settimeofday": 164,
        "mount": 165,
        "umount2": 166,
        "swapon": 167,
        "swapoff": 168,
        "reboot": 169,
        "sethostname": 170,
        "setdomainname": 171,
        "iopl": 172,
        "ioperm": 173,
        "create_module": 174,
        "init_module": 175,
        "delete_module": 176,
        "quotactl": 179,
        "nfsservctl": 180,
        "lookup_dcookie": 212,
        "clock_settime": 227,
        "mbind": 237,
        "set_mempolicy": 238,
        "get_mempolicy": 239,
        "mq_open": 240,
        "kexec_load": 246,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "inotify_init": 253,
        "migrate_pages": 256,
        "unshare": 272,
        "move_pages": 279,
        "perf_event_open": 298,
        "fanotify_init": 300,
        "name_to_handle_at": 303,
        "open_by_handle_at": 304,
        "inotify_init1": 294,
        "clock_adjtime": 305,
        "setns": 308,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "kcmp": 312,
        "finit_module": 313,
        "memfd_create": 319,
        "kexec_file_load": 320,
        "bpf": 321,
        "userfaultfd": 323,
        **_COMMON,
    },
)
_AARCH64 = _Architecture(
    audit=0xC00000B7,
    clone=220,
    socket=198,
    fcntl=25,
    setsockopt=208,
    modes={33: 2, 52: 1, 53: 2, 452: 2},  # mknodat fchmod fchmodat fchmodat2
    opens={56: 3},  # openat
    refused={
        "lookup_dcookie": 18,
        "inotify_init1": 26,
        "umount2": 39,
        "mount": 40,
        "pivot_root": 41,
        "nfsservctl": 42,
        "chroot": 51,
        "vhangup": 58,
        "quotactl": 60,
        "acct": 89,
        "personality": 92,
        "unshare": 97,
        "kexec_load": 104,
        "init_module": 105,
        "delete_module": 106,
        "clock_settime": 112,
        "syslog": 116,
        "ptrace": 117,
        "reboot": 142,
        "sethostname": 161,
        "setdomainname": 162,
        "settimeofday": 170,
        "adjtimex": 171,
        "mq_open": 180,
        "msgget": 186,
        "msgctl": 187,
        "msgrcv": 188,
        "msgsnd": 189,
        "semget": 190,
        "semctl": 191,
        "semtimedop": 192,
        "semop": 193,
        "shmget": 194,
        "shmctl": 195,
        "shmat": 196,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "swapon": 224,
        "swapoff": 225,
        "mbind": 235,
        "get_mempolicy": 236,
        "set_mempolicy": 237,
        "migrate_pages": 238,
        "move_pages": 239,
        "perf_event_open": 241,
        "fanotify_init": 262,
        "name_to_handle_at": 264,
        "open_by_handle_at": 265,
        "clock_adjtime": 266,
        "setns": 268,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
        "kcmp": 272,
        "finit_module": 273,
        "memfd_create": 279,
        "bpf": 280,
        "userfaultfd": 282,
        "kexec_file_load": 294,
        **_COMMON,
    },
)
_ARCHITECTURES = {"x86_64": _X86_64, "aarch64": _AARCH64}


def has_filter() -> bool:
    """Return whether there is a filter for the architecture of the host."""
    return platform.machine() in _ARCHITECTURES


def filter_program(machine: str | None = None) -> bytes:
    """Return the filter, as the kernel takes it, for this architecture, by default that of the host.

    Raises `KeyError` for an architecture without one.
    """
    its = _ARCHITECTURES[machine or platform.machine()]
    program = [_make(_LOAD, _ARCHITECTURE), *_refuse_unless(its.audit, errno.EPERM), _make(_LOAD, _NUMBER)]
    if its.foreign is not None:
        program += _refuse_if(_GREATER_EQUAL, its.foreign, errno.ENOSYS)
    program += _refuse_if(_GREATER_EQUAL, _BEYOND, errno.ENOSYS)
    for number in _UNKNOWN:
        program += _refuse_if(_EQUAL, number, errno.ENOSYS)
    for number in sorted(its.refused.values()):
        program += _refuse_if(_EQUAL, number, errno.EPERM)
    namespaces = _refuse_bits(0, _NEW_NAMESPACES)
    program += _for_call(its.clone, namespaces)
    for number, place in its.modes.items():
        program += _for_call(number, _refuse_bits(place, _SETUID_SETGID))
    for number, place in its.opens.items():
        refusal = _refuse_bits(place, _SETUID_SETGID)
        creates = [_load_argument(place - 1), _make(_ANY_BIT, _CREATES, 0, len(refusal))]
        program += _for_call(number, [*creates, *refusal])
    families = [_load_argument(0)]
    # Each known family jumps to the end, over the refusal.
    families += [_make(_EQUAL, family, len(_FAMILIES) - place, 0) for place, family in enumerate(_FAMILIES)]
    families += [_make(_RETURN, _REFUSE | errno.EAFNOSUPPORT)]
    program += _for_call(its.socket, families)
    program += _for_call(its.fcntl, _answer_to(1, _OF_FILES, errno.EPERM))
    sizes = _answer_to(2, _BUFFERS, _DONE)
    program += _for_call(its.setsockopt, [_load_argument(1), _make(_EQUAL, _OF_SOCKETS, 0, len(sizes)), *sizes])
    return b"".join([*program, _make(_RETURN, _ALLOW)])


def refused_numbers(machine: str) -> Mapping[str, int]:
    """Return the numbers of the calls that are refused whatever their arguments, by name."""
    return _ARCHITECTURES[machine].refused


def _make(code: int, constant: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return _INSTRUCTION.pack(code, if_true, if_false, constant)


def _load_argument(place: int) -> bytes:
    return _make(_LOAD, _ARGUMENTS + place * _ARGUMENT)


def _for_call(number: int, checks: list[bytes]) -> list[bytes]:
    """Return these checks for one call, and nothing for the others; the number is loaded before and after."""
    return [_make(_EQUAL, number, 0, len(checks) + 1), *checks, _make(_LOAD, _NUMBER)]


def _refuse_bits(place: int, bits: int) -> list[bytes]:
    return [_load_argument(place), *_refuse_if(_ANY_BIT, bits, errno.EPERM)]


def _answer_to(place: int, values: Sequence[int], error: int) -> list[bytes]:
    """Return the answer to a call with one of these values as its argument."""
    return [_load_argument(place), *(each for value in values for each in _refuse_if(_EQUAL, value, error))]


def _refuse_if(code: int, constant: int, error: int) -> list[bytes]:
    return [_make(code, constant, 0, 1), _make(_RETURN, _REFUSE | error)]


def _refuse_unless(constant: int, error: int) -> list[bytes]:
    return [_make(_EQUAL, constant, 1, 0), _make(_RETURN, _REFUSE | error)]
