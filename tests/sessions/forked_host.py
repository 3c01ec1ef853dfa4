"""The command `toolplug` for a fork of a process that has imported it: first it says which process it is."""

from __future__ import annotations

import os
import sys

from toolplug.cli.main import main

print("process", os.getpid(), file=sys.stderr, flush=True)
sys.exit(main())
