"""`/v1/files…` in OpenAI's shapes (https://platform.openai.com/docs/api-reference/files)."""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from toolplug_file_search.documents.formats import check_name
from toolplug_file_search.openai_api.answers import (
    InThread,
    OpenLibrary,
    RequestRefused,
    answering,
    list_answer,
    page,
)
from toolplug_file_search.storage.records import StoredFile

PURPOSES = ("assistants", "user_data")
MIN_EXPIRY_S, MAX_EXPIRY_S = 3600, 2_592_000


class FileRoutes:
    """The handlers; each opens the library of the request's caller and works in a thread."""

    def __init__(
        self, library: OpenLibrary, in_thread: InThread, *, max_file_bytes: int, ingested: Callable[[int], None]
    ) -> None:
        self._library = library
        self._in_thread = in_thread
        self._max_file_bytes = max_file_bytes
        self._ingested = ingested

    def routes(self) -> list[Route]:
        files, file = "/v1/files", "/v1/files/{file_id}"
        return [
            Route(files, answering(self.create), methods=["POST"]),
            Route(files, answering(self.list), methods=["GET"]),
            Route(file, answering(self.retrieve), methods=["GET"]),
            Route(file, answering(self.delete), methods=["DELETE"]),
            Route(f"{file}/content", answering(self.content), methods=["GET"]),
        ]

    async def create(self, request: Request) -> Response:
        """Take one file as `multipart/form-data` with the parts `file` and `purpose`."""
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise RequestRefused(
                415, "unsupported_media_type", "send multipart/form-data with the parts file and purpose"
            )
        try:
            async with request.form(max_files=1, max_fields=8) as form:
                name, content, purpose = await self._upload(form.get("file"), form.get("purpose"))
                expires_s = _expiry(form.get("expires_after[anchor]"), form.get("expires_after[seconds]"))
        except MultiPartException as error:
            raise RequestRefused(400, "invalid_form", f"the form cannot be read: {error.message}") from None
        file = await self._in_thread(self._library(request).add_file, name, content, purpose, expires_s)
        self._ingested(file.bytes)
        return JSONResponse(_file(file))

    async def list(self, request: Request) -> Response:
        wanted = page(request)
        purpose = request.query_params.get("purpose")
        return list_answer(await self._in_thread(self._library(request).files, wanted, purpose), _file)

    async def retrieve(self, request: Request) -> Response:
        return JSONResponse(_file(await self._in_thread(self._library(request).file, _file_id(request))))

    async def delete(self, request: Request) -> Response:
        """Delete the file; it is gone from every vector store too."""
        await self._in_thread(self._library(request).delete_file, _file_id(request))
        return JSONResponse({"id": _file_id(request), "object": "file", "deleted": True})

    async def content(self, request: Request) -> Response:
        """The bytes as they were uploaded; never as a page that a browser would show."""
        content = await self._in_thread(self._library(request).content, _file_id(request))
        return Response(
            content,
            media_type="application/octet-stream",
            headers={"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"},
        )

    async def _upload(self, file: UploadFile | str | None, purpose: UploadFile | str | None) -> tuple[str, bytes, str]:
        if not isinstance(file, UploadFile):
            raise RequestRefused(400, "missing_parameter", "the form has no part 'file' with a file name", "file")
        if not isinstance(purpose, str) or purpose not in PURPOSES:
            raise RequestRefused(400, "invalid_value", f"purpose: must be one of {', '.join(PURPOSES)}", "purpose")
        name = file.filename or ""
        check_name(name)
        content = await file.read(self._max_file_bytes + 1)
        if len(content) > self._max_file_bytes:
            raise RequestRefused(
                413, "file_too_large", f"{name!r} is larger than {self._max_file_bytes} bytes (max_file_bytes)", "file"
            )
        return name, content, purpose


def _expiry(anchor: UploadFile | str | None, seconds: UploadFile | str | None) -> int | None:
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise RequestRefused(400, "invalid_value", "expires_after.anchor: must be created_at", "expires_after")
    if not isinstance(seconds, str) or not seconds.isdecimal() or not MIN_EXPIRY_S <= int(seconds) <= MAX_EXPIRY_S:
        message = f"expires_after.seconds: must be between {MIN_EXPIRY_S} and {MAX_EXPIRY_S}"
        raise RequestRefused(400, "invalid_value", message, "expires_after")
    return int(seconds)


def _file_id(request: Request) -> str:
    return str(request.path_params["file_id"])


def _file(file: StoredFile) -> dict[str, object]:
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at,
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
        "expires_at": file.expires_at,
        "status_details": None,
    }
