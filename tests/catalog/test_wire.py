"""Wire names: what a model API gets for a canonical name (CONTRACT.md section 1)."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.plain_tools import plain_tool

from toolplug.catalog.catalog import Catalog, Conflict, merged
from toolplug.catalog.definition import wire_name

LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")
HASHED = re.compile(r".*_-[a-z2-7]{8}", re.DOTALL)

# Two names that are cut to one head and whose digests begin with the same 40 bits.
TWIN = "x." + "y" * 54 + ".194416"
OTHER_TWIN = "x." + "y" * 54 + ".406125"

LETTERS = st.text(st.sampled_from("abzAZ019_-"), min_size=1, max_size=70)
NAMES = LETTERS | st.builds("{}.{}".format, LETTERS, LETTERS) | st.text(max_size=140)


def hashed(name: str) -> str:
    """The third rule, spelled out."""
    digest = base64.b32encode(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()).decode().lower()
    return re.sub("[^A-Za-z0-9_-]", "_", name)[:54] + "_-" + digest[:8]


@pytest.mark.requirement("C-1-wire-alone")
@given(name=NAMES | st.text(st.characters(codec=None), max_size=20))
def test_every_name_has_one_legal_wire_name(name: str) -> None:
    wire = wire_name(name)
    assert LEGAL.fullmatch(wire)
    assert wire_name(name) == wire
    assert wire in (name, name.replace(".", "__", 1), hashed(name))


@pytest.mark.requirement("C-1-wire-alone")
@given(names=st.lists(NAMES, unique=True, max_size=6), at=st.integers(0, 5))
def test_adding_or_removing_a_tool_renames_no_other(names: list[str], at: int) -> None:
    tools = [plain_tool(name) for name in names]
    whole, _ = merged([Catalog(tools)])
    less, _ = merged([Catalog(tools[:at] + tools[at + 1 :])])
    assert {name: whole[name].definition.wire for name in whole if name in less} == {
        name: less[name].definition.wire for name in less if name in whole
    }


@pytest.mark.requirement("C-1-wire-alone", "I4-wire-stable")
@given(names=st.lists(NAMES, unique=True, max_size=6), order=st.randoms(use_true_random=False))
def test_another_order_of_tools_and_prefixes_renames_none(names: list[str], order: Random) -> None:
    tools = [plain_tool(name) for name in names]
    parts = [Catalog([tool]) for tool in tools] + [Catalog([tool]).prefixed("fs") for tool in tools]
    shuffled = order.sample(parts, len(parts))
    before, after = (merged(some)[0] for some in (parts, shuffled))
    wires = {name: tool.definition.wire for name, tool in before.items()}
    assert all(tool.definition.wire == wires.get(name, wire_name(name)) for name, tool in after.items())


@pytest.mark.process
@pytest.mark.requirement("C-1-wire-alone", "I4-wire-stable")
def test_another_process_gives_the_same_wire_names() -> None:
    names = ["read", "fs.read", "fs.a/b", "fs__read", "é" * 90, "read_-abcdefgh", "x" * 70]
    code = f"from toolplug.catalog.definition import wire_name; print([wire_name(name) for name in {names!a}])"
    environ = {**os.environ, "PYTHONHASHSEED": "4711"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([wire_name(name) for name in names])


@pytest.mark.requirement("C-1-wire-legal-stays")
@given(name=st.from_regex(LEGAL, fullmatch=True))
def test_a_legal_name_without_a_double_underscore_is_its_own_wire_name(name: str) -> None:
    assume("__" not in name and not HASHED.fullmatch(name))
    assert wire_name(name) == name


@pytest.mark.requirement("C-1-wire-prefixed", "C-1-wire-legal-stays", "C-1-wire-hashed", "H-trust-names")
@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("read", "read"),
        ("a-b_c", "a-b_c"),
        ("_read_", "_read_"),
        ("a" * 64, "a" * 64),
        ("fs.read", "fs__read"),
        ("fs.-read-", "fs__-read-"),
        ("a" * 30 + "." + "b" * 32, "a" * 30 + "__" + "b" * 32),
    ],
)
def test_a_name_or_two_legal_parts_are_told_by_the_names_characters(name: str, wire: str) -> None:
    assert wire_name(name) == wire


@pytest.mark.requirement("C-1-wire-hashed", "H-trust-names")
@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "fs.",
        ".read",
        "a__b",
        "fs_.read",
        "fs._read",
        "f__s.read",
        "fs.re__ad",
        "fs.read.more",
        "fs/read",
        "read\n",
        "fs.read\n",
        "lé",
        "\ud800",
        "a" * 65,
        "a" * 31 + "." + "b" * 32,
        "a" * 200,
    ],
)
def test_every_other_name_is_cleaned_cut_and_ends_in_its_hash(name: str) -> None:
    assert wire_name(name) == hashed(name)


@pytest.mark.requirement("C-1-wire-hashed")
def test_the_hash_is_lower_case_base32_of_sha_256() -> None:
    assert wire_name("fs.read.more") == "fs_read_more_-22fjsv5j"
    assert wire_name("é" * 60)[:54] == "_" * 54


@pytest.mark.requirement("C-1-wire-hashed-lookalike")
@pytest.mark.parametrize("name", ["read_-abcdefgh", "_-22222222", "fs.read_-abcdefgh", "fs.-abcdefgh", "fs._-abcdefgh"])
def test_a_name_that_ends_as_a_hashed_one_is_hashed_itself(name: str) -> None:
    assert wire_name(name) == hashed(name)


@pytest.mark.requirement("C-1-wire-hashed-lookalike")
@given(name=NAMES)
def test_a_tool_that_is_called_as_another_ones_wire_name_has_a_wire_name_of_its_own(name: str) -> None:
    wire = wire_name(name)
    assert wire == name or wire_name(wire) != wire


@pytest.mark.requirement("C-1-wire-legal-stays", "C-1-wire-prefixed")
@pytest.mark.parametrize("name", ["read_-ABCDEFGH", "read_-abcdefg1", "read_-abcdefg", "read-abcdefgh", "_-abcdefghi"])
def test_a_name_that_only_looks_like_a_hashed_one_stays(name: str) -> None:
    assert wire_name(name) == name


@pytest.mark.requirement("C-1-wire-alone", "C-1-wire-conflict")
@given(names=st.lists(NAMES, unique=True, max_size=8))
def test_names_of_one_catalog_have_distinct_wire_names_or_are_a_conflict(names: list[str]) -> None:
    tools = [plain_tool(name) for name in names]
    catalog, conflicts = merged([Catalog([tool]) for tool in tools])
    wires = [definition.wire for definition in catalog.definitions()]
    assert len(set(wires)) == len(wires)
    assert len(catalog) + len(conflicts) == len(names)


@pytest.mark.requirement("C-1-wire-conflict")
@pytest.mark.parametrize("split", [True, False])
def test_two_names_with_one_wire_name_are_a_conflict_also_within_one_catalog(split: bool) -> None:
    first, second = plain_tool(TWIN), plain_tool(OTHER_TWIN)
    assert wire_name(TWIN) == wire_name(OTHER_TWIN)
    parts = [Catalog([first]), Catalog([second])] if split else [Catalog([first, second])]
    catalog, conflicts = merged(parts)
    assert list(catalog) == [TWIN]
    assert conflicts == (Conflict(OTHER_TWIN, first.definition, second.definition),)
