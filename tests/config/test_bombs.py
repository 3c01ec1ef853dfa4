"""Documents that are small to write and large to read are refused before anything is expanded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import yaml

from toolplug.config.composer import Composer, YamlRefused
from toolplug.config.document import MAX_DOCUMENT_BYTES, parse_document
from toolplug.config.yaml_tree import MAX_DEPTH, MAX_EXPANDED_BYTES, MAX_NODES, MAX_PROBLEMS
from toolplug.errors import ConfigError

# The watchdog of the whole suite is three minutes; work that is not bounded ends here long before.
pytestmark = pytest.mark.timeout(20)


def codes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse_document(text.encode(), file="p.yaml")
    return [problem.code for problem in refused.value.problems]


def alias_bomb(levels: int) -> str:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 9)}]" for level in range(1, levels)]
    return "\n".join(lines)


def merge_bomb(levels: int) -> str:
    lines = ["a0: &a0 {k0: 0, k1: 1}"]
    lines += [f"a{level}: &a{level} {{<<: [{','.join([f'*a{level - 1}'] * 9)}]}}" for level in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.requirement("H-configuration-bombs", "C-2-alias-expansion")
@pytest.mark.parametrize("bomb", [alias_bomb(9), alias_bomb(60), merge_bomb(9), merge_bomb(60)])
def test_a_bomb_of_aliases_is_refused(bomb: str) -> None:
    assert codes(bomb) == ["too_large"]


@pytest.mark.requirement("H-configuration-bombs")
@pytest.mark.parametrize("bomb", [alias_bomb(60), merge_bomb(60)])
def test_a_bomb_is_left_at_the_alias_that_passes_the_limit(bomb: str) -> None:
    composer = Composer("p.yaml")
    events = list(yaml.parse(bomb, Loader=yaml.SafeLoader))
    rest = iter(events)
    with pytest.raises(YamlRefused):
        for_each(composer.feed, rest)

    assert len(events) - len(list(rest)) < 120


def for_each(take: Callable[[yaml.Event], None], events: Iterator[yaml.Event]) -> None:
    for event in events:
        take(event)


def expanding_to(size: int) -> str:
    """A document whose root weighs `size` with its aliases written out; see `ScalarNode.weight`."""
    aliases = 100
    # {2} a{2} k:{len+1} b{2} [{2} 100 * (len+1) ] c{2} pad{len+1}
    length = (size - 11) // (aliases + 1) - 1
    padding = size - 11 - (aliases + 1) * (length + 1)
    return f"a: &a '{'k' * length}'\nb: [{','.join(['*a'] * aliases)}]\nc: '{'p' * padding}'\n"


@pytest.mark.requirement("C-2-alias-expansion")
def test_ten_mebibytes_of_expansion_are_accepted_and_one_byte_more_is_not() -> None:
    document = parse_document(expanding_to(MAX_EXPANDED_BYTES).encode(), file="p.yaml")

    assert document.root.weight == MAX_EXPANDED_BYTES
    assert codes(expanding_to(MAX_EXPANDED_BYTES + 1)) == ["too_large"]


@pytest.mark.requirement("C-2-document-size", "H-limit-configuration")
def test_one_mebibyte_is_accepted_and_one_byte_more_is_not() -> None:
    text = "a: " + "k" * (MAX_DOCUMENT_BYTES - 3)

    assert parse_document(text.encode(), file="p.yaml").value == {"a": text[3:]}
    assert codes(text + "k") == ["too_large"]


@pytest.mark.requirement("H-configuration-deep")
@pytest.mark.parametrize(("before", "after"), [("[", "]"), ("{x: ", "}"), ("[{x: ", "}]")])
def test_nesting_is_accepted_up_to_its_limit(before: str, after: str) -> None:
    levels = (MAX_DEPTH - 1) // len(before.replace("x: ", ""))
    extra = "[" * (MAX_DEPTH - 1 - levels * len(before.replace("x: ", "")))
    inside = extra + "]" * len(extra)

    assert (
        parse_document(f"a: {before * levels}{inside}{after * levels}".encode(), file="p.yaml").root.depth == MAX_DEPTH
    )
    assert codes(f"a: {before * levels}[{inside}]{after * levels}") == ["too_deep"]


@pytest.mark.requirement("H-configuration-deep")
@pytest.mark.parametrize("text", ["[" * 300_000, "[\n" * 300_000, "{x: " * 200_000, "- " * 300_000, "? " * 300_000])
def test_deep_nesting_is_left_at_its_limit(text: str) -> None:
    assert codes(text) == ["too_deep"]


def test_nesting_by_aliases_is_nesting() -> None:
    chain = "a0: &a0 [x]\n" + "".join(f"a{level}: &a{level} [*a{level - 1}]\n" for level in range(1, MAX_DEPTH))

    assert parse_document("".join(chain.splitlines(keepends=True)[:-1]).encode(), file="p.yaml").root.depth == MAX_DEPTH
    assert codes(chain) == ["too_deep"]


def test_many_tag_directives_are_not_parsed() -> None:
    assert codes("".join(f"%TAG !{number}! x\n" for number in range(40_000)) + "--- {a: 1}\n") == ["tag"]


@pytest.mark.judge
@pytest.mark.requirement("H-configuration-bombs", "H-limit-configuration")
def test_fifty_thousand_keys_and_values_are_accepted_and_one_more_is_not() -> None:
    # the root, the key and the list
    assert parse_document(many(MAX_NODES - 3).encode(), file="p.yaml").root.nodes == MAX_NODES
    assert codes(many(MAX_NODES - 2)) == ["too_large"]


@pytest.mark.requirement("H-configuration-bombs")
def test_keys_and_values_count_with_aliases_written_out() -> None:
    assert codes(f"a: &a [{'x,' * 500}]\nb: [{'*a,' * 100}]") == ["too_large"]


@pytest.mark.judge
@pytest.mark.requirement("H-configuration-bombs")
@pytest.mark.parametrize("item", ["a{}: &a{} x\n", "a{}: &same x\n", "a{}: {{}}\n", "? []\n: {}\n", "{}: x\n"])
def test_a_file_of_fifty_thousand_faults_is_left_at_a_hundred(item: str) -> None:
    composer, fed = Composer("p.yaml"), 0
    try:
        for event in yaml.parse("".join(item.format(index, index) for index in range(50_000)), Loader=yaml.CSafeLoader):
            composer.feed(event)
            fed += 1
    except YamlRefused:
        fed += 1

    assert fed <= 3 * MAX_NODES
    assert 1 <= len(composer.problems) <= MAX_PROBLEMS


def many(values: int) -> str:
    return f"a: [{','.join('x' * values)}]"
