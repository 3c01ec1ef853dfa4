"""The files of the page: read once, and sent with a strict Content-Security-Policy. They hold no data of the host."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

PAGE = "index.html"

_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_HEADERS = {
    "cache-control": "public, no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "media-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_BARE_IMPORT = b'from"preact"'
"""In the hooks of preact. Only an import map could resolve it, which is an inline script."""


class Asset(NamedTuple):
    """One file: its bytes, its media type and its entity tag."""

    body: bytes
    media_type: str
    etag: str


def read_assets() -> Mapping[str, Asset]:
    """Return every file below `static` by its relative path; the licences are not served."""
    return dict(_found(files("toolplug_console").joinpath("static"), ""))


def asset_response(assets: Mapping[str, Asset], name: str, request: Request) -> Response:
    """Return a file, or 304 to a browser that has it. Raises `HTTPException` for any other name."""
    asset = assets.get(name)
    if asset is None:
        raise HTTPException(404, f"the console has no file {name[:80]!r}")
    headers = {"etag": asset.etag, **_HEADERS}
    known = {item.strip().removeprefix("W/") for item in request.headers.get("if-none-match", "").split(",")}
    if asset.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(asset.body, headers=headers, media_type=asset.media_type)


def _found(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for item in folder.iterdir():
        name = f"{prefix}{item.name}"
        media_type = _TYPES.get(item.name.rpartition(".")[2])
        if item.is_dir():
            found += _found(item, f"{name}/")
        elif media_type is not None:
            body = item.read_bytes().replace(_BARE_IMPORT, b'from"./preact.mjs"')
            found.append((name, Asset(body, media_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')))
    return found
