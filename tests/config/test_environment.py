"""References to the environment: where they are expanded, what they become, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolplug.config.document import Section, expand, has_reference, parse_document


def section(text: str, **environ: str) -> Section:
    return expand(parse_document(text.encode(), file="p.yaml"), (), environ)


def refusal(text: str, **environ: str) -> list[str]:
    return [str(problem) for problem in section(text, **environ).problems]


@pytest.mark.requirement("C-2-expand")
def test_a_reference_is_replaced_inside_text() -> None:
    expanded = section('a: "http://${HOST}:${PORT}/"\n', HOST="h", PORT="80")

    assert (expanded.value, expanded.problems) == ({"a": "http://h:80/"}, ())
    assert expanded.withheld == {"h", "80"}


@pytest.mark.requirement("C-2-expand-unquoted", "C-2-expand-quoted")
@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${X}", 8080),
        ("'${X}'", "8080"),
        ('"${X}"', "8080"),
        ("${X}${X}", "80808080"),
        ("!!str ${X}", "8080"),
        ("x${X}", "x8080"),
        ("|-\n  ${X}", "8080"),
        ("${Y:-true}", True),
        ("'${Y:-true}'", "true"),
        ("${Y:-}", None),
    ],
)
def test_only_an_unquoted_value_that_is_one_reference_is_resolved_again(written: str, value: object) -> None:
    assert section(f"a: {written}\n", X="8080").value == {"a": value}


@pytest.mark.requirement("C-2-expand-after-parsing")
@pytest.mark.parametrize("text", ["[1]", "{a: 1}", "&a x", "*a", "!!int 3", "a: b", "# no comment", "\n- a"])
def test_a_variable_is_a_scalar_and_never_yaml(text: str) -> None:
    assert section("a: ${X}\n", X=text).value == {"a": text}


@pytest.mark.requirement("C-2-expand")
def test_a_default_stands_in_for_an_unset_or_an_empty_variable() -> None:
    text = "a: ${X:-one two}\n"

    assert section(text).value == {"a": "one two"}
    assert section(text, X="").value == {"a": "one two"}
    assert section(text, X="three").value == {"a": "three"}
    assert section(text).withheld == frozenset()


def test_a_variable_that_is_set_and_empty_is_set() -> None:
    expanded = section("a: '${X}'\nb: ${X}\n", X="")

    assert (expanded.value, expanded.problems, expanded.withheld) == ({"a": "", "b": None}, (), frozenset())


@pytest.mark.requirement("C-2-expand-escape")
def test_a_doubled_dollar_writes_the_characters_themselves() -> None:
    assert section("a: $${X}\nb: 'x $${X} ${X}'\nc: $X $$ $\n", X="1").value == {
        "a": "${X}",
        "b": "x ${X} 1",
        "c": "$X $$ $",
    }


def test_a_reference_in_a_variable_is_not_expanded_again() -> None:
    assert section("a: ${X}\n", X="${X}").value == {"a": "${X}"}


def test_keys_are_not_expanded() -> None:
    assert section("${X}: ${X}\n", X="1").value == {"${X}": 1}


@pytest.mark.requirement("H-configuration-missing-environment", "C-2-expand-unset")
def test_every_unset_variable_is_reported_at_its_place() -> None:
    assert refusal("a: ${ONE}\nb:\n  - x\n  - 'y ${TWO} ${THREE}'\n") == [
        "p.yaml:1:4: a: the environment variable 'ONE' is not set (set it, or write ${ONE:-default})",
        "p.yaml:4:5: b[1]: the environment variable 'TWO' is not set (set it, or write ${TWO:-default})",
        "p.yaml:4:5: b[1]: the environment variable 'THREE' is not set (set it, or write ${THREE:-default})",
    ]


@pytest.mark.parametrize(
    "text", ["${}", "${1X}", "${X-d}", "${X:?e}", "${ X }", "${X", "${X:-d", "${X:-${Y}}", "${X:-a${Y:-b}}"]
)
def test_what_only_looks_like_a_reference_is_refused(text: str) -> None:
    [problem] = refusal(f"a: '{text}'\n", X="1")

    assert problem == (
        "p.yaml:1:4: a: '${' does not begin a reference (write ${NAME} or ${NAME:-default}; '$${' is a literal '${')"
    )


def test_a_variable_that_is_not_utf_8_is_refused() -> None:
    assert refusal("a: ${X}\n", X="\udcff") == ["p.yaml:1:4: a: the environment variable 'X' is not UTF-8 text"]


def test_only_the_sub_tree_that_is_asked_for_is_looked_at() -> None:
    document = parse_document(b"on: {x: 1}\noff: {enabled: '${OFF:-false}', key: '${UNSET}'}\n", file="p.yaml")

    assert expand(document, ("on",), {}).problems == ()
    assert expand(document, ("off", "enabled"), {}).value == "false"
    assert [problem.path for problem in expand(document, ("off",), {}).problems] == ["off.key"]
    with pytest.raises(KeyError, match="none"):
        expand(document, ("none",), {})


def test_a_value_that_could_not_be_had_is_marked_as_broken() -> None:
    expanded = section("a: ${X}\nb: [1, '${X}']\n")

    assert expanded.value == {"a": None, "b": [1, None]}
    assert expanded.broken == {("a",), ("b", 1)}


def test_a_hundred_unset_variables_are_enough_for_one_report() -> None:
    assert len(refusal("".join(f"k{number}: ${{X}}\n" for number in range(100)))) == 100
    assert len(refusal("".join(f"k{number}: ${{X}}\n" for number in range(101)))) == 100


def test_a_document_without_references_is_its_value() -> None:
    document = parse_document(b"a: [1, {b: 'x'}]\n", file="p.yaml")

    assert expand(document, (), {}).value == document.value


def test_an_escaped_reference_is_none() -> None:
    assert [has_reference(text) for text in ("x", "$${X}", "${X}", "$${X} ${Y}", "${")] == [
        False,
        False,
        True,
        True,
        True,
    ]


@given(st.text(alphabet="${}:-AB $", max_size=40))
def test_any_text_is_expanded_or_reported(text: str) -> None:
    document = parse_document(b"a: x\n", file="p.yaml")
    quoted = text.replace("'", "''")
    expanded = section(f"a: '{quoted}'\n", A="1")

    assert document.file == "p.yaml"
    assert isinstance(expanded.value, dict)
    assert (expanded.value["a"] is None) == bool(expanded.problems)
