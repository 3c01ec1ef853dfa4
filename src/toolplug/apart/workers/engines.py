"""Engines: packages that start the workers of an entry, and carry their messages in place of a WebSocket.

The entry point `NAME` in `toolplug.engines` is for entries with `run: {NAME: {…}}`. It is a function of the key of the
entry and of those settings, which raises `ValueError` for what is wrong with them, and returns an `Engine`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, cast

from toolplug.apart.workers.link import Receive, Send
from toolplug.config.run_settings import RunSettings, find_engines
from toolplug.crashes import outline_error
from toolplug.errors import ProviderError
from toolplug.providers.entry import ProviderState

Serve = Callable[[Receive, Send], Awaitable[None]]
"""Serves with one worker until it is gone.

`receive` returns its next message, and `send` sends it one: mappings with the `type` `websocket.receive`, with `bytes`
or `text`, and `websocket.send`; `websocket.disconnect` is the last one. The worker's side is a `WorkerSession`.
"""


class Engine(Protocol):
    """Starts the workers of one entry, again when one of them ends.

    ```python
    from collections.abc import Mapping

    from toolplug.apart import Engine, Serve

    class OneWorker:
        def __init__(self, command: str) -> None:
            self.command = command

        async def run(self, serve: Serve) -> None:
            async with start(self.command) as (receive, send):  # yours: starts a worker, and passes its messages
                await serve(receive, send)

    def make_engine(key: str, settings: Mapping[str, object]) -> Engine:
        if "command" not in settings:
            raise ValueError("command: name the command of the worker")
        return OneWorker(str(settings["command"]))
    ```
    """

    async def run(self, serve: Serve) -> None:
        """Have workers, and call `serve` with each of them, until this is cancelled; then end them.

        Whatever it raises is logged, and it is called again after a pause.
        """
        ...


def make_engine(owner: str, key: str, run: RunSettings) -> Engine | None:
    """Return the engine of an entry; None for workers that dial in by themselves. Raises `ProviderError`."""
    if run.engine is None:
        return None
    name, settings = run.engine
    try:
        make = cast("Callable[[str, Mapping[str, object]], Engine]", find_engines()[name].load())
        return make(key, settings)
    except ValueError as error:
        text, at = f"the engine {name}: {error}", ("run", name)
        raise ProviderError(text, state=ProviderState.CONFIG_INVALID, fix="correct its settings", at=at) from None
    except Exception as error:
        text = f"{owner}: the engine {name} cannot be used: {outline_error(error)}"
        raise ProviderError(text, state=ProviderState.IMPORT_FAILED, fix="update its package") from error
