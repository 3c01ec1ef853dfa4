"""The bounds of a provider that runs in a process of its own, and of workers that dial in."""

from __future__ import annotations

FRAME_SLACK = 64 * 1024
"""Bytes of a message beside the longest result: its head, progress, names."""
CREDIT = 256 * 1024
"""Bytes of a stream that are on the way; its reader grants more as it reads, so that neither side collects a body."""
PIECE = 64 * 1024
"""Bytes of a body in one message: a stream gets its turn between two pieces of another one."""
PIECE_COST = 64
"""Bytes of credit that a piece costs beside its own, or empty pieces would cost nothing."""
STREAMS_UNREAD = 1024 * 1024
"""Bytes that wait for the other side before any stream goes on: a credit for each of a thousand bodies is too much."""
MAX_UNREAD = 8 * 1024 * 1024
"""Bytes that wait for a process that does not read; further calls are refused."""
MOST_UNREAD = 64 * 1024 * 1024
"""Bytes that wait for a process when it is ended: it makes the host send what is not a call, and does not read."""
MAX_ASKED = 64
"""Requests of one process that the host answers at once: of its store, and of users."""
TURN_S = 0.002
"""Seconds of the event loop for the messages of one process; the rest waits until others had their turn."""

DESCRIBE_S = 60.0
"""Seconds until a process has imported its provider. The import has a limit of its own, which says more."""
ADOPT_S = 60.0
"""Seconds for which a process that has only described its provider waits for its start."""
LATE_S = 1.0
"""Seconds after its deadline in which a call has to end, or its process is killed."""
GONE_S = 2.0
"""Seconds in which a process whose host is gone closes its provider."""
CLOSE_PROCESS_S = 4.5
"""Seconds of `aclose` in the process: less than those of the host, which waits for it."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
"""Seconds before a process that ended is started again; doubled after each time, up to the second."""
STEADY_S = 60.0
"""Seconds after which a process that ran counts as one that works: the next pause is the first again."""

MAX_LINE = 8 * 1024
"""Bytes of one line of a process's output; the rest of it is left out."""
LINES_PER_S = 100
"""Lines of output that are logged in one second; the rest is counted."""
MAX_OUTPUT = 64 * 1024
"""Bytes of output that are kept while a provider is imported."""
MAX_FAMILIES = 1_000
MAX_SAMPLES = 10_000
MAX_LABELS = 4 * 1024 * 1024
"""Families, samples and characters of labels in the metrics of one process; more are left out of a scrape."""
PIECE_SAMPLES = 500
"""Of one message: with the labels of a usual one, a tenth of the shortest that a process may send."""
START_BYTES = 8 * 1024 * 1024
"""Of what a process says that its provider offers: 4,000 tools with 2 KB each. It takes the host's loop 40 ms."""
PUSH_S = 0.1
"""Seconds after a call until the process sends its metrics: a burst of calls sends them once."""
PUSH_IDLE_S = 5.0
"""Seconds between two sendings of metrics without a call."""

# Of workers that dial in.
WORKERS_PATH = "/v1/workers/"
"""The path of the WebSocket, before the key of the entry."""

MAX_WORKERS = 256
"""Workers of one entry in one process of a host: each costs a connection, and a look at each call."""
MAX_WORKER_MESSAGE = 1024 * 1024
"""Bytes of one WebSocket message: what a worker says of its provider, with the problems of its settings."""
CHUNK = 64 * 1024
"""Bytes of a stream of frames in one message: another frame gets its turn between two of them."""
MAX_NOTE = 2_000
"""Characters of a reason that the other side gives."""

BEAT_S = 1.0
"""Seconds between two signs of life, in both directions."""
MISSED_BEATS = 3
"""Beats of a host without a sign of the worker after which it counts as dead: its death is seen within 5 s.

Beats and not seconds: a host whose event loop was held up reads first what has arrived until then.
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
