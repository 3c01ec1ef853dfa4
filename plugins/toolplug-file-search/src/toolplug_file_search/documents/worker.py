"""The function that reads documents, in a process of its own (`toolplug.apart`).

A hostile document costs that process, with bounded memory and CPU time, and not the host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from toolplug_file_search.documents.analysis import Analyzer
from toolplug_file_search.documents.formats import UnreadableDocument
from toolplug_file_search.documents.preparation import Cutting, prepare

PACKAGES = ("bs4", "charset_normalizer", "lxml.html", "markdownify", "py3langid.langid", "pypdf", "Stemmer")
"""What reads documents, imported on demand."""


def answer(request: bytes) -> Iterator[bytes]:
    """Yield lines of JSON for a request: a line of JSON, and the content of a document.

    For `name`, `chunk_size` and `overlap` they are those of `preparation`, or one with a `code` and `message`; for
    `check` one is a list of what is wrong with the packages that read documents.
    """
    head, _, content = request.partition(b"\n")
    asked = json.loads(head)
    if "check" in asked:
        yield json.dumps([found for name in PACKAGES if (found := _problem(name))]).encode() + b"\n"
        return
    for line in _answers(asked, content):
        yield json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


@cache
def _analyzer() -> Analyzer:
    """Return that of the process: it keeps the stems of the words that it has met."""
    return Analyzer()


def _problem(package: str) -> str:
    try:
        import_module(package)
    except Exception as error:  # noqa: BLE001  a broken package raises anything
        return f"documents are not read as they should: {package} cannot be imported: {error!r}"
    return ""


def _answers(asked: Mapping[str, Any], content: bytes) -> Iterator[Mapping[str, object]]:
    name = asked["name"]
    cutting = Cutting(size=asked["chunk_size"], overlap=asked["overlap"])
    try:
        yield from prepare(name, content, cutting, _analyzer())
    except UnreadableDocument as error:
        yield {"code": error.code, "message": str(error)}
    except (MemoryError, ImportError):
        raise
    except RecursionError:
        yield {"code": "too_complex", "message": f"{name!r} is nested too deeply to be read"}
    except Exception as error:  # noqa: BLE001  whatever a library raises for a damaged document
        yield {"code": "damaged_file", "message": f"{name!r} cannot be read ({type(error).__name__})"}
