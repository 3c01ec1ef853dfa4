"""Standard output, kept for the answers of a command: what packages print goes to standard error.

Libraries print when they are imported, started and called. On the same stream as an answer this breaks the protocol of
`serve --stdio`, and every `--json` that another program reads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

_kept: list[TextIO] = []


def answers() -> TextIO:
    """Return the stream for what a command answers."""
    return _kept[-1] if _kept else sys.stdout


@contextmanager
def packages_print_to_stderr() -> Generator[TextIO]:
    """Until the block ends, all but `answers()` goes to stderr: print, writes to descriptor 1, child processes.

    Yields the stream of `answers()`. At a terminal both are one, and nothing changes: `input` edits lines there.
    """
    before = sys.stdout
    if _kept or before.isatty():
        yield answers()
        return
    # What is in the buffer belongs to the old descriptor.
    before.flush()
    descriptor = _descriptor(before)
    kept = before if descriptor is None else _duplicate(before, descriptor)
    _kept.append(kept)
    sys.stdout = sys.stderr
    if descriptor is not None:
        # The descriptor as well: C code and child processes write to it without `sys.stdout`.
        os.dup2(2, descriptor)
    try:
        yield kept
    finally:
        _kept.pop()
        kept.flush()
        if descriptor is not None:
            os.dup2(kept.fileno(), descriptor)
            kept.close()
        sys.stdout = before


def _duplicate(stream: TextIO, descriptor: int) -> TextIO:
    """Return a stream for what programs read, in UTF-8 and with plain line ends; Windows has neither for pipes."""
    return open(os.dup(descriptor), "w", encoding="utf-8", errors=stream.errors, newline="")


def _descriptor(stream: TextIO) -> int | None:
    """Return 1 if the stream is the process's own; None for one in memory."""
    try:
        return 1 if stream.fileno() == 1 else None
    except (OSError, ValueError):
        return None
