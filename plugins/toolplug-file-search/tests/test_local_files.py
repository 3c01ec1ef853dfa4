"""Which files a path of the configuration names."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolplug_file_search.ingest.local_files import local_files, pattern


def write(path: Path, text: str = "text") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(root: Path, *paths: str) -> list[str]:
    return [
        Path(file.name).relative_to(root).as_posix() for file in local_files([pattern(path, Path()) for path in paths])
    ]


def test_a_folder_gives_its_files_at_every_depth_but_nothing_hidden_and_says_which_can_be_read(tmp_path: Path) -> None:
    for name in ("a.md", "b/c.TXT", "b/d.rst", "b/e.png", ".git/f.md", ".g.md", "b/__pycache__/h.pyc"):
        write(tmp_path / name)
    assert names(tmp_path, str(tmp_path)) == ["a.md", "b/c.TXT", "b/d.rst", "b/e.png"]
    found = local_files([pattern(str(tmp_path), Path())])
    assert [file.supported for file in found] == [True, True, True, False]


def test_a_glob_gives_what_matches_whatever_it_is_called(tmp_path: Path) -> None:
    for name in ("a.md", "b/c.py", "b/d.md"):
        write(tmp_path / name)
    assert names(tmp_path, f"{tmp_path}/**/*.py") == ["b/c.py"]


def test_a_single_file_is_named_by_itself(tmp_path: Path) -> None:
    write(tmp_path / "LICENSE")
    assert names(tmp_path, f"{tmp_path}/LICENSE") == ["LICENSE"]


def test_a_file_that_two_paths_name_is_there_once(tmp_path: Path) -> None:
    write(tmp_path / "a.md")
    assert names(tmp_path, f"{tmp_path}/a.md", str(tmp_path)) == ["a.md"]


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside" / "secret.md")
    inside = tmp_path / "inside"
    write(inside / "a.md")
    (inside / "link.md").symlink_to(outside)
    (inside / "folder").symlink_to(outside.parent)
    assert names(inside, str(inside), f"{inside}/*/*.md") == ["a.md"]


def test_a_root_that_is_itself_a_link_is_the_operators_choice(tmp_path: Path) -> None:
    write(tmp_path / "real" / "a.md")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert names(tmp_path, f"{tmp_path}/link") == ["link/a.md"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("missing", "/missing' does not exist"),
        ("missing/*.md", "/missing' does not exist"),
        ("*/../../x", "leaves its own folder"),
        ("a.md/*.md", "is no folder"),
    ],
)
def test_a_path_that_cannot_be_is_named(tmp_path: Path, path: str, says: str) -> None:
    write(tmp_path / "a.md")
    with pytest.raises(ValueError, match=says):
        pattern(f"{tmp_path}/{path}", Path())
