"""Documents as programs and people damage them: what can be read of them is found, and what cannot is listed."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from toolplug_file_search.documents.conversion import convert

pytestmark = pytest.mark.requirement("I30-6-parts-of-documents")

Serve = Callable[..., AbstractAsyncContextManager[Any]]
ODD = Path(__file__).with_name("probe") / "odd"
PDF = (ODD / "one-bad-page-of-20.pdf").read_bytes()
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"

WORDS = {
    "unclosed-paragraphs.html": ["wordpara7", "wordpara399"],
    "unclosed-rows.html": ["wordrow299"],
    "deep-divs.html": ["shallowword", "deepword"],
    "missing-link.docx": ["missinglinkword", "otherparagraphword"],
    "missing-footnote.docx": ["bodyfootnoteword"],
    "style-without-id.docx": ["bodystyleword"],
    "field-ruby-rtl.docx": ["mergefieldword", "東京特許許可局", "bidirectionalword"],
    "header.docx": ["headerpolicyword", "bodyheaderdocword"],
    "one-bad-page-of-20.pdf": ["keeppage0word", "keeppage19word"],
    "no-cross-reference.pdf": ["noxrefpageword"],
    "mentions-the-magic.md": ["magicmentionword"],
    "code.py": ["pdfsniffword"],
}


@pytest.mark.process
@pytest.mark.anyio
async def test_all_are_found_and_the_page_that_cannot_be_read_is_listed(serve: Serve) -> None:
    async with serve(paths=[str(ODD)]) as served:
        for name, words in WORDS.items():
            for word in words:
                found = await served.one.found(word, max_results=1)
                assert [Path(item["file"]).name for item in found] == [name], word
        listed = json.loads((await served.one.call("list_files")).output)
        assert listed["skipped"] == []
        assert {Path(each["file"]).name: each["left_out"] for each in listed["files"] if "left_out" in each} == {
            "one-bad-page-of-20.pdf": "page 8: damaged, or too much work"
        }
        store, file = await served.one.add("pages.pdf", PDF)
        assert (await served.one.member(store, file))["left_out"] == "page 8: damaged, or too much work"


@pytest.mark.parametrize(
    "page",
    [
        "<ul>" + "<li>word" * 600,
        "<dl>" + "<dt>term<dd>word" * 300,
        "<table>" + "<tr><th>a<td>word" * 300,
        "<select>" + "<option>word" * 400,
        "<div>" * 400 + "word" + "</div>" * 400,
        "<blockquote>" * 5_000 + "word",
        "<b><i>" * 1_000 + "word",
        "<table><tr><td>" * 300 + "word",
        "<p>word<script>var a = '</p>'</script><p>word<style>p {</style>",
        "<?xml version='1.0' encoding='iso-8859-1'?><html xmlns='http://www.w3.org/1999/xhtml'><body><p>word</p></body>",
        "<HTML><BODY><P>word<BR>word<HR></BODY></HTML>",
        "<p>word</div></span></table></p></body></html></html>",
        "<p title='unclosed>text</p><p>word</p>'>word",
    ],
    ids=range(13),
)
@pytest.mark.slow
def test_html_is_read_whatever_its_end_tags_and_nesting(page: str) -> None:
    assert "word" in convert("a.html", page.encode()).text


@pytest.mark.parametrize(
    "page", ['<p>a <img src="x.png" alt="sales by year"> b</p>', "<div>" * 400], ids=["flat", "deep"]
)
def test_the_text_of_an_image_is_text_of_the_page(page: str) -> None:
    text = convert("a.html", f'{page}<img alt="a map"><img src="y.png" alt=""><img>end'.encode()).text
    assert " ".join(text.split()) == ("a sales by year b a map end" if "sales" in page else "a map end")


def docx(body: str, **parts: str | bytes) -> bytes:
    target = io.BytesIO()
    document = f'<w:document xmlns:w="{W}" xmlns:r="urn:r"><w:body>{body}</w:body></w:document>'
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", document)
        for name, content in parts.items():
            archive.writestr(f"word/{name.replace('__', '/').replace('_xml', '.xml')}", content)
    return target.getvalue()


TEXT = "<w:p><w:r><w:t>word</w:t></w:r></w:p>"


@pytest.mark.parametrize(
    "content",
    [
        docx(TEXT, styles_xml="<broken"),
        docx(TEXT, styles_xml=f'<w:styles xmlns:w="{W}"><w:style/><w:style w:type="paragraph"/></w:styles>'),
        docx(TEXT, numbering_xml="", footnotes_xml="no XML at all"),
        docx('<w:p><w:pPr><w:pStyle w:val="gone"/><w:numPr><w:numId w:val="9"/></w:numPr></w:pPr>' + TEXT[5:]),
        docx('<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val="x"/></w:tcPr>' + TEXT + "</w:tc></w:tr></w:tbl>"),
        docx('<w:p><w:hyperlink r:id="rId9"><w:r><w:t>word</w:t></w:r></w:hyperlink></w:p>'),
        docx('<w:p><w:r><w:endnoteReference w:id="7"/><w:t>word</w:t></w:r></w:p>'),
        docx('<w:p><w:smartTag><w:fldSimple w:instr="x"><w:r><w:t>word</w:t></w:r></w:fldSimple></w:smartTag></w:p>'),
        docx('<w:p><w:r><w:drawing><wp:inline xmlns:wp="urn:w"/></w:drawing><w:t>word</w:t></w:r></w:p>'),
        docx("<w:p><w:dir><w:bdo><w:r><w:t>word</w:t></w:r></w:bdo></w:dir></w:p>"),
        docx('<w:altChunk r:id="a"/>' + TEXT),
        docx(TEXT + "<w:p><w:r><w:t>cut"),
        docx(TEXT).replace(b"word/document.xml", b"word\\document.xml"),
    ],
    ids=range(13),
)
def test_docx_is_read_whatever_its_references_lead_to(content: bytes) -> None:
    assert "word" in convert("a.docx", content).text


def test_comments_diagrams_and_charts_of_a_docx_follow_its_text() -> None:
    said = f'<w:comments xmlns:w="{W}"><w:comment>{TEXT.replace("word", "why?")}</w:comment></w:comments>'
    drawn = '<m xmlns:a="urn:a"><a:p><a:r><a:t>{}</a:t></a:r></a:p></m>'
    parts = {"diagrams__data1_xml": drawn.format("step one"), "charts__chart1_xml": drawn.format("tea by year")}
    found = convert("a.docx", docx(TEXT, comments_xml=said, **parts))
    assert found.text.split("\n\n") == ["word", "why?", "step one", "tea by year"]


def test_an_embedded_page_of_a_docx_is_read_and_one_that_is_missing_is_listed() -> None:
    targets = {"a": "part.html", "b": "gone.rtf"}
    relations = "".join(f'<Relationship Id="{name}" Target="{target}"/>' for name, target in targets.items())
    chunks = '<w:altChunk r:id="a"/><w:altChunk r:id="b"/>'
    found = convert(
        "a.docx", docx(chunks, **{"_rels__document_xml.rels": f"<R>{relations}</R>", "part.html": "<p>embedded page"})
    )
    assert (found.text, found.left_out) == ("embedded page", ["the embedded document 'gone.rtf'"])


@pytest.mark.parametrize(
    "content",
    [
        PDF.replace(b"%%EOF", b""),
        PDF[: PDF.rindex(b"xref", 0, PDF.rindex(b"startxref")) + 40],
        PDF[: PDF.rindex(b"trailer")],
        re.sub(rb"startxref\s+\d+", b"startxref\n999999", PDF),
        re.sub(rb"startxref\s+\d+", b"startxref\n-1", PDF),
        re.sub(rb"/Kids\s*\[", b"/Kids [2 0 R 1 0 R ", PDF),
        re.sub(rb"/Kids\s*\[", b"/Kids [null 99 0 R (x) ", PDF),
        re.sub(rb"/Count \d+", b"/Count 9999", PDF),
        re.sub(rb"/Kids", b"/Kidz", PDF),
        PDF.replace(b"/Catalog", b"/Catalox"),
        PDF.replace(b"/Pages ", b"/Pagez "),
        b"\0\1\2 a header of mail\n" + PDF,
        b"\n\n" + PDF,
    ],
    ids=range(13),
)
@pytest.mark.slow
def test_pdf_is_read_whatever_its_tables_say(content: bytes) -> None:
    found = convert("a.pdf", content)
    assert "keeppage0word" in found.text
    assert "keeppage19word" in found.text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("mail.txt", b"From: a\nSubject: the header %PDF-1.7 of a word\n"),
        ("page.html", b"<p>A file begins with %PDF-1.4: word</p>"),
        ("a.md", b"%PDF- begins each such file: word"),
        ("gif.txt", b"GIF89a is a word for an image"),
        ("zip.md", b"PK\3\4 and word/ are the magic numbers of docx: word"),
        ("sqlite.txt", b"SQLite format 3 is a word"),
        ("notes", b"%PDF-1.7 word"),
        ("a.csv", b"magic,kind\n%PDF-,word\n"),
        ("hole.log", b"started\n" * 100 + bytes(400) + b"a word after a crash\n"),
        ("one.log", b"a line\0\nanother word\n"),
        ("marks.log", b"\x1b[31mred word\x1b[0m\n" * 10),
        ("feed.txt", b"a page\x0canother \x01 word\n"),
        ("wide.txt", "a word\nanother\n".encode("utf-16-le")),
        ("wide.txt", "Привет, word\nмир\n".encode("utf-16-be")),
        ("wide.txt", "东京是日本的首都。\nword\n".encode("utf-16-le")),
        ("wide.txt", "a word\n".encode("utf-32-be")),
        ("odd.txt", "a word\n".encode("utf-16-le") + b"x"),
        ("mixed.log", "größe word\n".encode() * 30 + b"\xff\xfe\n"),
        ("latin.txt", "Über Straßen und Wälder: word".encode("latin-1")),
    ],
    ids=range(19),
)
def test_what_decodes_as_text_is_text_whatever_it_mentions(name: str, content: bytes) -> None:
    assert "word" in convert(name, content).text
