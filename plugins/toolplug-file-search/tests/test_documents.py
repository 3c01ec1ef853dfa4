"""Documents as people and attackers send them: each ends as text or as one clear reason, and the next one is read."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import sys
import zipfile
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

import pypdf
import pytest

from toolplug_file_search.documents.conversion import Document, convert
from toolplug_file_search.documents.docx import MAX_UNPACKED
from toolplug_file_search.documents.formats import UnreadableDocument
from toolplug_file_search.documents.preparation import Cutting
from toolplug_file_search.documents.reader import DocumentReader, ReaderUnavailable

pytestmark = [pytest.mark.anyio, pytest.mark.process]

Serve = Callable[..., AbstractAsyncContextManager[Any]]
PROBE = Path(__file__).with_name("probe") / "documents"
CUTTING = Cutting(size=1500, overlap=200)


class Read(NamedTuple):
    """What the worker made of a document: its passages, the headings of each, and what is left out."""

    texts: Sequence[str]
    headings: Sequence[str]
    left_out: str

    @property
    def text(self) -> str:
        return "\n\n".join(self.texts)


def reader_of(**limits: float) -> DocumentReader:
    return DocumentReader(CUTTING, logging.getLogger("reader"), **limits)


def read(reader: DocumentReader, name: str, content: bytes) -> Read:
    with reader.read(name, content) as prepared:
        parts: list[Mapping[str, Any]] = list(prepared.parts())
    passages = [part["passage"] for part in parts if "passage" in part]
    return Read([each[0] for each in passages], [each[1] for each in passages], parts[-1]["left_out"])


@pytest.fixture(scope="module")
def reader() -> Generator[DocumentReader]:
    """One reader for all: what is wrong with a document must not reach the next one."""
    with closing(reader_of()) as kept:
        yield kept


def refused(reader: DocumentReader, name: str, content: bytes) -> tuple[str, str]:
    with pytest.raises(UnreadableDocument) as raised:
        reader.read(name, content)
    return raised.value.code, str(raised.value)


def encrypted() -> bytes:
    writer, target = pypdf.PdfWriter(clone_from=io.BytesIO((PROBE / "en2.pdf").read_bytes())), io.BytesIO()
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(target)
    return target.getvalue()


def pdf(*objects: bytes) -> bytes:
    """A PDF of one page, whose content is object 4."""
    target = io.BytesIO(b"")
    target.write(b"%PDF-1.4\n")
    pages = (b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>")
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<<>>>>"
    places: list[int] = []
    for number, content in enumerate((*pages, page, *objects), 1):
        places.append(target.tell())
        target.write(b"%d 0 obj\n%b\nendobj\n" % (number, content))
    start = target.tell()
    target.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(places) + 1))
    target.write(b"".join(b"%010d 00000 n \n" % place for place in places))
    target.write(b"trailer<</Root 1 0 R/Size %d>>\nstartxref\n%d\n%%%%EOF" % (len(places) + 1, start))
    return target.getvalue()


def pdf_bomb() -> bytes:
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(b"(x) Tj " * 1_000_000) for _ in range(60)) + packer.flush()
    return pdf(b"<</Filter/FlateDecode/Length %d>>\nstream\n%b\nendstream" % (len(packed), packed))


def docx(document: bytes, **parts: bytes) -> bytes:
    target = io.BytesIO()
    kinds = (
        b'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Override PartName='
        b'"/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document'
        b'.main+xml"/></Types>'
    )
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", kinds)
        archive.writestr("word/document.xml", document)
        for name, content in parts.items():
            archive.writestr(f"word/{name}", content)
    return target.getvalue()


def docx_bomb() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("word/document.xml", "w") as part:
        for _ in range(MAX_UNPACKED // 1024 // 1024 + 1):
            part.write(bytes(1024 * 1024))
    return target.getvalue()


BILLION_LAUGHS = (
    b'<!DOCTYPE l [<!ENTITY a "ha">'
    + b"".join(b'<!ENTITY %c "%b">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(12))
    + b"]><l>&m;</l>"
)


@pytest.mark.requirement("I2-8-hostile-documents")
@pytest.mark.parametrize(
    ("name", "content", "code", "says"),
    [
        ("cut.pdf", (PROBE / "en2.pdf").read_bytes()[:3000], "damaged_file", "cannot be read as PDF"),
        ("none.pdf", b"%PDF-1.7", "damaged_file", "cannot be read as PDF"),
        ("secret.pdf", encrypted(), "encrypted_file", "it needs a password"),
        ("scan.pdf", pdf(b"<</Length 0>>\nstream\n\nendstream"), "empty_file", "need text recognition"),
        ("bomb.pdf", pdf_bomb, "", ""),
        ("cut.docx", (PROBE / "en5.docx").read_bytes()[:20_000], "damaged_file", "cannot be read as docx"),
        ("bomb.docx", docx_bomb, "file_too_large", "bytes unpacked"),
        ("laughs.docx", docx(BILLION_LAUGHS), "damaged_file", "cannot be read as docx"),
        ("old.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "unsupported_file", "encrypted Office file"),
        ("table.xlsx", b"PK\x03\x04" + bytes(30), "unsupported_file", "holds no Word document"),
        ("empty.html", b"<html><script>x()</script></html>", "empty_file", "no text"),
        ("noise.txt", bytes(range(256)) * 10, "not_text", "is not text"),
        ("empty.txt", b"", "empty_file", "is empty"),
    ],
)
def test_a_hostile_or_broken_document_is_refused_with_its_reason_and_the_next_is_read(
    reader: DocumentReader, name: str, content: bytes | Callable[[], bytes], code: str, says: str
) -> None:
    found, message = refused(reader, name, content() if callable(content) else content)
    assert not code or found == code
    assert says in message
    assert repr(name) in message
    assert "currency" not in read(reader, "en4.html", (PROBE / "en4.html").read_bytes()).text


def test_a_document_that_takes_too_long_is_given_up_and_the_next_is_read(reader: DocumentReader) -> None:
    with closing(reader_of(deadline_s=0.05)) as impatient:
        code, message = refused(impatient, "a.txt", b"word " * 1_000_000)
    assert (code, message) == ("too_complex", "'a.txt' cannot be read: reading it takes longer than 0.05 s")


@pytest.mark.parametrize(
    ("name", "content", "document"),
    [
        ("lies.pdf", b"plain text", Document("plain text", "plain")),
        (
            "lies.txt",
            b"<!doctype html><title>T</title><h2>A</h2><p>b &amp; c",
            Document("# T\n\n## A\n\nb & c", "markdown"),
        ),
        ("a.csv", b"a;b\n1;2\n3;\n", Document("a: 1; b: 2\n\na: 3", "plain")),
        ("a.csv", b"one line only", Document("one line only", "plain")),
        ("a.py", b"def f(): ...", Document("def f(): ...", "plain")),
        ("a.txt", "grün".encode("utf-16"), Document("grün", "plain")),
        ("a.txt", b"\xef\xbb\xbfbom", Document("bom", "plain")),
    ],
)
def test_a_document_is_what_its_content_says(name: str, content: bytes, document: Document) -> None:
    assert convert(name, content)._replace(left_out=()) == document


def test_pages_and_headings_lead_to_the_passage(reader: DocumentReader) -> None:
    assert read(reader, "x", (PROBE / "en2.pdf").read_bytes()).headings == ["page 1"]
    first = read(reader, "x", (PROBE / "en5.docx").read_bytes())
    assert first.headings[0] == "Office rules"
    assert first.text.startswith("# Office rules\n\nDogs are welcome")


def test_a_document_that_ends_the_process_has_failed_and_the_next_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with closing(reader_of()) as reader:
        read(reader, "a.txt", b"river")
        pid = reader.process.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)  # the next document is written, and not read
        late = Timer(0.1, os.kill, (pid, signal.SIGKILL))
        late.start()
        code, message = refused(reader, "b.txt", b"lake " * 100_000)
        late.join()
        assert (code, message) == ("too_complex", "'b.txt' cannot be read: its reader ended (signal 9)")
        assert read(reader, "c.txt", b"river").text == "river"
    assert "the reader of documents ended at 'b.txt': its process ended (signal 9)" in caplog.text


@pytest.mark.requirement("I30-1-reader-starts")
def test_a_process_that_cannot_start_is_no_fault_of_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho \"ImportError: no module named 'lxml'\" >&2\nexit 1\n")
    broken.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(broken))
    with closing(reader_of()) as reader, pytest.raises(ReaderUnavailable) as raised:
        reader.read("a.txt", b"river")
    assert str(raised.value) == (
        "the reader of documents does not start (status 1): ImportError: no module named 'lxml'"
    )


@pytest.mark.requirement("I30-1-reader-starts")
async def test_while_the_reader_cannot_start_files_wait_and_doctor_says_why(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'ImportError: no numpy' >&2\nexit 1\n")
    broken.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(broken))
    async with serve(run={"process": False}) as served:
        file = await served.one.upload("a.txt", "river")
        store = await served.one.store(file_ids=[file])
        [said] = await served.host.registry.running()["file_search"].provider.diagnose()
        assert said.startswith("the reader of documents does not start (status 1): ImportError: no numpy")
        while "the reader of documents does not start" not in caplog.text:
            await served.one.member(store, file)
        assert (await served.one.member(store, file))["status"] == "in_progress"
    monkeypatch.undo()
    async with serve() as served:
        assert (await served.one.read(store, file))["status"] == "completed"


@pytest.mark.requirement("I2-8-skipped")
async def test_what_is_skipped_is_listed_with_its_reason_and_counted_for_doctor(serve: Serve, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("river")
    (docs / "b.pdf").write_bytes(encrypted())
    (docs / "c.png").write_bytes(b"\x89PNG")
    async with serve(paths=[str(docs)]) as served:
        file = await served.one.upload("d.pdf", b"%PDF-1.7")
        await served.one.read(await served.one.store(file_ids=[file]), file)
        listed = json.loads((await served.one.call("list_files")).output)
        other = json.loads((await served.two.call("list_files")).output)
        reasons = {Path(each["file"]).name: each["reason"] for each in listed["skipped"]}
        assert [Path(each["file"]).name for each in listed["files"]] == ["a.md"]
        assert reasons["b.pdf"].endswith("is encrypted: it needs a password")
        assert reasons["c.png"].startswith("a file with '.png'; text, Markdown, HTML")
        assert "cannot be read as PDF" in reasons["d.pdf"]
        assert [Path(each["file"]).name for each in other["skipped"]] == ["b.pdf", "c.png"]
        provider = served.host.registry.running()["file_search"].provider
        [said] = await provider.diagnose()
        assert said.startswith("2 of the files of paths cannot be searched, such as ")
