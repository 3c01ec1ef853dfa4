"""What a model and its host get from a search."""

from __future__ import annotations

from collections.abc import Sequence

from toolplug import HostedItem, ToolResult
from toolplug_file_search.search import ListedFile, Passage

ITEM = HostedItem(
    "file_search_call", events=("searching",), fields={"queries": [], "results": None}, on_include=("results",)
)
"""How the Responses API shows a search."""


def search_result(query: str, passages: Sequence[Passage]) -> ToolResult:
    """The passages for the model, each with a `cite` that it can write down; what the host shows is in `metadata`."""
    return ToolResult(
        structured={"results": [_shown(passage) for passage in passages]},
        metadata={
            "queries": [query],
            "results": [_found(passage) for passage in passages],
            "citations": [_citation(index, item) for index, item in enumerate(passages)],
        },
    )


def list_result(files: Sequence[ListedFile], total: int) -> dict[str, object]:
    """The files of one page, and how many there are in all."""
    shown = [
        {
            "file": file.name,
            "file_id": file.id,
            "bytes": file.bytes,
            "source": "uploaded" if file.stores else "local",
            "vector_store_ids": list(file.stores),
        }
        for file in files
    ]
    return {"files": shown, "total": total}


def _shown(passage: Passage) -> dict[str, object]:
    return {
        "file": passage.file,
        "file_id": passage.file_id,
        "cite": _cite(passage),
        "headings": passage.headings,
        "passage": passage.text,
        "score": passage.score,
        "lines": [passage.first_line, passage.last_line],
        "characters": [passage.start, passage.end],
    }


def _found(passage: Passage) -> dict[str, object]:
    return {"file_id": passage.file_id, "filename": passage.file, "score": passage.score, "text": passage.text}


def _citation(index: int, passage: Passage) -> dict[str, object]:
    return {
        "type": "file_citation",
        "index": index,
        "file_id": passage.file_id,
        "filename": passage.file,
        "score": passage.score,
        "lines": [passage.first_line, passage.last_line],
    }


def _cite(passage: Passage) -> str:
    return f"{passage.file}:{passage.first_line}-{passage.last_line}"
