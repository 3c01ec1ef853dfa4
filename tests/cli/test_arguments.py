"""From the words of a command line to the arguments of a tool."""

from __future__ import annotations

import pytest
import typer

from toolplug.cli.arguments import arguments_from

SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "names": {"type": "array", "items": {"type": "string"}},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "colour": {"$ref": "#/$defs/Colour"},
        "level": {"enum": [1, 2]},
        "itself": {"$ref": "#/$defs/Loop"},
    },
    "$defs": {"Colour": {"enum": ["red", "1"]}, "Loop": {"$ref": "#/$defs/Loop"}},
}


@pytest.mark.requirement("C-10-call-pairs")
@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("text=5", "5"),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ("text={}", "{}"),
        ("count=5", 5),
        ('names=["a"]', ["a"]),
        ("maybe=hello", "hello"),
        ("maybe=null", None),
        ("maybe=5", "5"),
        ("either=5", 5),
        ("either=true", "true"),
        ("colour=1", "1"),
        ("level=2", 2),
        ("itself=x", "x"),
        ("unknown=5", 5),
        ("unknown=five", "five"),
    ],
)
def test_a_value_is_text_where_the_schema_says_string_and_json_elsewhere(word: str, value: object) -> None:
    assert arguments_from([word], SCHEMA) == {word.partition("=")[0]: value}


@pytest.mark.requirement("C-10-call-json")
def test_one_word_may_be_the_whole_object() -> None:
    assert arguments_from(['{"text": "a", "count": 1}'], SCHEMA) == {"text": "a", "count": 1}
    assert arguments_from([], SCHEMA) == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["text"], "neither key=value nor"),
        (["=5"], "neither key=value nor"),
        (["text=a", "text=b"], "twice"),
        (["count=five"], "count must be an integer, not .five."),
        (["{"], "not JSON"),
    ],
)
def test_words_that_mean_no_arguments_are_refused_in_words(words: list[str], said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        arguments_from(words, SCHEMA)
