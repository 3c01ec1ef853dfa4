from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolplug.runtime.duplicates import first_repeated, list_repeated

names = st.lists(st.sampled_from("abcde"), max_size=8)


def test_the_first_name_that_occurs_again_is_found() -> None:
    assert first_repeated(["a", "b", "c", "b", "a"]) == "b"
    assert first_repeated(name for name in ["a", "b"]) is None


@given(names)
def test_each_repeated_name_is_listed_once(given_names: list[str]) -> None:
    found = list_repeated(given_names)
    assert sorted(found) == sorted({name for name in given_names if given_names.count(name) > 1})
    assert first_repeated(given_names) == (found[0] if found else None)
