"""The process that reads documents: `python -m toolplug_file_search.documents.worker`.

It says that it is there with a line of JSON. Then it reads a line (`name`, `size`, `chunk_size`, `overlap`, `seconds`)
and so many bytes from standard input, and answers with the lines of `preparation`, or one with a `code` and `message`,
until its input ends; and a line `check` with a list of the packages that cannot be imported. A hostile document costs
this process, with bounded memory and CPU time, and not the host.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from toolplug_file_search.documents.analysis import Analyzer
from toolplug_file_search.documents.formats import UnreadableDocument
from toolplug_file_search.documents.preparation import READY, Cutting, prepare

PACKAGES = ("bs4", "charset_normalizer", "lxml.html", "markdownify", "py3langid.langid", "pypdf", "Stemmer")
"""What reads documents, imported on demand."""
MAX_MEMORY = 1024 * 1024 * 1024


def main() -> None:
    """Answer requests until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.disable()  # a library has a line for each fault of a document
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints does not disturb the answers
    analyzer = Analyzer()
    sink.write(READY)
    sink.flush()
    while line := source.readline():
        request = json.loads(line)
        if "check" in request:
            sink.write(json.dumps([found for name in PACKAGES if (found := _problem(name))]).encode() + b"\n")
            sink.flush()
            continue
        content = source.read(request["size"])
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])  # SIGPROF ends the process, in a call into C too
        for answer in _answers(request, content, analyzer):
            sink.write(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        signal.setitimer(signal.ITIMER_PROF, 0)
        sink.flush()


def _problem(package: str) -> str:
    try:
        import_module(package)
    except Exception as error:  # noqa: BLE001  a broken package raises anything
        return f"documents are not read as they should: {package} cannot be imported: {error!r}"
    return ""


def _answers(request: Mapping[str, Any], content: bytes, analyzer: Analyzer) -> Iterator[Mapping[str, object]]:
    name = request["name"]
    cutting = Cutting(size=request["chunk_size"], overlap=request["overlap"])
    try:
        yield from prepare(name, content, cutting, analyzer)
    except UnreadableDocument as error:
        yield {"code": error.code, "message": str(error)}
    except MemoryError:
        yield {"code": "too_complex", "message": f"{name!r} needs more memory than {MAX_MEMORY} bytes to be read"}
    except RecursionError:
        yield {"code": "too_complex", "message": f"{name!r} is nested too deeply to be read"}
    except ImportError as error:  # a package is missing: nothing is wrong with the document
        yield {"code": "server_error", "message": f"{name!r} cannot be read: its reader does not start: {error}"}
    except Exception as error:  # noqa: BLE001  whatever a library raises for a damaged document
        yield {"code": "damaged_file", "message": f"{name!r} cannot be read ({type(error).__name__})"}


if __name__ == "__main__":
    main()
