"""What is masked: each kind, and every place of a result."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolplug import ToolResult
from toolplug_guard.masking import MAX_PARSED, Masker
from toolplug_guard.patterns import KINDS, SHORT_BYTES, Detector, Kind, Span, compile_pattern

ALL = Detector(list(KINDS.values()))
KEY = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEow+/==\n-----END RSA PRIVATE KEY-----"


def masker() -> Masker:
    return Masker(ALL, "<{kind}>")


FOUND = [
    ("key sk-proj-abcdefghijklmnopqrstuv123!", "key <api_keys>!"),
    ("sk-ant-api03-" + "a" * 40, "<api_keys>"),
    ("ghp_" + "a" * 36, "<api_keys>"),
    ("AWS AKIAIOSFODNN7EXAMPLE.", "AWS <api_keys>."),
    ("AIza" + "b" * 35, "<api_keys>"),
    (f"{KEY}\nend", "<private_keys>\nend"),
    (KEY.replace("\n", "\\n"), "<private_keys>"),
    ("cut: " + KEY[:60], "cut: <private_keys>"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----", "<private_keys>"),
    (
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1 (x)\n\nlQ=\n-----END PGP PRIVATE KEY BLOCK-----",
        "<private_keys>",
    ),
    ("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln-_ ok", "Bearer <jwt> ok"),
    ("postgres://bob:s3cret@db/x", "postgres://bob:<url_passwords>@db/x"),
    ("redis://:s3cret@cache", "redis://:<url_passwords>@cache"),
    ("card 4111 1111 1111 1111, 123", "card <credit_cards>, 123"),
    ("4111-1111-1111-1111 123", "<credit_cards> 123"),
    ("4111111111111111", "<credit_cards>"),
    ("4999 4111 1111 1111 1111", "4999 <credit_cards>"),
    ("378282246310005 and 3782 822463 10005", "<credit_cards> and <credit_cards>"),
    ("6011111111111117 30569309025904 3530111333300000", "<credit_cards> <credit_cards> <credit_cards>"),
    ("IBAN DE89 3704 0044 0532 0130 00 BIC COBADEFF", "IBAN <iban> BIC COBADEFF"),
    ("NO9386011117947, GB29NWBK60161331926819", "<iban>, <iban>"),
    ("ünï <ada.l+x@example.co.uk>.", "ünï <<email>>."),
    ("call +49 (170) 123-45-67 or (415) 555-2671", "call <phone> or <phone>"),
    ("+4917012345678 415-555-2671", "<phone> <phone>"),
]


@pytest.mark.requirement("I3-guard-mask")
@pytest.mark.parametrize(("text", "masked"), FOUND)
def test_a_secret_or_personal_datum_is_replaced_and_the_rest_stays(text: str, masked: str) -> None:
    assert masker().text(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain text, 12 items at 3.50",
        "sk-short",
        "task-0123456789012345678901234567890",
        "-----BEGIN PUBLIC KEY-----",
        "4111 1111 1111 1112",
        "order 1700000000000",
        "DE88 3704 0044 0532 0130 00",
        "ZZ89 3704 0044 0532 0130 00",
        "@example.com",
        "1+1234567890",
        "2026-11-24 10:00",
        "https://example.com:8080/path@x",
    ],
)
def test_a_text_that_only_looks_like_one_stays(text: str) -> None:
    assert masker().text(text) == text


def test_findings_that_overlap_are_masked_as_one() -> None:
    kinds = [Kind("a", compile_pattern("abc")), Kind("b", compile_pattern("cde")), Kind("c", compile_pattern("bc"))]
    overlapping = Masker(Detector(kinds), "<{kind}>")
    assert overlapping.text("xabcdex abc") == "x<a>x <a>"
    assert overlapping.found == Counter(a=2)
    nested = Masker(
        Detector([Kind("outer", compile_pattern("abcdef")), Kind("inner", compile_pattern("bc"))]), "<{kind}>"
    )
    assert nested.text("xabcdefx") == "x<outer>x"


def test_a_pattern_with_a_group_masks_the_group() -> None:
    detector = Detector([Kind("password", compile_pattern(r"password[=:] ?(\S+)|pin (\d+)"))])
    assert (
        Masker(detector, "[{kind}]").text("password=x1 pin 12 password: y")
        == "password=[password] pin 12 password: [password]"
    )


@pytest.mark.requirement("I3-guard-mask")
def test_every_text_of_a_result_is_masked_and_counted_once() -> None:
    structured = {"to": ["ada@example.com", 4111111111111111, True, None, 1.5], "ada@example.com": {"n": 1}}
    given = ToolResult("1", "mail", json.dumps(structured), structured=structured)
    it = masker()
    masked = it.result(given)
    assert masked.structured == {"to": ["<email>", "<credit_cards>", True, None, 1.5], "<email>": {"n": 1}}
    assert json.loads(masked.output) == masked.structured
    assert it.found == Counter(email=2, credit_cards=1)
    assert given.structured is structured
    assert structured["to"][0] == "ada@example.com"  # pyright: ignore[reportIndexIssue]  the tool's own value stays


def test_parts_and_metadata_are_masked_except_for_binary_content() -> None:
    data = "ghp_" + "a" * 36
    parts = (
        {"type": "text", "text": "ada@example.com", "_meta": {"data": "ada@example.com"}},
        {"type": "image", "data": data, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "mail:ada@example.com", "text": "ada@example.com", "blob": data}},
        {"type": "resource_link", "uri": "x:y", "name": "ada@example.com"},
    )
    masked = masker().result(ToolResult("1", "x", parts=parts, metadata={"from": "ada@example.com"}))
    assert masked.parts == (
        {"type": "text", "text": "<email>", "_meta": {"data": "<email>"}},
        {"type": "image", "data": data, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "mail:<email>", "text": "<email>", "blob": data}},
        {"type": "resource_link", "uri": "x:y", "name": "<email>"},
    )
    assert masked.metadata == {"from": "<email>"}


def test_keys_that_become_equal_keep_their_values() -> None:
    given = {"ada@example.com": 1, "bob@example.com": 2, "<email> 2": 3}
    assert masker().value(given) == {"<email>": 1, "<email> 2": 2, "<email> 2 2": 3}


@pytest.mark.parametrize(
    ("output", "masked"),
    [
        ('{"a":"ada\\u0040example.com"}', '{"a":"<email>"}'),
        ('["-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----"]', '["<private_keys>"]'),
        ('{"a":1, "b":"x"}', '{"a":1, "b":"x"}'),
        ('{"a":"ada@example.com","a":1}', '{"a":"<email>","a":1}'),
        ('{"a": ada@example.com', '{"a": <email>'),
        ("[" * 10_000 + "ada@example.com", "[" * 10_000 + "<email>"),
    ],
)
def test_an_output_of_json_is_masked_by_its_values_and_any_other_as_text(output: str, masked: str) -> None:
    assert masker().result(ToolResult("1", "x", output)).output == masked


def test_an_output_that_is_not_the_json_of_the_structured_value_is_masked_too() -> None:
    masked = masker().result(ToolResult("1", "x", "to ada@example.com", structured={"to": "bob@example.com"}))
    assert (masked.output, masked.structured) == ("to <email>", {"to": "<email>"})


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")), st.lists))
def test_a_secret_anywhere_is_masked_and_json_stays_json(value: object) -> None:
    result = ToolResult("1", "x", structured={"a": [value, {"ada@example.com": value}], "b": "x ada@example.com"})
    masked = masker().result(result._replace(output=json.dumps(result.structured)))
    assert "ada@example.com" not in masked.output + json.dumps(masked.structured)
    assert json.loads(masked.output) == masked.structured


@pytest.mark.judge
@pytest.mark.parametrize(
    "text", ["a@b.co ", "4111 ", "DE89 1234 1234 ", "-----BEGIN PRIVATE KEY-----", "://:", "sk-", "+1 2"]
)
def test_a_hostile_text_of_a_mebibyte_takes_time_linear_in_its_length(text: str) -> None:
    list(ALL.findings((text * (2**20 // len(text))).encode(), until=inf))


def test_a_search_that_takes_too_long_ends() -> None:
    kind = Kind("slow", compile_pattern("a(?:.*b)?"))
    with pytest.raises(TimeoutError, match="the search for slow takes too long"):
        list(kind.spans(b"aaaa", until=0.0))


@pytest.mark.parametrize("pattern", [r"(?=a)", r"(a)\1", "(open", "a{1001}"])
def test_a_pattern_that_needs_backtracking_or_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a pattern of RE2: "):
        compile_pattern(pattern)


SPLIT = st.text(st.characters(codec="ascii"), max_size=12) | st.sampled_from(
    [text[:at] for text, _ in FOUND for at in (0, 7, 19, len(text))] + [text[7:] for text, _ in FOUND]
)


@given(st.lists(SPLIT, max_size=12))
def test_texts_that_are_searched_together_have_the_findings_that_each_has_alone(texts: list[str]) -> None:
    alone = {at: hits for at, text in enumerate(texts) if (hits := [*ALL.findings(text.encode(), inf)])}
    assert alone == ALL.findings_of(texts, inf)


def test_an_operators_own_pattern_is_searched_in_each_text_alone() -> None:
    own = Detector(
        [*KINDS.values(), Kind("whole", compile_pattern("^[0-9]+$")), Kind("across", compile_pattern("(?s)a.*b"))]
    )
    assert own.findings_of(["x1", "12", "a", "b", "a\nb", "ada@example.com"], inf).keys() == {1, 4, 5}


@pytest.mark.judge
@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ([1] * 300_000, 0),
        ([*range(1_000_000, 1_120_000)], 0),
        ({"rows": [{"id": number, "name": f"n{number}"} for number in range(30_000)]}, 0),
        (["plain words"] * 70_000, 0),
        ("a@b.co " * 140_000, 140_000),
        ([f"a{number}@b.co" for number in range(60_000)], 60_000),
    ],
    ids=["one number", "numbers", "rows", "texts", "addresses in one text", "addresses"],
)
def test_a_result_of_a_megabyte_is_checked_within_its_budget(value: Any, masked: int) -> None:
    is_text = isinstance(value, str)
    structured = None if is_text else {"value": value}
    result = ToolResult("1", "x", value if is_text else json.dumps(structured), structured=structured)
    checking = masker()
    checked = checking.result(result)
    assert (checking.found.total(), checked == result) == (masked, not masked)


class CountingDetector(Detector):
    """Counts the characters that are searched."""

    def __init__(self) -> None:
        super().__init__([*KINDS.values()])
        self.searched = 0

    def findings_of(self, texts: Sequence[str], until: float) -> dict[int, list[tuple[Span, str]]]:
        self.searched += sum(len(text) for text in texts if len(text) <= SHORT_BYTES)  # others are given to findings
        return super().findings_of(texts, until)

    def findings(self, text: bytes, until: float) -> Iterator[tuple[Span, str]]:
        self.searched += len(text)
        return super().findings(text, until)


@pytest.mark.parametrize("rows", [["plain words"], ["a@b.co"], ["plain words", "a@b.co"]], ids=["none", "all", "some"])
def test_json_is_searched_once_as_values_and_only_without_findings_as_text(rows: list[str]) -> None:
    value = {"value": [f"{row} {number}" for number in range(500) for row in rows]}
    detector = CountingDetector()
    output = json.dumps(value, indent=1)
    Masker(detector, "[{kind}]").result(ToolResult("1", "x", output, structured=value))
    values = sum(map(len, value["value"])) + len("value")
    assert detector.searched == values + (len(output) if rows == ["plain words"] else 0)


def test_an_output_of_json_that_is_too_large_to_be_read_is_an_error() -> None:
    with pytest.raises(ValueError, match="its output is JSON of more than 8,388,608 characters"):
        masker().result(ToolResult("1", "x", "[" + " " * MAX_PARSED))
