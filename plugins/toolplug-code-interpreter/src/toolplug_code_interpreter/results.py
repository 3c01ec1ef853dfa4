"""What a model and its host get from a call."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from mimetypes import guess_type
from typing import NamedTuple

from toolplug import HostedItem, ToolResult, ToolStatus
from toolplug_code_interpreter.container import Container, ContainerFile, FileRefused, Outcome

ITEM = HostedItem(
    "code_interpreter_call",
    events=("interpreting",),
    fields={"code": "", "container_id": "", "outputs": None},
    on_include=("outputs",),
)
"""How the Responses API shows a call."""

MAX_IMAGES = 8
MAX_IMAGE_BYTES = 512 * 1024
"""Of all images of a result together: as base64 they fit into a result of the default size."""
MAX_LINKS = 50

_SIGNATURES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8"}


class Image(NamedTuple):
    """The content of an image file."""

    file: ContainerFile
    mime: str
    data: str


async def images(container: Container, files: Sequence[ContainerFile]) -> list[Image]:
    """Return the images among the files, as far as they are small enough together. Raises `ContainerEnded`."""
    found: list[Image] = []
    left = MAX_IMAGE_BYTES
    for file in files:
        if len(found) == MAX_IMAGES or not _is_image_name(file.path) or not 0 < file.bytes <= left:
            continue
        content = await _content(container, file, left)
        mime = next((mime for mime, start in _SIGNATURES.items() if content.startswith(start)), None)
        if mime is not None:
            left -= len(content)
            found.append(Image(file, mime, b64encode(content).decode()))
    return found


async def _content(container: Container, file: ContainerFile, limit: int) -> bytes:
    content = bytearray()
    try:
        async for piece in container.read(file.path):
            content += piece
            if len(content) > limit:
                return b""
    except FileRefused:
        return b""
    return bytes(content)


def result(code: str, container_id: str, outcome: Outcome, shown: Sequence[Image]) -> ToolResult:
    """Return the result of a run: a text for the model, the same as data, images and links to the other files."""
    logs = _logs(outcome)
    paths = [file.path for file in outcome.changed[:MAX_LINKS]]
    structured = {
        "stdout": outcome.stdout,
        "stderr": outcome.stderr,
        "value" if outcome.ok else "error": outcome.text,
        "files": [_describe(container_id, file) for file in outcome.changed[:MAX_LINKS]],
        "container_id": container_id,
    }
    files = f"files: {', '.join(map(json.dumps, paths))}" if paths else ""
    return ToolResult(
        output="\n".join(part for part in (logs, files) if part) or "(no output)",
        status=ToolStatus.SUCCESS if outcome.ok and outcome.stopped is None else ToolStatus.TOOL_ERROR,
        structured=structured,
        parts=(*map(_image_part, shown), *_links(container_id, outcome.changed, shown)),
        metadata={
            "code": code,
            "container_id": container_id,
            "outputs": [
                *([{"type": "logs", "logs": logs}] if logs else []),
                *({"type": "image", "url": f"data:{image.mime};base64,{image.data}"} for image in shown),
            ],
            "citations": [_citation(container_id, file) for file in outcome.changed[:MAX_LINKS]],
        },
    )


def _logs(outcome: Outcome) -> str:
    stopped = f"The code was stopped: {outcome.stopped}." if outcome.stopped else ""
    parts = (outcome.stdout, outcome.stderr, outcome.text, stopped)
    return "\n".join(part.removesuffix("\n") for part in parts if part)


def _image_part(image: Image) -> Mapping[str, object]:
    return {"type": "image", "data": image.data, "mimeType": image.mime}


def _links(container_id: str, changed: Sequence[ContainerFile], shown: Sequence[Image]) -> list[Mapping[str, object]]:
    in_full = {image.file.id for image in shown}
    return [
        {
            "type": "resource_link",
            "uri": content_path(container_id, file),
            "name": file.path,
            "mimeType": guess_type(file.path)[0] or "application/octet-stream",
        }
        for file in changed[:MAX_LINKS]
        if file.id not in in_full
    ]


def content_path(container_id: str, file: ContainerFile) -> str:
    """Return where the host serves the content of a file."""
    return f"/v1/containers/{container_id}/files/{file.id}/content"


def _describe(container_id: str, file: ContainerFile) -> Mapping[str, object]:
    return {"id": file.id, "name": file.path, "bytes": file.bytes, "content": content_path(container_id, file)}


def _citation(container_id: str, file: ContainerFile) -> Mapping[str, object]:
    return {
        "type": "container_file_citation",
        "container_id": container_id,
        "file_id": file.id,
        "filename": file.path,
    }


def _is_image_name(path: str) -> bool:
    return (guess_type(path)[0] or "").startswith("image/")
