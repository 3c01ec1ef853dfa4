"""Reading a document: what is accepted, what is refused, and the words for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from toolplug.config.composer import Composer, syntax_problem
from toolplug.config.document import Document, parse_document, read_document
from toolplug.config.yaml_tree import Mark
from toolplug.errors import ConfigError


def parsed(text: str) -> Document:
    return parse_document(text.encode(), file="p.yaml")


def refusal(data: str | bytes) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse_document(data if isinstance(data, bytes) else data.encode(), file="p.yaml")
    return [str(problem) for problem in refused.value.problems]


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "null\n", "~"])
def test_a_document_without_content_is_an_empty_mapping(text: str) -> None:
    assert parsed(text).value == {}


def test_values_come_back_in_file_order() -> None:
    document = parsed("b: [1, 2.5, x]\na: {d: true, c: null}\n")

    assert document.value == {"b": [1, 2.5, "x"], "a": {"d": True, "c": None}}
    assert list(document.value) == ["b", "a"]


def test_each_reading_of_the_value_gives_new_collections() -> None:
    document = parsed("a: &shared [1]\nb: *shared\n")
    first = document.value
    assert isinstance(first["a"], list)
    first["a"].append(2)

    assert first["b"] == [1]
    assert document.value == {"a": [1], "b": [1]}


def test_a_byte_order_mark_is_not_part_of_the_first_key() -> None:
    assert parsed("\ufeffa: 1").value == {"a": 1}


@pytest.mark.requirement("H-configuration-tabs")
def test_a_tab_that_indents_is_named() -> None:
    assert refusal("providers:\n  a:\n\tb: 1\n") == ["p.yaml:3:1: a tab cannot indent YAML (indent with spaces)"]


def test_a_tab_between_key_and_value_is_only_a_space() -> None:
    assert parsed("a:\tb\n").value == {"a": "b"}


@pytest.mark.requirement("H-configuration-several-documents")
def test_a_second_document_is_refused_where_it_begins() -> None:
    assert refusal("a: 1\n---\nb: 2\n") == [
        "p.yaml:2:1: a second document begins here; the file must hold one (remove the line '---' and what follows it)"
    ]


@pytest.mark.requirement("C-2-not-a-mapping")
@pytest.mark.parametrize(
    ("text", "found"), [("[a]", "a list"), ("- a\n", "a list"), ("text", "one value"), ('""', "one value")]
)
def test_a_document_that_is_not_a_mapping_is_refused(text: str, found: str) -> None:
    assert refusal(text) == [
        f"p.yaml:1:1: the document must be a mapping, not {found} (begin with a line such as 'providers:')"
    ]


@pytest.mark.requirement("H-configuration-not-utf-8")
def test_bytes_that_are_not_utf_8_are_located() -> None:
    assert refusal("a: 1\nü: ".encode() + b"\xff") == [
        "p.yaml:2:4: not UTF-8: byte 0xff at offset 9 (save the file as UTF-8)"
    ]
    assert refusal("a: 1".encode("utf-16")) == ["p.yaml:1:1: not UTF-8: byte 0xff at offset 0 (save the file as UTF-8)"]


def test_every_control_character_is_located() -> None:
    assert refusal("a: \x01\nb: x\x7f\n") == [
        'p.yaml:1:4: the control character U+0001 is not allowed (remove it, or write "\\u0001" in double quotes)',
        'p.yaml:2:5: the control character U+007F is not allowed (remove it, or write "\\u007f" in double quotes)',
    ]


def test_twenty_control_characters_are_enough_for_one_report() -> None:
    assert len(refusal("a: " + "\x01" * 20)) == 20
    assert len(refusal("a: " + "\x01" * 21)) == 20


@pytest.mark.requirement("H-configuration-duplicate-keys", "C-2-duplicate-key")
def test_a_doubled_key_names_both_lines() -> None:
    assert refusal("providers:\n  web: {}\n  files: {}\n  web: {}\n") == [
        "p.yaml:4:3: providers.web: duplicate key 'web' (lines 2 and 4) (keep one of them)"
    ]


def test_the_same_key_in_another_mapping_is_not_doubled() -> None:
    assert parsed("a: {x: 1}\nb: {x: 1}\n").value == {"a": {"x": 1}, "b": {"x": 1}}


@pytest.mark.requirement("H-configuration-tags")
@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!binary", "!!timestamp", "!!set", "!mine"])
def test_a_tag_that_is_not_of_the_core_is_refused(tag: str) -> None:
    assert refusal(f"a: {tag} x\n") == [
        f"p.yaml:1:4: a: the tag {tag!r} is not allowed (remove the tag; plain values need none)"
    ]


@pytest.mark.parametrize("text", ["a: !!python/tuple [1]\n", "a: !!set {x: }\n", "a: !!map [1]\n", "a: !!seq {x: 1}\n"])
def test_a_tag_on_a_collection_is_refused_too(text: str) -> None:
    [problem] = refusal(text)
    assert "is not allowed" in problem


def test_core_tags_say_what_a_value_is() -> None:
    document = parsed(
        "a: !!str 12\nb: !!int '12'\nc: !!float 1\nd: !!bool 'true'\ne: !!null ''\nf: ! 12\ng: !!map {}\nh: !!seq []\n"
    )
    assert document.value == {"a": "12", "b": 12, "c": 1.0, "d": True, "e": None, "f": "12", "g": {}, "h": []}
    assert isinstance(document.value["c"], float)


def test_a_value_that_does_not_fit_its_tag_is_refused() -> None:
    assert refusal("a: !!int x\n") == ["p.yaml:1:4: a: the value does not fit its tag '!!int' (remove the tag)"]


def test_a_tag_directive_is_refused_before_it_is_parsed() -> None:
    assert refusal("# first\n%TAG !a! x\n---\na: 1\n") == [
        "p.yaml:2:1: the directive '%TAG' is not allowed (remove the line; plain values need no tags)"
    ]
    assert parsed("%YAML 1.2\n---\na: '\n\n  %TAG'\n").value == {"a": "\n%TAG"}


@pytest.mark.parametrize(("key", "shown"), [("1", "1"), ("true", "true"), ("~", "null"), ("1.5", "1.5")])
def test_a_key_that_is_not_text_is_refused(key: str, shown: str) -> None:
    assert refusal(f"a:\n  {key}: x\n") == [f"p.yaml:2:3: a: the key {shown} is not text (write it in quotes)"]


def test_a_collection_is_no_key() -> None:
    assert refusal("? [a, b]\n: 1\n") == ["p.yaml:1:3: a key must be text, not a collection"]


def test_on_and_yes_are_keys_like_others() -> None:
    assert parsed("on: 1\nyes: 2\n").value == {"on": 1, "yes": 2}


def test_merge_keys_fill_in_what_the_mapping_does_not_say() -> None:
    document = parsed("one: &one {a: 1, b: 1}\ntwo: &two {b: 2, c: 2}\nsum:\n  c: own\n  <<: [*one, *two]\n")
    assert document.value["sum"] == {"c": "own", "a": 1, "b": 1}
    assert document.position_of(("sum", "b")) == Mark(line=1, column=21)


def test_a_quoted_merge_key_is_a_key() -> None:
    assert parsed('"<<": 1\n').value == {"<<": 1}


@pytest.mark.parametrize("value", ["3", "[x]", "[{a: 1}, 3]"])
def test_only_mappings_can_be_merged(value: str) -> None:
    assert refusal(f"a:\n  <<: {value}\n") == [
        "p.yaml:2:3: a: '<<' merges mappings only (write \"<<\" in quotes for a key of that name)"
    ]


def test_aliases_that_lead_nowhere_are_refused() -> None:
    assert refusal("a: *b\nb: &b 1\nc: &c [*c]\nd: &b 2\n") == [
        "p.yaml:1:4: a: alias '*b' has no anchor '&b' before it",
        "p.yaml:3:8: c[0]: alias '*c' refers to a node that contains it",
        "p.yaml:4:4: d: anchor '&b' is set already on line 2",
    ]


def test_all_problems_are_reported_at_once_in_file_order() -> None:
    assert refusal("a: 1\na: 2\n1: x\nb: !x y\nc: [\n") == [
        "p.yaml:2:1: a: duplicate key 'a' (lines 1 and 2) (keep one of them)",
        "p.yaml:3:1: the key 1 is not text (write it in quotes)",
        "p.yaml:4:4: b: the tag '!x' is not allowed (remove the tag; plain values need none)",
        "p.yaml:6:1: not valid YAML: did not find expected node content while parsing a flow node",
    ]


def test_a_hundred_problems_are_enough_for_one_report() -> None:
    assert len(refusal("".join(f"{number}: x\n" for number in range(100)))) == 100
    assert len(refusal("".join(f"{number}: x\n" for number in range(101)))) == 100


def test_an_error_without_a_place_is_still_a_problem() -> None:
    assert str(syntax_problem(yaml.YAMLError("?"), text="", file="p.yaml")) == "p.yaml: not valid YAML"


def test_a_syntax_error_names_the_line_where_its_construct_begins() -> None:
    [problem] = refusal("a: 'b\nc: d\n")

    assert problem == (
        "p.yaml:3:1: not valid YAML: found unexpected end of stream "
        "while scanning a quoted scalar that begins on line 1"
    )


def test_an_unquoted_reference_in_flow_style_gets_the_right_hint() -> None:
    [problem] = refusal("a: {port: ${PORT}}\n")

    assert problem == (
        "p.yaml:1:12: not valid YAML: did not find expected ',' or '}' while parsing a flow mapping "
        '(inside { } and [ ] a reference is written in quotes: "${NAME}")'
    )


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ("a:\n  b: 1\n c: 2\n", 3, "the keys of a mapping, and the dashes of a list, begin in the same column"),
        ("a:\n  - b\n - c\n", 3, "the keys of a mapping, and the dashes of a list, begin in the same column"),
        ("a: @home\n", 1, "write a text that begins with @ in quotes"),
        ("a:\n  b:\u00a0c\n  d: e\n", 3, "line 2 has a no-break space, as pages and chats have; write a plain one"),
        ("a: b: c\n", 1, "write a text with a colon in quotes, and a key on a line of its own"),
    ],
)
def test_a_wrong_column_or_character_gets_a_hint(text: str, line: int, hint: str) -> None:
    [problem] = refusal(text)

    assert problem.startswith(f"p.yaml:{line}:")
    assert problem.endswith(f"({hint})")


def test_a_backslash_in_double_quotes_gets_the_right_hint() -> None:
    [problem] = refusal('a: "C:\\docs"\n')

    assert problem == (
        "p.yaml:1:7: not valid YAML: found unknown escape character while parsing a quoted scalar "
        "(in double quotes a backslash begins an escape; write the text in single quotes)"
    )


def test_marks_point_to_keys_and_to_values() -> None:
    document = parsed("providers:\n  web:\n    urls:\n      - one\n      - two\n")

    assert document.key_mark(("providers", "web")) == Mark(line=2, column=3)
    assert document.position_of(("providers", "web")) == Mark(line=3, column=5)
    assert document.position_of(("providers", "web", "urls", 1)) == Mark(line=5, column=9)
    assert document.position_of(()) == Mark(line=1, column=1)


def test_a_path_that_is_not_there_points_to_its_nearest_parents_key() -> None:
    document = parsed("providers:\n  web:\n    urls: [a]\n")

    assert document.position_of(("providers", "web", "key", "deeper")) == Mark(line=2, column=3)
    assert document.key_mark(("providers", "web", "urls", 4)) == Mark(line=3, column=5)
    assert document.position_of(("auth",)) == Mark(line=1, column=1)
    with pytest.raises(KeyError, match=r"providers\.web\.key"):
        document.node(("providers", "web", "key"))


def test_a_problem_carries_place_and_path() -> None:
    document = parsed("providers:\n  'my web':\n    urls: [a]\n")
    problem = document.problem(("providers", "my web", "urls", 0), code="x", message="is wrong", hint="fix it")

    assert str(problem) == 'p.yaml:3:12: providers."my web".urls[0]: is wrong (fix it)'


def test_a_file_is_read_from_disk(tmp_path: Path) -> None:
    file = tmp_path / "providers.yaml"
    file.write_text("a: ä\n", encoding="utf-8")

    assert read_document(file).value == {"a": "ä"}
    assert read_document(file).file == str(file)


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as missing:
        read_document(tmp_path / "none.yaml")
    with pytest.raises(ConfigError) as directory:
        read_document(tmp_path)

    assert str(missing.value) == f"{tmp_path / 'none.yaml'}: cannot be read: No such file or directory"
    assert str(directory.value) == f"{tmp_path}: cannot be read: Is a directory"


def test_the_parser_without_libyaml_gives_the_same_tree() -> None:
    text = "a: &a {x: 1, y: [true, 'q']}\nb:\n  <<: *a\n  z: |\n    text\n"
    composer = Composer("p.yaml")
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        composer.feed(event)

    assert composer.problems == []
    assert composer.root == parsed(text).root


def test_half_a_surrogate_pair_is_refused() -> None:
    composer = Composer("p.yaml")
    for event in yaml.parse('a: "\\ud800"', Loader=yaml.SafeLoader):
        composer.feed(event)

    assert [str(problem) for problem in composer.problems] == [
        "p.yaml:1:4: a: an escape gives half of a surrogate pair, which is no character"
    ]
    assert len(refusal('a: "\\ud800"')) == 1
