"""What a hostile package tries: each attack returns a proof of what it got, and nothing if it was refused.

An attack is a function of the facts that a test gives: paths, ports and ids of the host. It runs in a child process, so
that one which damages its process is not the end of the others. `HARMLESS` ones are also run without confinement,
where they have to succeed: an attack that cannot succeed proves nothing.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Mapping
from typing import Any

Facts = Mapping[str, Any]
Attack = Callable[[Facts], object]
ATTACKS: dict[str, Attack] = {}
HARMLESS: set[str] = set()
X86 = platform.machine() == "x86_64"


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
