"""Why bubblewrap does not start here, and the one option that would let it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")
_SYSCTL = "/proc/sys/"


class ConfinementRefusal(NamedTuple):
    """Why a process cannot be confined, and what to do."""

    reason: str
    fix: str


def _read(path: str) -> str | None:
    """Return the content of a file, empty if it cannot be read; None if there is none."""
    place = Path(path)
    try:
        return place.read_text("utf-8", "replace").strip() if place.exists() else None
    except OSError:
        return ""


def explain(failure: str, read: Callable[[str], str | None] = _read) -> ConfinementRefusal:
    """Return what the words of bubblewrap mean on this machine; `read` returns the content of a file of it."""
    last = next((line.strip() for line in reversed(failure.splitlines()) if line.strip()), "no words")
    reason = f"bubblewrap does not start: {last[:300]}"
    in_container = any(read(path) is not None for path in _CONTAINER_FILES)
    if "mount proc" in last:
        option = "--security-opt systempaths=unconfined" if in_container else "mount /proc without anything over it"
        return ConfinementRefusal(reason, f"start the container with {option}" if in_container else option)
    if not any(word in last for word in ("namespace", "uid map", "Operation not permitted", "Permission denied")):
        return ConfinementRefusal(reason, "update bubblewrap to 0.8 or later, and see its words")
    if in_container:
        return ConfinementRefusal(reason, _container_option(read))
    for name, off, fix in (
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
    ):
        if read(_SYSCTL + name) == off:
            return ConfinementRefusal(reason, f"sysctl -w {fix}")
    return ConfinementRefusal(
        reason, "let this user make user namespaces: a security module of this machine refuses them"
    )


def _container_option(read: Callable[[str], str | None]) -> str:
    """Return the option of a container whose engine refuses namespaces: by its filter, or by AppArmor's profile."""
    filtered = "Seccomp:\t2" in (read("/proc/self/status") or "")
    option = "seccomp=unconfined" if filtered else "apparmor=unconfined"
    return f"start the container with --security-opt {option}"
