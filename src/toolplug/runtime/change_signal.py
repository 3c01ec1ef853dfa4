"""A signal that something may have changed, for any number of listeners."""

from __future__ import annotations

from collections.abc import Callable


class ChangeSignal:
    """Calls its listeners, which must not raise, each time that `send` is called."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[], None]] = {}

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener from now on; return the function that ends it."""
        # A key of its own for each: the same function may listen twice, and ending one must not end the other.
        listening = object()
        self._listeners[listening] = listener

        def stop() -> None:
            self._listeners.pop(listening, None)

        return stop

    def send(self) -> None:
        """Call every listener."""
        # A copy, since a listener may end itself or begin another one while it is called.
        for listener in tuple(self._listeners.values()):
            listener()
