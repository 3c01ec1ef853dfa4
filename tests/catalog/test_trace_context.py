"""Which `traceparent` and `tracestate` are kept, by the rules of W3C Trace Context."""

from __future__ import annotations

import pytest

from toolplug.catalog.trace_context import trace_context

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize("flags", ["00", "01", "03", "ff"])
def test_a_valid_traceparent_is_kept_as_it_is(flags: str) -> None:
    parent = f"00-{TRACE}-{SPAN}-{flags}"
    assert trace_context(parent) == {"traceparent": parent}


@pytest.mark.parametrize(
    "parent",
    [
        None,
        7,
        "",
        PARENT.upper(),
        f" {PARENT}",
        f"{PARENT}\n",
        f"{PARENT}-extra",
        f"{PARENT}0",
        f"ff-{TRACE}-{SPAN}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0g",
        f"01-{TRACE}-{SPAN}-01extra",
    ],
)
def test_an_invalid_traceparent_drops_both(parent: object) -> None:
    assert trace_context(parent, "a=1") == {}


@pytest.mark.parametrize(("given", "flags"), [("01", "01"), ("01-more.", "01"), ("fe", "00"), ("03-", "01")])
def test_a_later_version_is_read_as_version_00(given: str, flags: str) -> None:
    assert trace_context(f"cc-{TRACE}-{SPAN}-{given}") == {"traceparent": f"00-{TRACE}-{SPAN}-{flags}"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        (" a=1 ,,\tb@c=x y,", "a=1,b@c=x y"),
        ("1a@tenant/x_*-=~!", "1a@tenant/x_*-=~!"),
        ("1a=1", None),
        ("a=" + "v" * 256, "a=" + "v" * 256),
        ("a=" + "v" * 257, None),
        (",".join(f"k{number}=1" for number in range(32)), ",".join(f"k{number}=1" for number in range(32))),
        (",".join(f"k{number}=1" for number in range(33)), None),
        ("a=" + "v" * 252 + ",b=" + "v" * 254, "a=" + "v" * 252 + ",b=" + "v" * 254),
        ("a=" + "v" * 254 + ",b=" + "v" * 254, None),
        ("a=1,a=2", None),
        ("A=1", None),
        ("a=", None),
        ("a=é", None),
        ("a=1\r\nX-Key: 1", None),
        ("a", None),
        ("", None),
        (None, None),
        (["a=1"], None),
    ],
)
def test_an_invalid_tracestate_drops_only_itself(given: object, kept: str | None) -> None:
    state = {} if kept is None else {"tracestate": kept}
    assert trace_context(PARENT, given) == {"traceparent": PARENT, **state}
