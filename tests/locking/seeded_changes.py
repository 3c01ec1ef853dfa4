"""A hundred changes of the installed packages of a shop, each with the words in which it must be refused."""

from __future__ import annotations

import importlib.util
import marshal
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from importlib._bootstrap_external import _code_to_hash_pyc, _code_to_timestamp_pyc  # type: ignore[import-not-found]
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, NamedTuple

from tests.locking.shop import FILES, install, list_in_record, record_again, write_record

_SHOP, _SHELF = "toolplug_shop-1.0.dist-info", "shelf-1.0.dist-info"
_SO = EXTENSION_SUFFIXES[0]


class Folders(NamedTuple):
    """What a change may touch: the installed packages, and an earlier entry of the path, which is empty at first."""

    site: Path
    earlier: Path
    configuration: Path


class Change(NamedTuple):
    """One change: `words` are all in what refuses it."""

    name: str
    make: Callable[[Folders], object]
    words: tuple[str, ...]


def _append(path: str, folders: Folders) -> None:
    with (folders.site / path).open("ab") as file:
        file.write(b"\n# more\n")


def _append_and_record(path: str, folders: Folders) -> None:
    _append(path, folders)
    record_again(folders.site)


def _remove(path: str, folders: Folders) -> None:
    (folders.site / path).unlink()


def _change_in_place(path: str, folders: Folders) -> None:
    """Change a byte, and leave size and time as they are."""
    place = folders.site / path
    status, data = place.stat(), place.read_bytes()
    place.write_bytes(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])
    os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))


def _add(path: str, folders: Folders) -> None:
    (folders.site / path).parent.mkdir(parents=True, exist_ok=True)
    (folders.site / path).write_bytes(b"STOLEN = 1\n")


def _add_and_list(path: str, info: str, folders: Folders) -> None:
    _add(path, folders)
    list_in_record(folders.site, info, path)


def _earlier(path: str, folders: Folders) -> None:
    place = folders.earlier / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("STOLEN = 1\n")


def _earlier_copy(name: str, folders: Folders) -> None:
    install(folders.earlier, name)
    with (folders.earlier / next(iter(FILES[name]))).open("a") as file:
        file.write("STOLEN = 1\n")


def _compile(kind: str, path: str, folders: Folders) -> None:
    """Put other code where Python takes it for the compiled source."""
    source = folders.site / path
    code: Any = compile("STOLEN = 1\n", str(source), "exec")
    text, status = source.read_bytes(), source.stat()
    if kind == "time":
        data = _code_to_timestamp_pyc(code, int(status.st_mtime), status.st_size)
    else:
        data = _code_to_hash_pyc(code, importlib.util.source_hash(text), kind == "checked")
    target = Path(importlib.util.cache_from_source(str(source)))
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(data)


def _compile_alone(path: str, folders: Folders) -> None:
    """Put a compiled file in the place of a module that has no source."""
    code = compile("STOLEN = 1\n", path, "exec")
    (folders.site / path).write_bytes(importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code))


def _release(name: str, folders: Folders) -> None:
    """Install another version, whose code is the same."""
    shutil.rmtree(folders.site / f"{name.replace('-', '_')}-1.0.dist-info")
    install(folders.site, name, "1.1")


def _uninstall(name: str, folders: Folders) -> None:
    for path in FILES[name]:
        (folders.site / path).unlink()
    shutil.rmtree(folders.site / f"{name.replace('-', '_')}-1.0.dist-info")


def _replace_text(path: str, old: str, new: str, folders: Folders) -> None:
    place = folders.site / path
    assert old in place.read_text()
    place.write_text(place.read_text().replace(old, new))
    record_again(folders.site)


def _need(folders: Folders) -> None:
    """Let the shop need one more package, which is installed."""
    _replace_text(f"{_SHOP}/METADATA", "Requires-Dist: till\n", "Requires-Dist: till\nRequires-Dist: thief\n", folders)
    (folders.site / "thief.py").write_text("")
    info = folders.site / "thief-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thief\nVersion: 1.0\n")
    write_record(folders.site, info.name, ["thief.py", f"{info.name}/METADATA"])


def _link(path: str, folders: Folders) -> None:
    """Put a link to another content in the place of a file."""
    (folders.earlier / "other.txt").write_text("STOLEN = 1\n")
    (folders.site / path).unlink()
    (folders.site / path).symlink_to(folders.earlier / "other.txt")


def _link_folder(path: str, folders: Folders) -> None:
    shutil.move(folders.site / path, folders.earlier / "moved")
    (folders.site / path).symlink_to(folders.earlier / "moved")


def _in_configuration(path: str, old: str, new: str, folders: Folders) -> None:
    place = folders.configuration / path
    assert old in place.read_text()
    place.write_text(place.read_text().replace(old, new))


def _egg(name: str, version: str, folders: Folders) -> None:
    """Put metadata of an older kind where they are found first."""
    info = folders.earlier / f"{name}.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if name == "toolplug-shop":
        (info / "entry_points.txt").write_text("[toolplug.providers]\nshop = thief:Shop\n")
        (folders.earlier / "thief.py").write_text("STOLEN = 1\n")


def _call_editable(info: str, folders: Folders) -> None:
    (folders.site / info / "direct_url.json").write_text('{"url": "file:///x", "dir_info": {"editable": true}}')


def _replace_by_folder(path: str, folders: Folders) -> None:
    (folders.site / path).unlink()
    (folders.site / path).mkdir()


def _rename(path: str, name: str, folders: Folders) -> None:
    (folders.site / path).rename((folders.site / path).with_name(name))
    record_again(folders.site)


def _copy_elsewhere(path: str, folders: Folders) -> None:
    """Have the metadata lead to others, which say something else."""
    shutil.move(folders.site / path, folders.earlier / "elsewhere")
    (folders.site / path).symlink_to(folders.earlier / "elsewhere")
    with (folders.site / path / "METADATA").open("a") as file:
        file.write("Requires-Dist: thief\n")


def _ask_for(package: str, folders: Folders) -> None:
    (folders.site / package / "toolplug_permissions.toml").write_text('network = ["thief.example"]\n')


def _odd_changes() -> Iterator[Change]:
    """Yield changes of how a package is installed, more than of what it is."""
    yield Change("no RECORD", partial(_remove, f"{_SHELF}/RECORD"), ("shelf 1.0", "is new"))
    yield Change(
        "an empty RECORD",
        lambda folders: (folders.site / _SHELF / "RECORD").write_text(""),
        ("shelf 1.0", "shelf/inner.py is gone"),
    )
    yield Change("called editable", partial(_call_editable, _SHELF), ("shelf 1.0 is a working copy now",))
    yield Change("older metadata before it", partial(_egg, "till", "0.9"), ("till is version 0.9", "the lock has 1.0"))
    yield Change(
        "older metadata with another provider",
        partial(_egg, "toolplug-shop", "1.0"),
        ("thief.py is new", "no RECORD lists it"),
    )
    yield Change(
        "a part of a namespace before it",
        partial(_earlier, "acme/tax/__init__.py"),
        ("acme-tax 1.0", "acme is imported from", "not a file of it"),
    )
    for path in ("acme/sale/cheap.py", "acme/sale.py"):
        yield Change(
            f"next to a part of a namespace: {path}",
            partial(_add, path),
            ("acme-tax 1.0", f"{path} is new", "no RECORD lists it"),
        )
    yield Change(
        "in the package of another distribution",
        partial(_add_and_list, "shelf/fast.py", "till-1.0.dist-info"),
        ("shelf 1.0", "shelf/fast.py is new"),
    )
    yield Change("metadata elsewhere", partial(_copy_elsewhere, _SHELF), ("shelf 1.0", f"{_SHELF}"))
    yield Change("a folder for a file", partial(_replace_by_folder, "shelf/inner.py"), ("shelf", "inner.py"))
    yield Change("another case", partial(_rename, "shelf/inner.py", "Inner.py"), ("shelf 1.0", "shelf/Inner.py is new"))
    yield Change(
        "a library for a package",
        partial(_add, f"shelf/__init__{_SO}"),
        ("shelf 1.0", f"shelf/__init__{_SO} is new", "no RECORD lists it"),
    )
    yield Change(
        "a dependency asks for something",
        lambda folders: (folders.site / "shelf" / "toolplug_permissions.toml").write_text(
            'network = ["thief.example"]\n'
        ),
        ("shelf 1.0 asks for more: network: thief.example",),
    )
    yield Change(
        "a package that runs at the start",
        partial(_earlier, "sitecustomize/__init__.py"),
        ("sitecustomize", "at each start"),
    )
    yield Change(
        "compiled before the standard library",
        partial(_earlier, "pathlib.pyc"),
        ("pathlib", "is new", "no RECORD lists it"),
    )
    yield Change(
        "a condition that is met now",
        partial(_replace_text, f"{_SHOP}/METADATA", "never; python_version < '3'", "rope; python_version > '3'"),
        ("toolplug-shop 1.0 needs rope now",),
    )


def _changes() -> Iterator[Change]:
    yield from _odd_changes()
    owners = {path: name for name, paths in FILES.items() for path in paths}
    owners |= {
        f"{_SHOP}/METADATA": "toolplug-shop",
        f"{_SHOP}/entry_points.txt": "toolplug-shop",
        f"{_SHELF}/METADATA": "shelf",
    }
    for path, owner in owners.items():
        words = (f"{owner} 1.0", path)
        yield Change(f"changed {path}", partial(_append, path), (*words, "has changed"))
        yield Change(f"changed, with its RECORD: {path}", partial(_append_and_record, path), (*words, "has changed"))
        if not path.endswith(("METADATA", "toolplug_shop/__init__.py", "entry_points.txt")):
            yield Change(f"gone {path}", partial(_remove, path), (*words, "is gone"))
        if path not in ("toolplug_shop/__init__.py",) and not path.endswith((".toml", "METADATA", "entry_points.txt")):
            yield Change(f"same size and time {path}", partial(_change_in_place, path), (*words, "has changed"))
    for folder, owner in (
        ("toolplug_shop", "toolplug-shop"),
        ("toolplug_shop/sub", "toolplug-shop"),
        ("shelf", "shelf"),
        ("acme/tax", "acme-tax"),
        ("rope", "rope"),
    ):
        for name in ("helper.py", f"fast{_SO}", "words.txt", "provider" + _SO):
            path = f"{folder}/{name}"
            yield Change(f"new {path}", partial(_add, path), (f"{owner} 1.0", path, "no RECORD lists it"))
        info = f"{owner.replace('-', '_')}-1.0.dist-info"
        path = f"{folder}/listed.py"
        yield Change(f"new and listed {path}", partial(_add_and_list, path, info), (f"{owner} 1.0", path, "is new"))
        path = f"{folder}/alone.pyc"
        yield Change(
            f"compiled alone {path}", partial(_compile_alone, path), (f"{owner} 1.0", path, "no RECORD lists it")
        )
    path = f"{_SHELF}/entry_points.txt"
    yield Change("entry points for a dependency", partial(_add, path), ("shelf 1.0", path))
    for path, owner, top in (
        ("toolplug_shop/__init__.py", "toolplug-shop", "toolplug_shop"),
        ("shelf.py", "shelf", "shelf"),
        ("till/__init__.py", "till", "till"),
        ("till.py", "till", "till"),
        (f"rope{_SO}", "rope", "rope"),
        ("acme/__init__.py", "acme-tax", "acme"),
    ):
        yield Change(
            f"earlier {path}", partial(_earlier, path), (f"{owner} 1.0", f"{top} is imported from", "not a file of it")
        )
    yield Change(
        "a folder before a module",
        lambda folders: ((folders.site / "till").mkdir(), _add("till/__init__.py", folders)),
        ("till 1.0", "till is imported from"),
    )
    yield Change("a library before a module", partial(_add, f"till{_SO}"), ("till 1.0", "till is imported from"))
    for name in ("toolplug-shop", "shelf", "till"):
        path = next(iter(FILES[name]))
        yield Change(f"an earlier copy of {name}", partial(_earlier_copy, name), (f"{name} 1.0", path, "has changed"))
    for name in ("json.py", "asyncio/__init__.py", "pathlib.py"):
        yield Change(
            f"before the standard library: {name}",
            partial(_earlier, name),
            (name.split("/", maxsplit=1)[0], "is new", "no RECORD lists it"),
        )
    yield Change(
        "a .pth file",
        lambda folders: (folders.site / "evil.pth").write_text("import os\n"),
        ("evil.pth is new", "at each start"),
    )
    yield Change(
        "a .pth file with a path",
        lambda folders: (folders.site / "more.pth").write_text("/nowhere\n"),
        ("more.pth is new", "at each start"),
    )
    yield Change(
        "a changed .pth file",
        lambda folders: (folders.site / "old.pth").write_text("# two\n"),
        ("old.pth has changed", "at each start"),
    )
    for name in ("sitecustomize", "usercustomize"):
        yield Change(name, partial(_earlier, f"{name}.py"), (name, "at each start"))
    yield Change("a loose module", partial(_add, "simplejson.py"), ("simplejson.py is new", "no RECORD lists it"))
    yield Change(
        "a loose package",
        lambda folders: ((folders.site / "ujson").mkdir(), _add("ujson/__init__.py", folders)),
        ("ujson is new", "no RECORD lists it"),
    )
    yield Change(
        "a loose package of folders", partial(_add, "cjson/fast/inner.py"), ("cjson is new", "no RECORD lists it")
    )
    yield Change(
        "a changed loose module",
        lambda folders: (folders.site / "loose.py").write_text("TWO = 2\n"),
        ("loose.py has changed", "no RECORD lists it"),
    )
    for name in ("toolplug-shop", "shelf", "till", "rope"):
        yield Change(
            f"another version of {name}", partial(_release, name), (f"{name} is version 1.1", "the lock has 1.0")
        )
    for name in ("shelf", "till", "rope", "acme-tax"):
        yield Change(f"uninstalled {name}", partial(_uninstall, name), (f"{name} is not installed",))
    yield Change("one more package is needed", _need, ("toolplug-shop 1.0 needs thief now",))
    yield Change(
        "a package is needed no longer",
        partial(_replace_text, f"{_SHOP}/METADATA", "Requires-Dist: till\n", ""),
        ("toolplug-shop 1.0 needs till no longer",),
    )
    yield Change(
        "an extra is needed no longer",
        partial(_replace_text, f"{_SHOP}/METADATA", "shelf[red]", "shelf"),
        ("rope is needed no longer",),
    )
    for kind in ("time", "checked", "unchecked"):
        for path, owner in (
            ("toolplug_shop/provider.py", "toolplug-shop"),
            ("toolplug_shop/sub/__init__.py", "toolplug-shop"),
            ("shelf/inner.py", "shelf"),
            ("till.py", "till"),
            ("acme/tax/__init__.py", "acme-tax"),
        ):
            stem = Path(importlib.util.cache_from_source(path)).name
            yield Change(
                f"compiled by {kind}: {path}", partial(_compile, kind, path), (f"{owner} 1.0", stem, "its source")
            )
    yield Change("a link for a file", partial(_link, "shelf/inner.py"), ("shelf 1.0", "shelf/inner.py has changed"))
    yield Change(
        "a link for a folder", partial(_link_folder, "toolplug_shop/sub"), ("toolplug-shop 1.0", "toolplug_shop/sub")
    )
    permissions = "toolplug_shop/toolplug_permissions.toml"
    yield Change(
        "it asks for more",
        partial(_replace_text, permissions, '"api.shop.example"', '"api.shop.example", "thief.example"'),
        ("toolplug-shop 1.0 asks for more: network: thief.example",),
    )
    yield Change(
        "it starts programs",
        partial(_replace_text, permissions, "network", "subprocess = true\nnetwork"),
        ("toolplug-shop 1.0 asks for more: subprocess: true",),
    )
    yield Change("a provider file", partial(_in_configuration, "notes.py", "2", "3"), ("notes.py has changed",))
    yield Change(
        "another type", partial(_in_configuration, "providers.yaml", "type: shop", "type: ./notes.py"), ("its type is",)
    )


CHANGES = tuple(_changes())
assert len({change.name for change in CHANGES}) == len(CHANGES) >= 100
