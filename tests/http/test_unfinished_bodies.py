"""Bodies that have not been read whole: they count by key and in all, and long ones are kept in files."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Message
from tests.http.conftest import settings
from tests.http.conversation import HOST, Conversation

from toolplug import open_host
from toolplug.http import create_app
from toolplug.http.bodies.body_memory import SPOOLED_OVER

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("sample_package")]

KIB = 1024
ALICE = [*HOST, (b"authorization", b"Bearer alice-key"), (b"content-type", b"application/json")]
BEGIN, END = b'{"name":"language","arguments":{"text":"', b'"}}'


class Sending(Conversation):
    """A request whose body is sent piece by piece."""

    def __init__(self, app: ASGIApp, headers: list[tuple[bytes, bytes]] = ALICE, path: str = "/v1/tool-calls") -> None:
        super().__init__("POST", path, headers=headers)
        self._pieces: asyncio.Queue[Message] = asyncio.Queue()
        self.answering = asyncio.create_task(self.held_with(app))

    def piece(self, content: bytes, *, last: bool = False) -> None:
        self._pieces.put_nowait({"type": "http.request", "body": content, "more_body": not last})

    def hang_up(self) -> None:
        self._pieces.put_nowait({"type": "http.disconnect"})

    async def _receive(self) -> Message:
        return await self._pieces.get()

    async def taken_up(self) -> None:
        """Return when the application waits for the next piece, or has answered."""
        for _ in range(10_000):
            if self.answering.done() or (self._pieces.empty() and self._pieces._getters):  # type: ignore[attr-defined]
                return
            await asyncio.sleep(0.001)
        raise AssertionError("the piece was not taken")

    async def refusal(self) -> tuple[int, str, str | None, bytes | None]:
        await self.answering
        error = json.loads(self.body)["error"]
        return self.status, error["code"], error["param"], dict(self.sent[0]["headers"]).get(b"retry-after")


@asynccontextmanager
async def app_with(body_memory: int, **more: Any) -> AsyncIterator[ASGIApp]:
    async with open_host(settings(http={"edge": {"body_memory": body_memory}, **more}), environ={}) as host:
        yield create_app(host)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """The temporary files that were opened."""
    opened: list[object] = []
    real = tempfile.TemporaryFile

    def noted(*given: Any, **named: Any) -> Any:
        opened.append(real(*given, **named, dir=tmp_path))
        return opened[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", noted)
    return opened


BY_KEY = (429, "quota_exceeded", "body_memory", b"1")
IN_ALL = (503, "body_memory_full", None, b"1")


@pytest.mark.requirement("SEC-unfinished-bodies")
async def test_unfinished_bodies_of_one_key_have_a_quarter_and_all_keys_the_whole() -> None:
    async with app_with(200 * KIB) as app:
        keys = (b"alice-key", b"bob-key", b"caller-key", b"one-agent-key")
        accepted = [Sending(app, [*HOST, (b"x-api-key", key)]) for key in keys]
        for one in accepted:
            one.piece(BEGIN + b"x" * (49 * KIB))
            await one.taken_up()
        too_much = Sending(app)
        too_much.piece(BEGIN + b"x" * (2 * KIB))
        assert await too_much.refusal() == BY_KEY
        stranger = Sending(app, [*HOST, (b"x-api-key", b"root-key")])
        stranger.piece(BEGIN + b"x" * (30 * KIB))
        assert await stranger.refusal() == IN_ALL
        for one in accepted:
            one.piece(END, last=True)
            await one.answering
            assert one.status != 503
        assert accepted[0].status == 200
        again = Sending(app)
        again.piece(BEGIN + b"x" * (45 * KIB))
        await again.taken_up()
        again.hang_up()
        await again.answering
        once_more = Sending(app)
        once_more.piece(BEGIN + b"x" * (45 * KIB))
        once_more.piece(END, last=True)
        await once_more.answering
        assert once_more.status == 200


@pytest.mark.requirement("SEC-unfinished-bodies")
async def test_what_is_over_64_kib_of_a_body_goes_to_a_file_and_is_read_again(files: list[Any]) -> None:
    async with app_with(8 * KIB * KIB) as app:
        body = BEGIN.replace(b"language", b"echo") + b"".join(b"%07d " % number for number in range(12_000)) + END
        sending = Sending(app)
        for start in range(0, len(body), 10 * KIB):
            sending.piece(body[start : start + 10 * KIB])
            await sending.taken_up()
        assert len(files) == 1
        assert files[0].tell() > SPOOLED_OVER
        sending.piece(b"", last=True)
        await sending.answering
        answer = json.loads(sending.body)
        assert (answer["status"], answer["output"]) == ("success", json.loads(body)["arguments"]["text"])
        assert files[0].closed


@pytest.mark.requirement("SEC-unfinished-bodies")
async def test_without_a_place_for_files_bodies_stay_in_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_folder(*given: Any, **named: Any) -> Any:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "TemporaryFile", no_folder)
    async with app_with(8 * KIB * KIB) as app:
        for _ in range(2):
            sending = Sending(app)
            sending.piece(BEGIN + b"x" * (70 * KIB))
            sending.piece(b"x" * (70 * KIB))
            sending.piece(END, last=True)
            await sending.answering
            assert sending.status == 200
    warned = [record.getMessage() for record in caplog.records if "temporary file" in record.getMessage()]
    why = "no usable temporary directory"
    assert warned == [f"request bodies stay in memory, since no temporary file can be written: {why}"]


@pytest.mark.requirement("SEC-unfinished-bodies")
@pytest.mark.parametrize("path", ["/v1/samples", "/v1/samples/files"])
async def test_a_body_for_a_providers_route_counts_until_its_end(path: str) -> None:
    async with app_with(200 * KIB) as app:
        uploads = [Sending(app, path=path) for _ in range(2)]
        for upload in uploads:
            upload.piece(b"x" * (25 * KIB))
            await upload.taken_up()
        too_much = Sending(app)
        too_much.piece(BEGIN)
        assert await too_much.refusal() == BY_KEY
        for upload in uploads:
            upload.piece(b"", last=True)
            await upload.answering
        assert uploads[1].body == b"25600"
        fits = Sending(app)
        fits.piece(BEGIN + b"x" * (45 * KIB))
        fits.piece(END, last=True)
        await fits.answering
        assert fits.status == 200


@pytest.mark.requirement("SEC-unfinished-bodies")
async def test_a_providers_route_that_reads_too_much_is_refused() -> None:
    async with app_with(200 * KIB) as app:
        upload = Sending(app, path="/v1/samples/files")
        for _ in range(3):
            upload.piece(b"x" * (20 * KIB))
        assert await upload.refusal() == BY_KEY
