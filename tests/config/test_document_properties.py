"""Laws of the reader over generated documents."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from toolplug.config.document import Document, parse_document
from toolplug.config.yaml_tree import MAX_DEPTH
from toolplug.errors import ConfigError

# Numbers of YAML 1.2 that YAML 1.1, which PyYAML writes, takes for text and leaves without quotes.
NEWER_NUMBER = re.compile(r"0o[0-7]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")

texts = st.text(st.characters(codec="utf-8"), max_size=20).filter(lambda text: not NEWER_NUMBER.fullmatch(text))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=20
)
mappings = st.dictionaries(texts, values, max_size=5)


@pytest.mark.slow
@given(mappings)
def test_what_pyyaml_writes_is_read_back_equal(mapping: dict[str, object]) -> None:
    text = yaml.safe_dump(mapping)

    assert parse_document(text.encode(), file="p.yaml").value == mapping


# U+2028 and U+2029 are line breaks to a YAML 1.1 parser, and a key ends at its line.
json_texts = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff\ufeff\u2028\u2029")
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | json_texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(json_texts, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(json_texts, json_values, max_size=5))
def test_json_is_read_as_json(mapping: dict[str, object]) -> None:
    text = json.dumps(mapping, ensure_ascii=False)

    assert parse_document(text.encode(), file="p.yaml").value == mapping


def read(data: bytes) -> Document | ConfigError:
    try:
        return parse_document(data, file="p.yaml")
    except ConfigError as error:
        return error


def assert_bounded(outcome: Document | ConfigError) -> None:
    if isinstance(outcome, ConfigError):
        assert outcome.problems
        assert all(problem.file == "p.yaml" and problem.message for problem in outcome.problems)
    else:
        assert outcome.root.depth <= MAX_DEPTH


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    assert_bounded(read(data))


@given(st.text(alphabet="ab:-[]{}&*!|>%?#'\"<,~$ \t\n\r\\0x1.", max_size=120))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert_bounded(read(text.encode()))


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), values, min_size=1), st.data())
def test_every_value_has_a_mark_inside_the_text(mapping: dict[str, object], data: st.DataObject) -> None:
    text = yaml.safe_dump(mapping)
    document = parse_document(text.encode(), file="p.yaml")
    key = data.draw(st.sampled_from(sorted(mapping)))
    mark = document.key_mark((key,))

    assert text.splitlines()[mark.line - 1].startswith(f"{key}:")
    assert mark.column == 1
    assert document.key_mark((key,)).line <= document.position_of((key,)).line <= text.count("\n")
