"""What a process sends is read exactly or refused: a stranger's bytes cost no more than they are long."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge

from toolplug.apart.frames import RESULT, Frame, FrameReader, FrameRefused, encode_frame
from toolplug.apart.limits import MAX_LABELS, MAX_SAMPLES
from toolplug.apart.metrics import FamilyReader, ProcessMetrics, decode_families, encode_families
from toolplug.apart.values import (
    decode_context,
    decode_definition,
    decode_error,
    decode_result,
    encode_context,
    encode_definition,
    encode_error,
    encode_result,
    fit_result,
)
from toolplug.catalog.call import CallContext, Credentials, Deadline, Principal, ToolResult
from toolplug.catalog.definition import Hosted, HostedItem, ToolDefinition, ToolHints
from toolplug.catalog.exact_json import dump_json, load_json
from toolplug.catalog.schema import Schema
from toolplug.errors import ProviderError, StoreConflict, StoreUnavailable, ToolError, ToolUnavailable

pytestmark = [pytest.mark.unit, pytest.mark.requirement("I36-apart")]
MAX = 1_000


def read(data: bytes, piece: int = 0) -> list[Frame]:
    reader, found = FrameReader(MAX), list[Frame]()
    for start in range(0, len(data), piece or max(len(data), 1)):
        reader.add(data[start : start + (piece or len(data))])
        found += reader
    return found


@pytest.mark.parametrize("piece", [0, 1, 7])
def test_messages_are_read_exactly_in_pieces_of_any_size(piece: int) -> None:
    head = {"id": 10**30, "text": "\u20ac", "nothing": None}
    data = encode_frame(RESULT, head, b"\x00raw") + encode_frame(RESULT, {})
    assert read(data, piece) == [Frame(RESULT, head, b"\x00raw"), Frame(RESULT, {}, b"")]


def test_a_message_of_the_longest_length_is_read_and_one_byte_more_refused_unread() -> None:
    empty = len(encode_frame(RESULT, {})) - 4
    assert len(read(encode_frame(RESULT, {}, b"x" * (MAX - empty)))) == 1
    # Its length alone is enough.
    with pytest.raises(FrameRefused, match="1001 bytes, and 1000 are allowed"):
        read(encode_frame(RESULT, {}, b"x" * (MAX - empty + 1))[:9])


@pytest.mark.parametrize("text", [b"[1]", b"{", b'{"a": 1, "a": 2}', b"\xff", b""])
def test_a_head_that_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(FrameRefused):
        read(struct.pack(">IcI", 5 + len(text), RESULT, len(text)) + text)


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_are_messages_or_refused(data: bytes, piece: int) -> None:
    with suppress(FrameRefused):
        assert all(isinstance(frame, Frame) for frame in read(data, piece))


def test_contexts_definitions_results_and_errors_come_back_as_they_were() -> None:
    principal = Principal("ada", "acme", frozenset({"a"}), frozenset({"bot"}), credential="digest")
    deadline = Deadline.after(10.0, 5.0)
    context = CallContext(
        principal, session="AAAAAAAA", options={"a": 1}, credentials=Credentials(key="s"), via=("x",), deadline=deadline
    )
    again = decode_context(encode_context(context, 12.0), 112.0)
    assert again == context._replace(deadline=115.0)
    assert again.principal.credential == ""  # the digest is the host's
    assert isinstance(again.deadline, Deadline)
    assert again.deadline.within_s == 5.0

    item = HostedItem("acme:tide_call", ("searching",), {"table": None}, ("table",))
    hosted = Hosted(("tide",), Schema({"type": "object"}), item)
    hints = ToolHints(True, None, False, sensitive=True)
    tool = ToolDefinition(
        name="tide", description="d", hints=hints, hosted=hosted, timeout_s=2, title="T", meta={"a": 1}
    )
    read_again = decode_definition(load(encode_definition(tool)))
    assert (read_again.signature, read_again.timeout_s) == (tool.signature, 2)
    assert read_again.hosted is not None
    assert (read_again.hosted.stubs, read_again.hosted.item) == (("tide",), item)

    result = ToolResult(output="o", structured={"a": 10**30}, parts=({"type": "text"},), metadata={"m": 1})
    assert decode_result(*encode_result(result)) == result
    assert fit_result(result._replace(structured="x" * 900), 500).structured is None
    for error in (
        StoreConflict("k", expected=1, actual=2),
        StoreUnavailable("busy"),
        ToolError("no", metadata={"a": 1}, retry_after_s=2),
        ToolUnavailable("away", code="c"),
        ProviderError("wrong", state="incompatible", fix="f", at=("a",)),
    ):
        back = decode_error(load(encode_error(error)))
        assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))
    # The text of any other exception stays in the process.
    assert "secret" not in str(encode_error(ValueError("secret")))


def load(value: object) -> dict[str, object]:
    return load_json(dump_json(value))  # type: ignore[return-value]


def test_counters_go_on_over_a_restart_and_names_that_would_break_a_scrape_are_left_out() -> None:
    metrics = ProcessMetrics("made")

    def sent(count: int, level: float) -> list[object]:
        registry = CollectorRegistry()
        counter, gauge = Counter("a", "A.", ["of"], registry=registry), Gauge("b", "B.", registry=registry)
        counter.labels("x").inc(count)
        gauge.set(level)
        return encode_families(registry.collect())

    metrics.update(decode_families(sent(5, 1)))
    metrics.restart()
    assert _values(metrics)["a_total"] == 5
    metrics.update(decode_families(sent(2, float("nan"))))
    metrics.restart()
    metrics.update(decode_families(sent(1, 3)))
    found = _values(metrics)
    assert (found["a_total"], found["b"], found["toolplug_apart_restarts_total"]) == (8, 3, 2)
    forged = [
        ["x\n# HELP y", "", "gauge", "", []],
        ["z", "", "gauge", "", [["other", {}, "1"], ["z", {"a b": "1"}, "1"]]],
    ]
    assert [(family.name, family.samples) for family in decode_families(forged)] == [("z", [])]


def _values(metrics: ProcessMetrics) -> dict[str, float]:
    return {sample.name: sample.value for family in metrics.collect() for sample in family.samples}


def test_samples_and_labels_that_would_be_read_as_those_of_the_host_are_left_out() -> None:
    own = "antwort_builtin_tool_executions_total"
    forged = [
        ["antwort", "", "counter", "", [[own, {}, "1"], ["antwort_total", {}, "2"]]],
        ["z", "", "gauge", "", [["z", {"__name__": own}, "1"], ["z", {"_name": "a"}, "2"]]],
    ]
    found = [sample for family in decode_families(forged) for sample in family.samples]
    assert [(sample.name, sample.labels, sample.value) for sample in found] == [
        ("antwort_total", {}, 2.0),
        ("z", {"_name": "a"}, 2.0),
    ]


def test_the_metrics_of_a_process_are_bounded_over_messages_and_restarts() -> None:
    long = "x" * (MAX_LABELS // 10)
    reader = FamilyReader()
    for number in range(30):
        reader.add([[f"a{number}", "h" * 5_000, "counter", "", [[f"a{number}_total", {"of": long}, "1"]]]])
    assert sum(len(family.samples) for family in reader.families) == 9
    assert max(len(family.documentation) for family in reader.families) == 1_000

    metrics = ProcessMetrics("made")
    for process in range(4):
        labels = [{"of": f"{process} {number}"} for number in range(MAX_SAMPLES // 2)]
        metrics.update(decode_families([["a", "", "counter", "", [["a_total", each, "1"] for each in labels]]]))
        metrics.restart()
    samples = [sample for family in metrics.collect() for sample in family.samples if family.name == "a"]
    # Those of the last processes.
    assert {sample.labels["of"].split()[0] for sample in samples} == {"3", "2"}
    assert len(samples) == MAX_SAMPLES
