"""Prepares the journal of each folder that it is told on its input, and says so: `preparing_child.py`."""

from __future__ import annotations

import sys
from pathlib import Path

from toolplug_journal.database import FILE, Database, Retention

for line in sys.stdin:
    try:
        Database(Path(line.strip()) / FILE, Retention(keep_s=100.0, max_rows=3)).prepare(1_800_000_000.0)
        print("ready", flush=True)
    except Exception as error:
        print(repr(error), flush=True)
