"""Which files of an installed distribution are hashed, whose they are, and what cannot be."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
from collections.abc import Mapping
from importlib.metadata import PathDistribution
from io import StringIO
from pathlib import Path

import pytest
from tests.locking.shop import install, list_in_record

from toolplug.locking import files
from toolplug.locking.files import (
    FilesUnreadable,
    ForeignFiles,
    PackageFiles,
    hash_file,
    hash_folders,
    hash_installed,
    read_record,
    top_of,
)

pytestmark = [pytest.mark.unit, pytest.mark.requirement("I36-lock")]

INFO = "shop-1.0.dist-info"


def sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def distribution(
    site: Path, texts: Mapping[str, bytes], name: str = "shop", *, listed: Mapping[str, str] | None = None
) -> PathDistribution:
    """Install files of these texts; `listed` are more rows of RECORD, with their hashes."""
    info = f"{name}-1.0.dist-info"
    rows = StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    for path, text in texts.items():
        place = site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text)
        writer.writerow((path, f"sha256={base64.urlsafe_b64encode(bytes.fromhex(sha256(text))).decode()}", len(text)))
    for path, digest in (listed or {}).items():
        writer.writerow((path, digest, ""))
    (site / info).mkdir(exist_ok=True)
    (site / info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    writer.writerow((f"{info}/METADATA", ""))
    writer.writerow((f"{info}/RECORD", "", ""))
    (site / info / "RECORD").write_text(rows.getvalue())
    return PathDistribution(site / info)


def hashed(site: Path, own: PathDistribution, *others: PathDistribution) -> PackageFiles:
    record = read_record(own)
    assert record is not None
    return hash_installed(site, record, ForeignFiles([own, *others]))


def test_each_file_counts_by_its_path_and_content(tmp_path: Path) -> None:
    own = distribution(tmp_path, {"shop/a.py": b"ONE\n", "shop/b.py": b"TWO\n"})
    found = hashed(tmp_path, own)
    assert {path: found.digests[path] for path in ("shop/a.py", "shop/b.py")} == {
        "shop/a.py": sha256(b"ONE\n"),
        "shop/b.py": sha256(b"TWO\n"),
    }
    assert (found.unlisted, found.wrong, found.tops) == ((), (), ("shop",))
    # The same contents under other names are another package.
    (tmp_path / "shop/b.py").unlink()
    renamed = distribution(tmp_path, {"shop/a.py": b"ONE\n", "shop/c.py": b"TWO\n"})
    assert hashed(tmp_path, renamed).digest != found.digest


@pytest.mark.parametrize("size", [0, 1, files.PIECE, files.PIECE + 1, 2 * files.PIECE + 5])
def test_a_file_is_hashed_whole_whatever_its_size(tmp_path: Path, size: int) -> None:
    (tmp_path / "large").write_bytes(b"x" * size)
    assert hash_file(str(tmp_path / "large")) == sha256(b"x" * size)


def test_a_file_in_a_folder_that_several_distributions_share_is_of_the_one_that_lists_it(tmp_path: Path) -> None:
    own = distribution(tmp_path, {"acme/tax.py": b"RATE = 19\n"})
    other = distribution(tmp_path, {"acme/toll.py": b"FEE = 1\n"}, "other")
    (tmp_path / "acme" / "more").mkdir()
    (tmp_path / "acme" / "more" / "deep.py").write_bytes(b"")
    # What none of them lists is new to each: Python imports it under their common name.
    assert hashed(tmp_path, own, other).unlisted == ("acme/more/deep.py",)
    # One whose path ends in the same way is not the one that the other lists.
    (tmp_path / "acme" / "oll.py").write_bytes(b"")
    (tmp_path / "acme" / "x").mkdir()
    stray = distribution(tmp_path, {"y/acme/oll.py": b""}, "stray")
    assert hashed(tmp_path, own, other, stray).unlisted == ("acme/more/deep.py", "acme/oll.py")


def test_a_package_below_a_namespace_has_all_that_is_below_the_namespace(tmp_path: Path) -> None:
    own = distribution(tmp_path, {"acme/tax/__init__.py": b"", "acme/tax/deep/one.py": b""})
    (tmp_path / "acme" / "tax" / "deep" / "deeper").mkdir()
    (tmp_path / "acme" / "tax" / "deep" / "deeper" / "evil.py").write_bytes(b"")
    (tmp_path / "acme" / "toll.py").write_bytes(b"")
    assert hashed(tmp_path, own).unlisted == ("acme/tax/deep/deeper/evil.py", "acme/toll.py")


def test_a_new_file_of_the_metadata_counts_and_those_of_the_installer_do_not(tmp_path: Path) -> None:
    own = distribution(tmp_path, {"shop/__init__.py": b""})
    before = hashed(tmp_path, own)
    for name in ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"):
        (tmp_path / INFO / name).write_text("another")
    assert hashed(tmp_path, own).digest == before.digest
    (tmp_path / INFO / "licenses").mkdir()
    (tmp_path / INFO / "licenses" / "text").write_text("")
    (tmp_path / INFO / "entry_points.txt").write_text("")
    # A file of the package may have a name of the installer's.
    (tmp_path / "shop" / "INSTALLER").write_text("")
    assert hashed(tmp_path, own).unlisted == (
        f"{INFO}/entry_points.txt",
        f"{INFO}/licenses/text",
        "shop/INSTALLER",
    )


def test_data_beside_the_folder_of_packages_counts_and_programs_do_not(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "site"
    for folder in ("share", "bin", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "text").write_text("one")
    site.mkdir(parents=True)
    absolute = str(tmp_path / "elsewhere" / "text")
    own = distribution(site, {"shop/a.py": b""}, listed={"../../share/text": "", "../../bin/text": "", absolute: ""})
    found = hashed(site, own)
    assert "../../share/text" in found.digests
    assert not {"../../bin/text", absolute} & found.digests.keys()
    (tmp_path / "share" / "text").write_text("two")
    assert hashed(site, own).digest != found.digest
    # One that is listed and gone has no digest: its name among the files would say that it is there.
    (tmp_path / "share" / "text").unlink()
    assert "../../share/text" not in hashed(site, own).digests


@pytest.mark.parametrize(
    ("recorded", "is_wrong"),
    [
        ("sha256=" + base64.urlsafe_b64encode(hashlib.sha256(b"\xfb\xff").digest()).decode().rstrip("="), False),
        ("sha256=" + base64.b64encode(hashlib.sha256(b"\xfb\xff").digest()).decode(), False),
        ("sha256=" + base64.b64encode(hashlib.sha256(b"other").digest()).decode(), True),
        ("sha256=%%%", True),
        ("sha256=x", True),
        ("md5=" + base64.b64encode(hashlib.md5(b"other").digest()).decode(), False),
        ("", False),
    ],
)
def test_a_file_differs_from_the_hash_that_record_has_of_it(tmp_path: Path, recorded: str, is_wrong: bool) -> None:
    (tmp_path / "data.bin").write_bytes(b"\xfb\xff")
    found = hashed(tmp_path, distribution(tmp_path, {}, listed={"data.bin": recorded}))
    assert found.wrong == (("data.bin",) if is_wrong else ())
    assert "data.bin" in found.digests


def test_the_hash_of_a_record_is_read_with_both_alphabets(tmp_path: Path) -> None:
    # A digest with both of the letters that the alphabets write differently.
    text = next(
        text
        for text in (str(number).encode() for number in range(1000))
        if {"+", "/"} <= set(base64.b64encode(hashlib.sha256(text).digest()).decode())
    )
    (tmp_path / "data.bin").write_bytes(text)
    digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).decode().rstrip("=")
    assert hashed(tmp_path, distribution(tmp_path, {}, listed={"data.bin": f"sha256={digest}"})).wrong == ()


def test_paths_of_other_systems_and_short_rows_of_a_record_are_read(tmp_path: Path) -> None:
    own = distribution(tmp_path, {"shop/a.py": b""})
    record = tmp_path / INFO / "RECORD"
    record.write_text("shop\\a.py,,\n\nshop/short.py\n")
    assert read_record(own) == {"shop/a.py": "", "shop/short.py": ""}
    record.unlink()
    assert read_record(own) is None


def test_a_link_to_a_folder_is_one_file_with_where_it_leads(tmp_path: Path) -> None:
    own = distribution(tmp_path, {"shop/__init__.py": b""})
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "inner.py").write_text("SAME = 1\n")
    link = tmp_path / "shop" / "linked"
    link.symlink_to(tmp_path / "one")
    first = hashed(tmp_path, own)
    assert (first.unlisted, "shop/linked/inner.py" in first.digests) == (("shop/linked",), False)
    link.unlink()
    link.symlink_to(tmp_path / "two")
    assert hashed(tmp_path, own).digests["shop/linked"] != first.digests["shop/linked"]


def test_compiled_files_are_those_of_its_own_modules(tmp_path: Path) -> None:
    listed = {"__pycache__/till.cpython-311.pyc": "", "shop/__pycache__/__init__.cpython-311.pyc": ""}
    own = distribution(tmp_path, {"till.py": b"", "shop/__init__.py": b""}, listed=listed)
    for folder, names in (("__pycache__", ("till.cpython-311.pyc", "rope.cpython-311.pyc")), ("shop/__pycache__", ())):
        (tmp_path / folder).mkdir()
        for name in (*names, "__init__.cpython-311.pyc", "notes.txt"):
            (tmp_path / folder / name).write_bytes(b"")
    found = hashed(tmp_path, own)
    assert found.compiled == ("__pycache__/till.cpython-311.pyc", "shop/__pycache__/__init__.cpython-311.pyc")
    assert not any("__pycache__" in path for path in found.digests)


def test_a_working_copy_is_hashed_with_all_below_it(tmp_path: Path) -> None:
    (tmp_path / "shop" / "sub" / "__pycache__").mkdir(parents=True)
    for name in ("shop/__init__.py", "shop/sub/inner.py", "till.py", "shop/sub/__pycache__/inner.cpython-311.pyc"):
        (tmp_path / name).write_text(name)
    found = hash_folders([tmp_path / "shop", tmp_path / "till.py"], {"METADATA/METADATA": "1"})
    assert dict(found.digests) == {
        "METADATA/METADATA": "1",
        **{name: sha256(name.encode()) for name in ("shop/__init__.py", "shop/sub/inner.py", "till.py")},
    }
    assert (found.root, found.tops) == (tmp_path, ("shop", "till"))
    assert found.compiled == ("shop/sub/__pycache__/inner.cpython-311.pyc",)


@pytest.mark.parametrize(
    ("path", "top"),
    [
        ("shop/a.py", "shop"),
        ("shop/deep/a.so", "shop"),
        ("shop/data.json", ""),
        ("shop-1.0.dist-info/METADATA", ""),
        ("shop-1.0.dist-info/odd.py", ""),
        ("__pycache__/till.py", ""),
        ("till.py", "till"),
        ("till.cpython-311-x86_64-linux-gnu.so", "till"),
        ("till.pyc", "till"),
        ("README", ""),
        ("notes.txt", ""),
    ],
)
def test_the_name_that_is_imported(path: str, top: str) -> None:
    assert top_of(path) == top


def test_what_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = distribution(tmp_path, {"shop/__init__.py": b"", "shop/a.py": b""})
    assert hash_file(str(tmp_path / "nothing")) == ""
    (tmp_path / "site").mkdir()
    with pytest.raises(FilesUnreadable, match=r"site cannot be read: Is a directory"):
        hash_file(str(tmp_path / "site"))

    def refuse(place: str) -> object:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        with pytest.raises(FilesUnreadable, match=r"shop cannot be read: Permission denied"):
            hashed(tmp_path, own)
    monkeypatch.setattr(files, "MAX_FILES", 1)
    with pytest.raises(FilesUnreadable, match=r"of a distribution with more than 1 files"):
        hashed(tmp_path, own)


def test_a_top_level_name_that_a_record_has_is_of_a_distribution(tmp_path: Path) -> None:
    install(tmp_path, "till")
    list_in_record(tmp_path, "till-1.0.dist-info", "till.py")
    found = ForeignFiles([PathDistribution(tmp_path / "till-1.0.dist-info")])
    assert (found.has_top("till.py"), found.has_top("till"), found.has("till.py"), found.has("ill.py")) == (
        True,
        False,
        True,
        False,
    )
