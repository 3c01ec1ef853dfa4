"""Attacks of a hostile package on what it has in common with the host: its user, its processors, its terminal."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

from tests.apart.attacks import X86, Facts, dangerous, harmless, system_call

# What the kernel counts for each user, who is the host's


@dangerous
def take_the_watches_of_the_user(facts: Facts) -> object:
    return system_call(294 if X86 else 26, 0)


@harmless
def hold_up_who_opens_a_file(facts: Facts) -> object:
    place = Path(facts["writable"]) / "leased"
    place.write_text("x")
    descriptor = os.open(place, os.O_RDWR)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return "leased"


@harmless
def take_the_memory_of_pipes(facts: Facts) -> object:
    _, writing = os.pipe()
    before = fcntl.fcntl(writing, 1032)
    return fcntl.fcntl(writing, 1031, 4 * before) > before


@harmless
def have_a_longer_buffer_than_is_counted(facts: Facts) -> object:
    one, two = socket.socketpair()
    with one, two:
        longer = 0
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            before = one.getsockopt(socket.SOL_SOCKET, option)
            one.setsockopt(socket.SOL_SOCKET, option, 64 * before)
            longer += one.getsockopt(socket.SOL_SOCKET, option) > before
        return longer


@harmless
def queue_signals_of_the_user(facts: Facts) -> object:
    for number in range(2_000):
        try:
            system_call(222 if X86 else 107, 1, None, ctypes.byref(ctypes.c_void_p()))  # timer_create
        except OSError:
            return number > 1_024
    return "2000 timers"


# Processors


@harmless
def slow_a_process_of_the_host(facts: Facts) -> object:
    os.setpriority(os.PRIO_PROCESS, facts["victim"], 1)
    return "slowed"


@harmless
def have_a_process_of_the_host_on_one_processor(facts: Facts) -> object:
    os.sched_setaffinity(facts["victim"], os.sched_getaffinity(facts["victim"]))
    return "moved"


@dangerous
def go_before_all_others(facts: Facts) -> object:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return "first"


@dangerous
def have_others_ended_first_when_memory_is_short(facts: Facts) -> object:
    return Path("/proc/self/oom_score_adj").write_text("-1000")


# Rights


@dangerous
def give_a_program_rights(facts: Facts) -> object:
    place = Path(facts["writable"]) / "able"
    place.write_text("#!/bin/sh\n")
    rights = struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0)
    os.setxattr(place, "security.capability", rights)
    return "given"


@dangerous
def open_a_file_by_its_number(facts: Facts) -> object:
    # The root of most file systems is 2.
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 8, 1) + struct.pack("=Q", 2))
    return system_call(304 if X86 else 265, os.open(facts["writable"], os.O_RDONLY), handle, os.O_RDONLY)


@dangerous
def be_another_user_to_a_peer(facts: Facts) -> object:
    one, two = socket.socketpair()
    with one, two:
        two.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack("3i", os.getpid(), 0, 0))])
        return "believed"


# The terminal


@harmless
def write_to_a_terminal_of_the_host(facts: Facts) -> object:
    descriptor = os.open(facts["terminal"], os.O_WRONLY | os.O_NOCTTY)
    return os.write(descriptor, b"\x1b]0;owned\x07")


@dangerous
def type_into_the_terminal(facts: Facts) -> object:
    return fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), 0x5412, b"x")  # TIOCSTI
