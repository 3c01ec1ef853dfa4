"""Whether a provider has been started, by a registry or by whoever made it: nobody starts it twice."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps

from toolplug.providers.site import Site

_STARTED = "_toolplug_started"

Start = Callable[[object, Site], Awaitable[None]]


def remember_start(kind: type) -> None:
    """Make the class's own `start` leave a mark on its instance when it has succeeded."""
    start: Start | None = vars(kind).get("start")
    if not inspect.iscoroutinefunction(start):
        return

    @wraps(start)
    async def remembered(self: object, site: Site) -> None:
        await start(self, site)
        vars(self)[_STARTED] = True

    setattr(kind, "start", remembered)  # noqa: B010  a class takes no item


def is_started(provider: object) -> bool:
    """Has its `start` succeeded since it was made or closed."""
    return vars(provider).get(_STARTED, False)


def forget_start(provider: object) -> None:
    """It has been closed: it may be started again."""
    vars(provider).pop(_STARTED, None)
