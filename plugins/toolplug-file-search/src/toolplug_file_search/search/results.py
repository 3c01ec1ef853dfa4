"""What a model and its host get from a search."""

from __future__ import annotations

from collections.abc import Sequence

from toolplug import HostedItem, ToolResult
from toolplug_file_search.ingest.mirror import Progress
from toolplug_file_search.search.searcher import Found, Left, ListedFile, Passage

ITEM = HostedItem(
    "file_search_call", events=("searching",), fields={"queries": [], "results": None}, on_include=("results",)
)
"""How the Responses API shows a search."""


def search_result(query: str, found: Found, indexing: Progress | None) -> ToolResult:
    """The passages for the model, each with a `cite` that it can write down; what the host shows is in `metadata`.

    `note` says what did not take part in the search, if anything.
    """
    passages = found.passages
    notes = [found.note] if found.note else []
    if indexing is not None:
        notes.append(f"{indexing.total - indexing.done} files are still being read")
    structured: dict[str, object] = {"results": [_show(passage) for passage in passages]}
    if notes:
        structured["note"] = "; ".join(notes)
    return ToolResult(
        structured=structured,
        metadata={
            "queries": [query],
            "results": [_found(passage) for passage in passages],
            "citations": [_citation(index, item) for index, item in enumerate(passages)],
        },
    )


def list_result(files: Sequence[ListedFile], total: int, left: Left, indexing: Progress | None) -> dict[str, object]:
    """The files of one page and how many there are in all; what is skipped, with the reason; what is still read.

    `left_out` of a file says what of it could not be read.
    """
    shown = [
        {
            "file": file.name,
            "file_id": file.id,
            "bytes": file.bytes,
            "source": "uploaded" if file.stores else "local",
            "vector_store_ids": list(file.stores),
            **({"left_out": file.left_out} if file.left_out else {}),
        }
        for file in files
    ]
    result: dict[str, object] = {"files": shown, "total": total, "skipped": [each._asdict() for each in left.skipped]}
    if left.total > len(left.skipped):
        result["skipped_total"] = left.total
    waiting = left.waiting + (indexing.total - indexing.done if indexing else 0)
    return {**result, "waiting": waiting} if waiting else result


def _show(passage: Passage) -> dict[str, object]:
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
