"""Results for the model and the host: without duplicates, pages in parts, with the sources of both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from toolplug import HostedItem, ToolResult
from toolplug.foreign import clean_text
from toolplug_web_search.backends import Hit
from toolplug_web_search.pages import Page
from toolplug_web_search.settings import ContextSize, DomainRules

SEARCH_ITEM = HostedItem(
    "web_search_call", events=("searching",), fields={"action": {"type": "search"}}, on_include=("action.sources",)
)
"""How the Responses API shows a search."""
PAGE_ITEM = HostedItem("web_search_call", events=("searching",), fields={"action": {"type": "open_page"}})
"""How the Responses API shows a page that was opened."""


class Sizes(NamedTuple):
    """Characters that a model gets of a snippet, and of a page at a time."""

    snippet: int
    page: int


SIZES: dict[ContextSize, Sizes] = {
    "low": Sizes(200, 4_000),
    "medium": Sizes(600, 12_000),
    "high": Sizes(2_000, 40_000),
}

_TRACKERS = re.compile(r"utm_\w+|gclid|fbclid|msclkid|mc_[ce]id|igshid|yclid", re.IGNORECASE)


def one_line(text: str) -> str:
    """Return the text without characters that nobody can see, and without line breaks."""
    if text.isascii() and text.isprintable() and "  " not in text:
        return text.strip()  # as most are: splitting takes twice as long
    return " ".join(clean_text(text).split())


def distinct(hits: Iterable[Hit]) -> list[Hit]:
    """Return the results, each page once, their text cleaned; the first of several wins."""
    found: dict[str, Hit] = {}
    for hit in hits:
        key = _page_key(hit.url)
        if key is not None and key not in found:
            found[key] = Hit(clean_text(hit.url), one_line(hit.title)[:300] or hit.url, one_line(hit.snippet), hit.date)
    return list(found.values())


def permit(hits: Sequence[Hit], rules: DomainRules) -> Sequence[Hit]:
    """Return the results that the rules permit."""
    if not rules:
        return hits
    return [hit for hit in hits if rules.permit(urlsplit(hit.url).hostname or "")]


def _page_key(url: str) -> str | None:
    """Return what is the same for URLs of one page; None for one that is not valid."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    host, path, query = parts.netloc.lower().removeprefix("www."), parts.path.rstrip("/"), parts.query
    if not host:
        return None
    if query:
        pairs = parse_qsl(query, keep_blank_values=True)
        query = urlencode(sorted(pair for pair in pairs if not _TRACKERS.fullmatch(pair[0])))
    return f"{host}{path}?{query}"


def search_result(query: str, hits: Sequence[Hit], size: ContextSize, age_s: float | None, notes: str) -> ToolResult:
    """Return the results for the model; sources and citations are in `metadata`."""
    most = SIZES[size].snippet
    shown = [
        {
            "title": hit.title,
            "url": hit.url,
            "snippet": hit.snippet if len(hit.snippet) <= most else f"{hit.snippet[:most].rstrip()} …",
            **({} if hit.date is None else {"date": hit.date}),
        }
        for hit in hits
    ]
    return ToolResult(
        structured={"results": shown, **_age(age_s), **({"note": notes} if notes else {})},
        metadata={
            "action": {
                "type": "search",
                "query": query,
                "queries": [query],
                "sources": [{"type": "url", "url": hit.url} for hit in hits],
            },
            "citations": [{"url": hit.url, "title": hit.title} for hit in hits],
        },
    )


def page_result(page: Page, start: int, size: ContextSize, age_s: float | None) -> ToolResult:
    """Return a part of a page for the model, and where the next one begins."""
    content, most = page.content, SIZES[size].page
    text = content.text
    end = min(start + most, len(text))
    title = content.title
    shown: dict[str, object] = {
        "url": page.url,
        "title": title,
        **({} if content.date is None else {"date": content.date}),
        "text": text[start:end],
        "characters": [start, end, len(text)],
        **({"next_start": end} if end < len(text) else {}),
        **({"note": "the page is longer than what is read of one"} if content.cut and end == len(text) else {}),
        **_age(age_s),
    }
    return ToolResult(
        structured=shown,
        metadata={
            "action": {"type": "open_page", "url": page.url},
            "citations": [{"url": page.url, "title": title or page.url}],
        },
    )


def _age(age_s: float | None) -> dict[str, int]:
    return {} if age_s is None else {"age_s": int(age_s)}
