"""`/v1/containers…` in OpenAI's shapes (https://platform.openai.com/docs/api-reference/containers)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from mimetypes import guess_type
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from toolplug_code_interpreter.api.answers import RequestRefused, Shape, answering, body, page_answer
from toolplug_code_interpreter.container import CHUNK, ContainerFile, full_path
from toolplug_code_interpreter.containers import ContainerEntry, Containers
from toolplug_code_interpreter.stub import NoNetwork

MAX_NAME_BYTES = 255


class ExpiresAfter(BaseModel):
    """When a container ends; the setting `idle` is the most."""

    model_config = ConfigDict(extra="forbid")

    anchor: Literal["last_active_at"]
    minutes: Annotated[int, Field(ge=1, le=20)]


def _refuse_files(given: object) -> None:
    """Refuse files by their ids, without which the container would not be what was asked for."""
    if given:
        raise PydanticCustomError("unsupported", "upload the files to the container instead")


class NewContainer(BaseModel):
    """The body of a request for a container."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=256)]
    expires_after: ExpiresAfter | None = None
    network_policy: NoNetwork | None = None
    file_ids: Annotated[object, AfterValidator(_refuse_files)] = None


class ContainerRoutes:
    """The handlers."""

    def __init__(self, containers: Callable[[], Awaitable[Containers]]) -> None:
        self._containers = containers

    def routes(self) -> list[Route]:
        """Return the routes."""
        containers = "/v1/containers"
        container = f"{containers}/{{container_id}}"
        files, file = f"{container}/files", f"{container}/files/{{file_id}}"
        return [
            Route(containers, answering(self.create), methods=["POST"]),
            Route(containers, answering(self.list), methods=["GET"]),
            Route(container, answering(self.retrieve), methods=["GET"]),
            Route(container, answering(self.delete), methods=["DELETE"]),
            Route(files, answering(self.create_file), methods=["POST"]),
            Route(files, answering(self.list_files), methods=["GET"]),
            Route(file, answering(self.retrieve_file), methods=["GET"]),
            Route(file, answering(self.delete_file), methods=["DELETE"]),
            Route(f"{file}/content", answering(self.content), methods=["GET"]),
        ]

    async def create(self, request: Request) -> Response:
        """Start a container."""
        asked = await body(request, NewContainer)
        idle_s = asked.expires_after.minutes * 60.0 if asked.expires_after else None
        containers = await self._containers()
        return JSONResponse(_container(await containers.create(request.state.principal, asked.name, idle_s)))

    async def list(self, request: Request) -> Response:
        """List the caller's containers."""
        entries = (await self._containers()).list_for(request.state.principal)
        return page_answer(request, [_container(each) for each in entries])

    async def retrieve(self, request: Request) -> Response:
        """Return one container."""
        return JSONResponse(_container(await self._entry(request)))

    async def delete(self, request: Request) -> Response:
        """End a container; its files are gone."""
        container_id = str(request.path_params["container_id"])
        await (await self._containers()).delete(request.state.principal, container_id)
        return JSONResponse({"id": container_id, "object": "container.deleted", "deleted": True})

    async def create_file(self, request: Request) -> Response:
        """Take one file as `multipart/form-data` with the part `file`."""
        entry = await self._entry(request)
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise RequestRefused(
                415, "unsupported_media_type", "send multipart/form-data with the part file; file_id is not supported"
            )
        try:
            async with request.form(max_files=1, max_fields=4) as form:
                upload = form.get("file")
                if not isinstance(upload, UploadFile):
                    raise RequestRefused(400, "missing_parameter", "the form has no part 'file' with a name", "file")
                file = await entry.container.write(_checked_name(upload.filename or ""), _pieces(upload))
        except MultiPartException as error:
            raise RequestRefused(400, "invalid_form", f"the form cannot be read: {error.message}") from None
        (await self._containers()).touch(entry)
        return JSONResponse(_file(entry, file))

    async def list_files(self, request: Request) -> Response:
        """List the files of a container, as they were when its last call ended."""
        entry = await self._entry(request)
        return page_answer(request, [_file(entry, file) for file in entry.container.files.values()])

    async def retrieve_file(self, request: Request) -> Response:
        """Return one file, without its content."""
        entry = await self._entry(request)
        return JSONResponse(_file(entry, _found(request, entry)))

    async def delete_file(self, request: Request) -> Response:
        """Delete one file."""
        entry = await self._entry(request)
        file = _found(request, entry)
        await entry.container.delete(file.path)
        return JSONResponse({"id": file.id, "object": "container.file.deleted", "deleted": True})

    async def content(self, request: Request) -> Response:
        """Send the bytes of a file; never as a page that a browser would show."""
        entry = await self._entry(request)
        file = _found(request, entry)
        pieces = entry.container.read(file.path)
        first = await anext(pieces, b"")

        async def content() -> AsyncGenerator[bytes]:
            yield first
            async for piece in pieces:
                yield piece

        mime = guess_type(file.path)[0] or ""
        return StreamingResponse(
            content(),
            media_type=mime if mime in _PLAIN else "application/octet-stream",
            headers={"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"},
        )

    async def _entry(self, request: Request) -> ContainerEntry:
        return (await self._containers()).find(request.state.principal, str(request.path_params["container_id"]))


_PLAIN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "text/csv", "application/json"})


def _found(request: Request, entry: ContainerEntry) -> ContainerFile:
    file_id = str(request.path_params["file_id"])
    found = next((file for file in entry.container.files.values() if file.id == file_id), None)
    if found is None:
        raise RequestRefused(404, "file_not_found", f"no file {file_id!r} is in this container")
    return found


def _checked_name(name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(name.encode()) > MAX_NAME_BYTES:
        message = (
            f"file: {name[:80]!r} is not a valid name for a file: 1 to {MAX_NAME_BYTES} bytes without '/' are allowed"
        )
        raise RequestRefused(400, "invalid_value", message, "file")
    return name


async def _pieces(upload: UploadFile) -> AsyncGenerator[bytes]:
    while piece := await upload.read(CHUNK):
        yield piece


def _container(entry: ContainerEntry) -> Shape:
    return {
        "id": entry.id,
        "object": "container",
        "created_at": entry.created_at,
        "last_active_at": entry.active_at,
        "name": entry.name,
        "status": "running",
        "expires_after": {"anchor": "last_active_at", "minutes": max(round(entry.idle_s / 60), 1)},
        "network_policy": {"type": "disabled"},
    }


def _file(entry: ContainerEntry, file: ContainerFile) -> Shape:
    return {
        "id": file.id,
        "object": "container.file",
        "container_id": entry.id,
        "created_at": file.created_at,
        "bytes": file.bytes,
        "path": full_path(file),
        "source": file.source,
    }
