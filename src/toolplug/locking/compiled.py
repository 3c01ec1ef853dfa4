"""Compiled files that are not what their source compiles to: Python loads one whose header names the source's time.

It imports the standard library alone, since it is run by the interpreters of other environments, too: `-I -S`, a list
of `[compiled file, source, level of optimisation]` on standard input, and what is wrong on standard output.
"""

from __future__ import annotations

import importlib.util
import json
import marshal
import os
import sys
from typing import Any

UNCHECKED = "is loaded whatever its source is"
OTHER = "is not what its source compiles to"


def check_compiled(compiled: str, source: str, level: int) -> str:
    """Return what is wrong with a compiled file; empty if Python does not load it, or may."""
    try:
        with open(compiled, "rb") as file:
            data = file.read()
        with open(source, "rb") as file:
            text = file.read()
        status = os.stat(source)
    except OSError:
        return ""
    if len(data) < 16 or data[:4] != importlib.util.MAGIC_NUMBER:
        return ""  # of another version, or cut off: Python compiles the source again
    flags = int.from_bytes(data[4:8], "little")
    if flags & ~0b11 or flags == 0b01:
        return UNCHECKED
    if flags:
        if data[8:16] != importlib.util.source_hash(text):
            return ""
    elif (
        int.from_bytes(data[8:12], "little") != int(status.st_mtime) & 0xFFFFFFFF
        or int.from_bytes(data[12:16], "little") != status.st_size & 0xFFFFFFFF
    ):
        return ""
    try:
        # Equal code is equal whatever file it names; the bytes of two runs of one compiler may differ.
        found, right = marshal.loads(data[16:]), compile(text, source, "exec", dont_inherit=True, optimize=level)
    except (ValueError, EOFError, TypeError, SyntaxError):
        return OTHER
    return "" if found == right else OTHER


def main() -> None:
    """Answer for the files that standard input names."""
    asked: list[Any] = json.load(sys.stdin)
    print(json.dumps([check_compiled(*each) for each in asked]))  # noqa: T201  the answer


if __name__ == "__main__":
    main()
