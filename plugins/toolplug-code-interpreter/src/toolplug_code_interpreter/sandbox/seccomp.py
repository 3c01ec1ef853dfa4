"""The system calls that a container may not make, as a filter of libseccomp.

Namespaces, rlimits and the supervision of memory do the isolation. The filter takes away what they do not count (memory
that belongs to no process: `memfd_create`, System V memory and queues, io_uring) or do not cover (sockets other than
Unix and IP, such as `AF_VSOCK`, which ignores network namespaces), what could send `SIGCONT` to the processes of a
container that is stopped (timers, files that signal), and what only widens the kernel's surface: further namespaces,
mounts, tracing, keys, BPF, performance counters.
"""

from __future__ import annotations

import ctypes
import errno
import os
from ctypes import c_char_p, c_int, c_uint, c_uint32, c_uint64, c_void_p

from toolplug_code_interpreter.sandbox.interpreter import Unavailable

_LIBRARY = "libseccomp.so.2"
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_GREATER_EQUAL, _MASKED_EQUAL = 5, 7
_UNKNOWN = -1

_REFUSED = """
    acct add_key bpf chroot clone3 delete_module fanotify_init finit_module fsconfig fsmount fsopen fspick
    get_mempolicy init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load
    kexec_load keyctl lookup_dcookie mbind memfd_create memfd_secret migrate_pages mount mount_setattr
    move_mount move_pages mq_open msgctl msgget msgrcv msgsnd name_to_handle_at nfsservctl open_by_handle_at
    open_tree perf_event_open personality pidfd_getfd pivot_root process_madvise process_vm_readv
    process_vm_writev ptrace quotactl quotactl_fd reboot request_key semctl semget semop semtimedop
    set_mempolicy set_mempolicy_home_node setns shmat shmctl shmget swapoff swapon syslog timer_create umount
    umount2 unshare uselib userfaultfd vhangup vmsplice
"""
_NOT_THERE = {"clone3"}
"""Answered as a kernel without them would, so that the C library falls back to a call whose flags can be read."""

_NEW_NAMESPACES = (0x00000080, 0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_F_SETSIG = 10


class _Comparison(ctypes.Structure):
    _fields_ = (("arg", c_uint), ("op", c_int), ("a", c_uint64), ("b", c_uint64))


def compiled_filter() -> bytes:
    """Return the program that bubblewrap loads. Raises `Unavailable` without libseccomp."""
    library = _library()
    context = library.seccomp_init(c_uint32(_ALLOW))
    if not context:
        raise Unavailable(f"{_LIBRARY} cannot make a filter for this machine")
    try:
        for name in _REFUSED.split():
            _refuse(library, context, name, errno.ENOSYS if name in _NOT_THERE else errno.EPERM)
        for flag in _NEW_NAMESPACES:
            _refuse(library, context, "clone", errno.EPERM, _Comparison(0, _MASKED_EQUAL, flag, flag))
        _refuse_families(library, context)
        for request in (_TIOCSTI, _TIOCLINUX):
            _refuse(library, context, "ioctl", errno.EPERM, _Comparison(1, _MASKED_EQUAL, 0xFFFFFFFF, request))
        _refuse(library, context, "fcntl", errno.EPERM, _Comparison(1, _MASKED_EQUAL, 0xFFFFFFFF, _F_SETSIG))
        return _export(library, context)
    finally:
        library.seccomp_release(context)


def _refuse_families(library: ctypes.CDLL, context: c_void_p) -> None:
    for family in range(_AF_INET6):
        if family not in (_AF_UNIX, _AF_INET):
            _refuse(library, context, "socket", errno.EAFNOSUPPORT, _Comparison(0, _MASKED_EQUAL, 0xFFFFFFFF, family))
    _refuse(library, context, "socket", errno.EAFNOSUPPORT, _Comparison(0, _GREATER_EQUAL, _AF_INET6 + 1, 0))


def _refuse(library: ctypes.CDLL, context: c_void_p, name: str, code: int, *when: _Comparison) -> None:
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number == _UNKNOWN:
        return  # this machine, or its libseccomp, does not know the call
    rules = (_Comparison * len(when))(*when)
    failed = library.seccomp_rule_add_array(context, c_uint32(_ERRNO | code), number, len(when), rules)
    if failed and number >= 0:
        raise Unavailable(f"{_LIBRARY} cannot refuse the system call {name}: {os.strerror(-failed)}")


def _export(library: ctypes.CDLL, context: c_void_p) -> bytes:
    file = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    try:
        failed = library.seccomp_export_bpf(context, file)
        if failed:
            raise Unavailable(f"{_LIBRARY} cannot write its filter: {os.strerror(-failed)}")
        return os.pread(file, os.fstat(file).st_size, 0)
    finally:
        os.close(file)


def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise Unavailable(
            f"{_LIBRARY} is not installed: `apt-get install libseccomp2`, or the package libseccomp of your system"
        ) from None
    library.seccomp_init.restype = c_void_p
    library.seccomp_release.argtypes = (c_void_p,)
    library.seccomp_syscall_resolve_name.argtypes = (c_char_p,)
    library.seccomp_rule_add_array.argtypes = (c_void_p, c_uint32, c_int, c_uint, c_void_p)
    library.seccomp_export_bpf.argtypes = (c_void_p, c_int)
    return library
