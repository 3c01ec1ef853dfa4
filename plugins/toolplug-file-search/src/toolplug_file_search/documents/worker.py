"""The process that parses PDF, docx and HTML: `python -m toolplug_file_search.documents.worker`.

It reads a line of JSON (`kind`, `name`, `size`) and so many bytes from standard input, and answers with a line of JSON,
until its input ends. A hostile document costs this process, with bounded memory, and not the host.
"""

from __future__ import annotations

import json
import os
import resource
import sys

from toolplug_file_search.documents.conversion import convert
from toolplug_file_search.documents.formats import Format, UnreadableDocument

MAX_MEMORY = 1024 * 1024 * 1024


def main() -> None:
    """Answer requests until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints does not disturb the answers
    while line := source.readline():
        request = json.loads(line)
        sink.write(json.dumps(_answer(request, source.read(request["size"]))).encode() + b"\n")
        sink.flush()


def _answer(request: dict[str, str], content: bytes) -> dict[str, str]:
    name = request["name"]
    try:
        document = convert(Format(request["kind"]), name, content)
    except UnreadableDocument as error:
        return {"code": error.code, "message": str(error)}
    except MemoryError:
        return {"code": "too_complex", "message": f"{name!r} needs more memory than {MAX_MEMORY} bytes to be read"}
    except RecursionError:
        return {"code": "too_complex", "message": f"{name!r} is nested too deeply to be read"}
    except Exception as error:  # noqa: BLE001  whatever a library raises for a damaged document
        return {"code": "damaged_file", "message": f"{name!r} cannot be read ({type(error).__name__})"}
    return {"text": document.text, "layout": document.layout}


if __name__ == "__main__":
    main()
