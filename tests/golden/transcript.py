"""What was said over the wire as a text that is the same at every run, for people to read and for a diff.

A body of compact JSON is shown indented where that loses nothing: written compactly again, it is the same bytes. All
other bodies stand as they are, with ␍ for a carriage return and ␊ for a last line feed. Only what is random or comes
from a clock is replaced, by a placeholder that keeps the shape of a time.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SHORT = 120
"""A body of JSON up to this length stays on its line."""

AS_BODY = "<length of the body>"

Headers = list[tuple[bytes, bytes]]

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?")
_PACKAGES = "python|toolplug|pluggy|pydantic|starlette|prometheus-client|uvicorn|pyjwt"
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(timed out after) [0-9.e-]+ s"), r"\1 <seconds> s"),
    (re.compile(r"(retry in) [0-9.]+ s"), r"\1 <seconds> s"),
    (re.compile(r'(retry in .*"retry_after_s": ?)[0-9.]+', re.DOTALL), r"\1<seconds>"),
    (re.compile(r"^(retry-after: )[0-9]+$", re.MULTILINE), r"\1<seconds>"),
    (re.compile(r"^(x-request-id: )[0-9a-f]{16}$", re.MULTILINE), r"\1<request_id>"),
    (re.compile(r'("request_id": ?")[0-9a-f]{16}"'), r'\1<request_id>"'),
    (re.compile(r'W/"(\d+)-[0-9a-f]{16}"'), r'W/"\1-<hash>"'),
    (re.compile(r'("configHash": ?)"[0-9a-f]{64}"'), r'\1"<hash>"'),
    (re.compile(r'("(?:created|completed|failed)_at": ?)[0-9]{10}'), r"\1<seconds>"),
    (re.compile(rf"\b({_PACKAGES}) [0-9][0-9.]*[0-9]"), r"\1 <version>"),
    (re.compile(rf'("(?:{_PACKAGES})": ")[0-9.]+"'), r'\1<version>"'),
    (re.compile(r"(approval ')[0-9a-f]{24}'"), r"\1<ticket>'"),
    (re.compile(r'("id": ?")[0-9a-f]{24}"'), r'\1<ticket>"'),
    # Sent before it was logged: how far the stream had read by then depends on the machine.
    (re.compile(r"^id: (?![0-9]*0000$)[0-9]{5,18}$", re.MULTILINE), "id: <next>"),
    (re.compile(r'"call_[0-9a-f]{16}"'), '"call_<random>"'),
    (re.compile(r"^(\w+_created(?:\{.*\})?) [0-9.e+]+$", re.MULTILINE), r"\1 <seconds>"),
    (re.compile(r"^(\w+_sum\{.*\}) [0-9.e-]+$", re.MULTILINE), r"\1 <seconds>"),
    (re.compile(r"^(\w+_timestamp_seconds) [0-9.e+]+$", re.MULTILINE), r"\1 <seconds>"),
    (re.compile(r"^(\w+_store_operation_\w+\{.*\}) [0-9.]+$", re.MULTILINE), r"\1 <count>"),
    (re.compile(r'^(\w+_build_info\{)python="[0-9.]+",version="[^"]+"', re.MULTILINE), r'\1python="<a>",version="<b>"'),
    (re.compile(r'^(\w+_bucket\{.*le="[0-9.]+".*\}) [0-9.]+$', re.MULTILINE), r"\1 <count>"),
)


@dataclass
class Exchange:
    """One request and its answer: `given` and `content` are what is shown of its headers and of its body.

    `keeps_body` False: of the body nothing is recorded, its length neither.
    """

    request: str
    given: str
    content: bytes = b""
    status: int = 0
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    keeps_body: bool = True


class Transcript:
    """Titles, exchanges and blocks of text, in the order in which they began."""

    def __init__(self) -> None:
        self._said: list[str | Exchange] = []
        self._hidden: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def add(self, said: str | Exchange) -> None:
        self._said.append(said)

    def hide(self, value: str, placeholder: str) -> None:
        """Replace the value wherever it stands, in what was recorded before too."""
        self._hidden.setdefault(value, placeholder)

    def number(self, value: str, name: str) -> None:
        """Hide the value as the next one of its name: `<code 1>`, `<code 2>`."""
        if value not in self._hidden:
            self._counts[name] = self._counts.get(name, 0) + 1
            self.hide(value, f"<{name} {self._counts[name]}>")

    def text(self) -> str:
        """Everything, normalised."""
        return "\n".join(self._shown(said) for said in self._said)

    @staticmethod
    def compare(path: Path, text: str, *, recording: bool) -> None:
        """Fail with a unified diff where the file says something else, or write the file."""
        if recording:
            path.write_bytes(text.encode())
            return
        golden = path.read_bytes().decode() if path.exists() else ""
        if golden == text:
            return
        lines = difflib.unified_diff(
            golden.split("\n"), text.split("\n"), f"golden/{path.name}", "what is sent now", lineterm="", n=8
        )
        advice = "If this change is meant, record it: pytest tests/golden --record-golden"
        pytest.fail("\n".join([*lines, advice]), pytrace=False)

    def _shown(self, said: str | Exchange) -> str:
        if isinstance(said, str):
            return self._masked(said)
        plain = _decoded(said.body)
        length = AS_BODY if self._masked(plain) != plain or not said.keeps_body else None
        headers = "\n".join(sorted(_header(name, value, said, length) for name, value in said.headers))
        given = "".join(f"{part}\n" for part in (said.given, self._body(said.content)) if part)
        head = self._masked(f">>> {said.request}\n{given}<<< {said.status}\n{headers}\n")
        if not said.keeps_body:
            return f"{head}\n(the body is not recorded)\n"
        return f"{head}\n{self._body(said.body)}" if said.body else head

    def _body(self, body: bytes) -> str:
        """The body, normalised. Whether JSON is short is asked of what stands here: the length of a path is no byte."""
        if not body:
            return ""
        text = _decoded(body)
        is_short = len(self._masked(text)) <= SHORT
        return self._masked(shown(text, is_short=is_short))

    def _masked(self, text: str) -> str:
        for value in sorted(self._hidden, key=len, reverse=True):
            text = text.replace(value, self._hidden[value])
        text = _TIME.sub(lambda found: f"<{re.sub('[0-9]', '0', found[0])}>", text)
        for pattern, placeholder in _PATTERNS:
            text = pattern.sub(placeholder, text)
        return text


def _header(name: bytes, value: bytes, said: Exchange, length: str | None) -> str:
    shown = value.decode("latin-1")
    if length is not None and name == b"content-length" and (value == b"%d" % len(said.body)):
        shown = length
    return f"{name.decode('latin-1')}: {shown}"


def _decoded(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return f"(bytes) {body!r}"


def shown(text: str, *, is_short: bool = True) -> str:
    """The text so that each of its bytes can be seen; JSON that is not short is indented."""
    text = text.replace("\r", "␍")
    if not is_short and (indented := _indented(text)) is not None:
        return f"(compact JSON, indented here)\n{indented}\n"
    return f"{text[:-1]}␊\n" if text.endswith("\n") else f"{text}\n"


def _indented(text: str) -> str | None:
    """The JSON text indented, where it can be written compactly again without the loss of a byte."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if json.dumps(value, ensure_ascii=False, separators=(",", ":")) != text:
        return None
    return json.dumps(value, ensure_ascii=False, indent=1)
