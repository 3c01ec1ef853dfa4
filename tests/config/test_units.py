"""Durations, sizes and rates."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from toolplug.config.units import (
    Duration,
    Rate,
    RateLimit,
    Size,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)


@pytest.mark.requirement("C-2-durations")
@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("20s", 20.0),
        ("500ms", 0.5),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("1.5s", 1.5),
        ("20", 20.0),
        (20, 20.0),
        (0.25, 0.25),
        (0, 0.0),
        ("0s", 0.0),
    ],
)
def test_a_duration_has_a_unit_or_is_in_seconds(written: object, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.requirement("C-2-durations")
@pytest.mark.parametrize(
    "written",
    [
        True,
        None,
        [],
        "",
        "s",
        "20 s",
        "-1s",
        "20S",
        "20sec",
        "1d",
        "1_0s",
        "２s",
        "inf",
        "nan",
        "1e999s",
        "9" * 301,
        "1s\n",
        -1,
        -0.5,
        math.nan,
        math.inf,
        10**400,
    ],
)
def test_what_is_no_duration_is_told_what_would_be(written: object) -> None:
    with pytest.raises(
        ValueError, match=re.escape("should be a duration such as 500ms, 20s, 5m or 1h, or a number of")
    ):
        parse_duration(written)


@pytest.mark.requirement("C-2-sizes")
@pytest.mark.parametrize(("written", "size"), [("200KiB", 204800), ("1MiB", 1048576), ("512", 512), (512, 512), (0, 0)])
def test_a_size_has_a_unit_or_is_in_bytes(written: object, size: int) -> None:
    assert parse_size(written) == size


@pytest.mark.requirement("C-2-sizes")
@pytest.mark.parametrize(
    "written", [True, None, "", "1KB", "1.5MiB", "-1", "1 MiB", "9" * 19, -1, 1.0, math.nan, "MiB"]
)
def test_what_is_no_size_is_told_what_would_be(written: object) -> None:
    with pytest.raises(ValueError, match="should be a size such as 200KiB or 1MiB, or a whole number of bytes"):
        parse_size(written)


@pytest.mark.requirement("C-2-rates")
@pytest.mark.parametrize(
    ("written", "rate"),
    [
        ("5/second", Rate(5, 1.0)),
        ("60/minute", Rate(60, 60.0)),
        ("1/hour", Rate(1, 3600.0)),
        (Rate(2, 3.0), Rate(2, 3.0)),
    ],
)
def test_a_rate_counts_in_a_window(written: object, rate: Rate) -> None:
    assert parse_rate(written) == rate


@pytest.mark.requirement("C-2-rates")
@pytest.mark.parametrize(
    "written", [60, True, None, "", "60", "0/minute", "60/min", "60 / minute", "-1/hour", "1.5/hour"]
)
def test_what_is_no_rate_is_told_what_would_be(written: object) -> None:
    with pytest.raises(ValueError, match="should be a rate such as 5/second, 60/minute or 1000/hour"):
        parse_rate(written)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(20.0, "20s"), (0.5, "500ms"), (300.0, "5m"), (5400.0, "90m"), (3600, "1h"), (0, "0s"), (0.0001, "0.0001s")],
)
def test_a_duration_is_written_in_its_largest_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(("size", "text"), [(204800, "200KiB"), (1048576, "1MiB"), (1000, "1000"), (0, "0")])
def test_a_size_is_written_in_its_largest_unit(size: int, text: str) -> None:
    assert format_size(size) == text


def test_a_rate_is_written_with_its_window() -> None:
    assert [format_rate(Rate(5, 1.0)), format_rate(Rate(60, 60.0)), format_rate(Rate(1, 10.0))] == [
        "5/second",
        "60/minute",
        "1/10s",
    ]


@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_a_written_duration_reads_back(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(min_value=0, max_value=10**17))
def test_a_written_size_reads_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.integers(min_value=1, max_value=10**17), st.sampled_from([1.0, 60.0, 3600.0]))
def test_a_written_rate_reads_back(count: int, per_s: float) -> None:
    assert parse_rate(format_rate(Rate(count, per_s))) == Rate(count, per_s)


class Limits(BaseModel):
    timeout: Duration = 60.0
    size: Size = 1
    rate: RateLimit | None = None


def test_a_model_takes_both_forms() -> None:
    limits = Limits.model_validate({"timeout": "20s", "size": "1KiB", "rate": "60/minute"})

    assert limits == Limits(timeout=20.0, size=1024, rate=Rate(60, 60.0))
    with pytest.raises(ValidationError, match="should be a size such as"):
        Limits.model_validate({"size": True})


@pytest.mark.parametrize(
    ("unit", "examples"),
    [(Duration, [20, 0.5, "20s", "500ms", "1.5h"]), (Size, [1, "200KiB", "12"]), (RateLimit, ["60/minute"])],
)
def test_the_schema_describes_what_the_unit_takes(unit: object, examples: list[object]) -> None:
    schema = TypeAdapter(unit).json_schema()
    accepted = {option.get("type"): option for option in schema.get("anyOf", [schema])}
    for example in examples:
        kind = "string" if isinstance(example, str) else "integer" if "integer" in accepted else "number"
        assert "pattern" not in accepted[kind] or re.search(accepted[kind]["pattern"], str(example))
        TypeAdapter(unit).validate_python(example)

    assert json.dumps(schema)
    assert schema["description"].startswith("a ")
