"""`toolplug_permissions.toml`: what a package asks for is read without importing it, and a wrong file is named."""

from __future__ import annotations

from importlib.metadata import Distribution
from pathlib import Path

import pytest

from toolplug.apart.permissions import MAX_BYTES, MAX_WORDS, Permissions, find_permissions, read_permissions
from toolplug.errors import InvalidDefinition

pytestmark = pytest.mark.requirement("I36-confined")


def distribution_with(folder: Path, text: str | bytes | None, module: str = "made.inner.provider") -> Distribution:
    info = folder / "made-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[toolplug.providers]\nmade = {module}:Made\n")
    package = folder / "made" / "inner"
    package.mkdir(parents=True)
    (folder / "made" / "__init__.py").write_text("raise SystemExit('it was imported')")
    if text is not None:
        (folder / "made" / "toolplug_permissions.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return Distribution.at(info)


def test_the_file_of_a_package_is_read_without_importing_it(tmp_path: Path) -> None:
    text = 'network = ["api.example.com"]\nfiles = ["./data:rw"]\nenvironment = ["TZ"]\nhooks = ["before_call"]\n'
    found = read_permissions(distribution_with(tmp_path, text + "subprocess = true\n"))
    assert found == Permissions(
        network=("api.example.com",), files=("./data:rw",), environment=("TZ",), hooks=("before_call",), subprocess=True
    )
    assert found.describe() == [
        "network: api.example.com",
        "files: ./data:rw",
        "environment: TZ",
        "hooks: before_call",
        "subprocess: true",
    ]


def test_a_package_without_the_file_says_nothing_and_an_empty_file_asks_for_nothing(tmp_path: Path) -> None:
    assert read_permissions("no-such-distribution") == Permissions()
    (tmp_path / "without").mkdir()
    without, empty = distribution_with(tmp_path / "without", None), distribution_with(tmp_path, "")
    assert (read_permissions(without), find_permissions(without)) == (Permissions(), None)
    assert (read_permissions(empty), find_permissions(empty)) == (
        Permissions(),
        tmp_path / "made" / "toolplug_permissions.toml",
    )


def test_the_file_nearest_to_the_provider_counts(tmp_path: Path) -> None:
    found = distribution_with(tmp_path, 'network = ["outer.example"]')
    (tmp_path / "made" / "inner" / "toolplug_permissions.toml").write_text('network = ["inner.example"]')
    assert read_permissions(found) == Permissions(network=("inner.example",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("network = 'api.example.com'", "network"),
        ("netwrok = ['x']", "there are network, files, environment, hooks, subprocess"),
        ("network = ['']", r"network\.0"),
        ("network = ['a\u202eb']", r"network\.0"),
        (f"network = {['x'] * (MAX_WORDS + 1)}", "network"),
        ("subprocess = 'yes'", "subprocess"),
        ("network = [", "no TOML"),
        (b"\xff", "no TOML"),
        ("a = " + "[" * 20_000, "no TOML"),
        ("#" * (MAX_BYTES + 1), f"more than {MAX_BYTES} bytes"),
        (f"a{'.a' * 20_000} = 1", "keys in keys"),
        ("[a" + '."b.c"' * 200 + "]", "keys in keys"),
        ('network = ["""a"""]', "a string of several lines"),
    ],
)
def test_a_file_that_is_not_valid_is_named(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(InvalidDefinition, match=said) as raised:
        read_permissions(distribution_with(tmp_path, text))
    assert "made/toolplug_permissions.toml" in str(raised.value)
