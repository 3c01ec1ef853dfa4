"""The bounds of workers that dial in."""

from __future__ import annotations

PROTOCOL = 1
"""The number of the messages. A host speaks its own and the one before, so that workers can be updated after it."""
PATH = "/v1/workers/"
"""The path of the WebSocket, before the key of the entry."""

MAX_WORKERS = 256
"""Workers of one entry in one process of a host: each costs a connection, and a look at each call."""
MAX_MESSAGE = 1024 * 1024
"""Bytes of one WebSocket message: what a worker says of its provider, with the problems of its settings."""
CHUNK = 64 * 1024
"""Bytes of a stream of frames in one message: another frame gets its turn between two of them."""
MAX_NOTE = 2_000
"""Characters of a reason that the other side gives."""

BEAT_S = 1.0
"""Seconds between two signs of life, in both directions."""
MISSED_BEATS = 3
"""Beats of a host without a sign of the worker after which it counts as dead: its death is seen within 5 s.

Beats and not seconds: a host whose event loop was held up reads first what has arrived meanwhile.
"""
HOST_SILENT_BEATS = 15
"""Beats of a worker without a sign of the host after which it dials again: a host that starts may take that long."""
HELLO_S = 10.0
"""Seconds in which a worker says who it is."""
DESCRIBE_WORKER_S = 120.0
"""Seconds in which a worker imports its provider: libraries of a GPU take longer than others."""
START_WORKER_S = 900.0
"""Seconds of `start` in a worker, which may load a model; the host does not wait for it."""
DRAIN_S = 25.0
"""Seconds in which the calls of a worker that was asked to end may end; Kubernetes kills it after 30."""
CLOSE_WORKER_S = 4.0
"""Seconds in which the workers of a provider that is closed close it; those of `aclose` are 5."""
