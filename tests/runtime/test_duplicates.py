from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolplug.runtime.duplicates import first_repeated

names = st.lists(st.sampled_from("abcde"), max_size=8)


def test_the_first_name_that_occurs_again_is_found() -> None:
    assert first_repeated(["a", "b", "c", "b", "a"]) == "b"
    assert first_repeated(name for name in ["a", "b"]) is None


@given(names)
def test_it_is_the_name_whose_second_place_is_the_first(given_names: list[str]) -> None:
    again = (name for place, name in enumerate(given_names) if name in given_names[:place])
    assert first_repeated(given_names) == next(again, None)
