"""The numbers in `docs/reference/limits.md` are the constants of the code that `limit-constants.md` names."""

from __future__ import annotations

import re
from pkgutil import resolve_name

import pytest
from docs.generator.__main__ import FOLDER
from pydantic import BaseModel

_LIMITS = (FOLDER / "limits.md").read_text("utf-8")
_WHERE = (FOLDER.parent / "contributing" / "limit-constants.md").read_text("utf-8")
_UNITS = {
    "": 1,
    " KiB": 1024,
    " Ki": 1024,
    " MiB": 1024**2,
    " Mi": 1024**2,
    " GiB": 1024**3,
    " minutes": 60,
    " hours": 3600,
    " ms": 10**6,
}
PRICES = {"toolplug.catalog.validation.price:MAX_VALIDITY_NS"}
"""A price is in nanoseconds of a fast machine; the page says what it takes on a slow one."""


def list_rows(page: str) -> dict[str, str]:
    """Return the other cells of each row of a page's tables, by the first."""
    cells = re.findall(r"^\| ([^|]+) \| (.+) \|$", page, re.MULTILINE)
    return {name: cell for name, cell in cells if not name.startswith("---") and not cell.startswith("---")}


def read_numbers(text: str) -> list[float]:
    """Return the numbers of a text, sizes in bytes, times in seconds, milliseconds in nanoseconds."""
    found = re.findall(r"(\d[\d,]*)( (?:[KMG]i(?:B|\b)|minutes|hours|ms))?", text)
    return [int(digits.replace(",", "").rstrip(",")) * _UNITS[unit] for digits, unit in found]


def value_of(place: str) -> float:
    """Return a constant, the default of a field, or the number of results that a cached function keeps."""
    module, _, name = place.partition(":")
    owner, _, field = name.rpartition(".")
    if owner:
        kept = resolve_name(f"{module}:{owner}")
        return kept.model_fields[field].default if issubclass(kept, BaseModel) else getattr(kept(), field)
    value = resolve_name(place)
    return value if isinstance(value, int | float) else value.cache_parameters()["maxsize"]


LIMITS = {name: cell for name, cell in list_rows(_LIMITS).items() if name not in ("what", "table, cache or queue")}
WHERE = {name: re.findall(r"`([^`]+)`", cell) for name, cell in list_rows(_WHERE).items() if name != "limit"}
TABLES = list_rows(_LIMITS.partition("\n## Tables, caches and queues\n")[2].partition("\n## ")[0])
"""Rows whose numbers are all constants."""


def test_every_limit_has_its_constants_in_the_order_of_the_page() -> None:
    assert list(WHERE) == list(LIMITS)
    assert all(WHERE.values())


@pytest.mark.parametrize("row", WHERE)
def test_the_numbers_of_a_row_are_those_of_the_code(row: str) -> None:
    held = [value_of(place) for place in WHERE[row] if place not in PRICES]
    if row in TABLES:
        assert read_numbers(LIMITS[row].partition(" | ")[0]) == held
    assert set(held) <= set(read_numbers(LIMITS[row]))
