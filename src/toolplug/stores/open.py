"""Opening the store that the configuration's `store` names."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Protocol
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from typing_extensions import TypedDict

from toolplug.errors import StoreMisused, StoreUnavailable
from toolplug.runtime.backoff import pause_after
from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import Store

BUILT_IN = ("memory", "sqlite")
"""The schemes of the stores of toolplug itself."""
_HERE = Path()
_SQLITE = "toolplug.sqlite.store"
MISSING = (
    "a sqlite store needs the extra: pip install 'toolplug[sqlite]'; or write store: memory://, which keeps nothing"
)
"""aiosqlite is an extra, so the module that uses it is imported for such a store only."""

ENTER_S = 30.0
"""How long a host that starts tries to open a store that is unavailable."""
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 5.0
_LOG = logging.getLogger("toolplug.stores")


class StoreOpener(Protocol):
    """Returns the store that a URL of a plugin's scheme names, as the hook `stores` gives it.

    Called when the configuration is read, to check the URL, and for each use of the store: nothing is connected before
    `async with`. `folder` is the one for relative paths. Raises `StoreMisused` for an invalid URL, which the message
    must not contain, as it may hold a password.

    ```python
    from collections.abc import Mapping
    from pathlib import Path

    from toolplug import hookimpl
    from toolplug.stores import MemoryStore, Store, StoreOpener

    def open_mine(url: str, *, folder: Path) -> Store:
        return MemoryStore()

    @hookimpl
    def stores() -> Mapping[str, StoreOpener]:
        return {"mine": open_mine}
    ```
    """

    def __call__(self, url: str, *, folder: Path) -> Store:
        """Return the store, which is not open yet."""
        ...


def store_scheme(url: str) -> str:
    """Return the scheme of a store's URL, empty for other text."""
    return urlsplit(url).scheme


def open_store(
    url: str, *, folder: Path = _HERE, clock: Callable[[], float] = time.time, shared: bool = False
) -> Store:
    """Return the built-in store that a URL names. It is opened by `async with`; no file is touched before.

    `memory://`, `sqlite:///./relative/to/the/folder.db` or `sqlite:////absolute.db`, the latter two with
    `?synchronous=normal|full` and `&shared=true`. Relative paths start at `folder`, by default the working directory.
    `shared` is the option of that name, where the URL has none.

    Raises `StoreMisused` for any other URL, and for `sqlite:` if aiosqlite is not installed. The error does not contain
    the URL, which may hold a secret.
    """
    parts = urlsplit(url)
    if parts.scheme == "memory":
        if parts.netloc or parts.path or parts.query or parts.fragment:
            raise StoreMisused("the memory store takes no host, path or options: write memory://")
        return MemoryStore(clock=clock)
    if parts.scheme == "sqlite":
        path, options = folder / _path(url), _options(parts)
        try:
            sqlite = import_module(_SQLITE)
        # `from None`: the name of the missing module would only hide what to install.
        except ModuleNotFoundError:
            raise StoreMisused(MISSING) from None
        return sqlite.SqliteStore(path, clock=clock, **({"shared": shared} | options))
    what = f"unknown store {parts.scheme!r}" if parts.scheme else "a URL without a scheme"
    raise StoreMisused(f"{what}; known: memory://, sqlite:///./state.db, sqlite:////var/lib/state.db")


async def enter_with_retries(store: Store, *, within_s: float = ENTER_S) -> None:
    """Open a store as `async with` does, and again while it is unavailable, for `within_s` seconds; say so each time.

    A server of records often starts with its hosts. A file that cannot be opened is tried once. Raises `StoreError`.
    """
    loop = asyncio.get_running_loop()
    give_up_at, failures = loop.time() + within_s, 0
    while True:
        try:
            await store.__aenter__()
        except StoreUnavailable as error:
            left_s = give_up_at - loop.time()
            failures += 1
            # A folder that cannot be written to will not be writable in half a second either.
            if left_s <= 0 or isinstance(error.__cause__, OSError):
                raise
            _LOG.warning("the store cannot be opened yet: %s; trying again, for %.0f s more", error, left_s)
        else:
            return
        await asyncio.sleep(min(pause_after(failures, _FIRST_PAUSE_S, _LONGEST_PAUSE_S), left_s))


def store_file(url: str, *, folder: Path = _HERE) -> Path | None:
    """Return the path of the store's file, which may not exist yet; None for a store without a file."""
    return folder / _path(url) if store_scheme(url) == "sqlite" else None


def _path(url: str) -> Path:
    parts = urlsplit(url)
    # `sqlite:./state.db` has no host either, and its first character is no slash to take away.
    if not url.partition(":")[2].startswith("///") or parts.fragment or len(parts.path) < 2:
        raise StoreMisused("a sqlite store names a file: sqlite:///./state.db, or sqlite:////var/lib/state.db")
    return Path(unquote(parts.path[1:]))


class _Options(TypedDict, total=False):
    synchronous: str
    shared: bool


def _options(parts: SplitResult) -> _Options:
    options: _Options = {}
    given = parse_qsl(parts.query, keep_blank_values=True)
    for name, value in given:
        match name, value:
            case "synchronous", "normal" | "full":
                options["synchronous"] = value
            case "shared", "true":
                options["shared"] = True
            case _:
                pass
    if len(options) < len(given):
        raise StoreMisused(
            f"options {parts.query!r} of a sqlite store; known, each once: synchronous=normal, synchronous=full,"
            " shared=true"
        )
    return options
