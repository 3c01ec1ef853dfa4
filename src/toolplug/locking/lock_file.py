"""The file `toolplug.lock`: its values, and its text in TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from toolplug.errors import ConfigError, Problem

LOCK_FILE = "toolplug.lock"
VERSION = 1
MAX_BYTES = 64 * 1024 * 1024
"""Of the file. Fifty packages with their dependencies take 0.4 MB."""
SHORT = 16
"""Hexadecimal digits of a file's digest in the lock: they say which file has changed; the package's digest is whole."""

_HEAD = """\
Written by `toolplug lock`, compared by `toolplug check --locked` and `toolplug serve --locked`.
Look at what changes here as at code: it is what runs.
"""


class _Value(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)


def _split_lines(value: object) -> object:
    """Return the digests of files by path, of a text with a line for each."""
    if not isinstance(value, str):
        return value
    return {path: digest for digest, _, path in (line.partition("  ") for line in value.splitlines()) if path}


Files = Annotated[dict[str, str], BeforeValidator(_split_lines)]
Digests = Annotated[dict[str, str], Field(default_factory=dict[str, str])]


class LockedEnvironment(_Value):
    """An interpreter: `python` as the configuration names it, empty for that of the host.

    `at_start` are the files that run at each start, `loose` the modules that no RECORD lists.
    """

    python: str = ""
    version: str
    at_start: Digests
    loose: Digests


class LockedPackage(_Value):
    """A distribution of one interpreter. `requires` are the distributions that it needs, by name.

    `permissions` is what it asks for; `files` have the first digits of the digest of each.
    """

    name: str
    version: str
    python: str = ""
    editable: bool = False
    digest: str
    requires: tuple[str, ...] = ()
    permissions: dict[str, Any] = {}
    files: Files = {}

    @property
    def key(self) -> tuple[str, str]:
        """The interpreter and the name."""
        return self.python, self.name


class LockedProvider(_Value):
    """An entry of `providers:`; a file has a `digest` and no `package`. `tools` have a digest each.

    `needs` are the names of all that its package needs in its environment, extras included. `data` are its data files,
    by their paths as the provider names them.
    """

    key: str
    type: str
    python: str = ""
    package: str = ""
    digest: str = ""
    needs: tuple[str, ...] = ()
    tools: Digests
    data: Digests

    @property
    def keys(self) -> frozenset[tuple[str, str]]:
        """The interpreter and the name of its package, and of each that it needs."""
        return frozenset((self.python, name) for name in (self.package, *self.needs) if name)


class LockedServer(_Value):
    """An entry of `mcp_servers:`, with a digest of each tool by its name there."""

    id: str
    tools: Digests


class Lock(_Value):
    """The whole file."""

    version: int = VERSION
    environments: tuple[LockedEnvironment, ...] = ()
    packages: tuple[LockedPackage, ...] = ()
    providers: tuple[LockedProvider, ...] = ()
    servers: tuple[LockedServer, ...] = ()

    def environment(self, python: str) -> LockedEnvironment | None:
        """Return an interpreter by its name in the configuration."""
        return next((each for each in self.environments if each.python == python), None)

    def package(self, python: str, name: str) -> LockedPackage | None:
        """Return a distribution of an interpreter."""
        return next((each for each in self.packages if each.key == (python, name)), None)

    def provider(self, key: str) -> LockedProvider | None:
        return next((each for each in self.providers if each.key == key), None)

    def server(self, name: str) -> LockedServer | None:
        return next((each for each in self.servers if each.id == name), None)


def read_lock(file: Path) -> Lock:
    """Read a lock. Raises `ConfigError`, naming the file and the fix."""
    try:
        with file.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _error(file, f"there is no {LOCK_FILE}", "toolplug lock writes it") from None
    except OSError as error:
        raise _error(file, f"cannot be read: {error.strerror}", "") from None
    fix = "take the one of your version control, or write it again: toolplug lock"
    if len(text) > MAX_BYTES:
        raise _error(file, f"has more than {MAX_BYTES} bytes", fix)
    try:
        parsed = tomllib.loads(text.decode())
        if parsed.get("version") != VERSION:
            message = f"has version {parsed.get('version')!r}, and this toolplug reads {VERSION}"
            raise _error(file, message, "write it again: toolplug lock")
        return Lock.model_validate(parsed)
    except ValidationError as error:
        first = error.errors()[0]
        raise _error(file, f"{'.'.join(map(str, first['loc']))}: {first['msg']}", fix) from None
    # RecursionError: brackets in brackets, of which the standard library's parser keeps no count.
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise _error(file, f"is not valid TOML: {reason}", fix) from None


def write_lock(file: Path, lock: Lock) -> None:
    """Write a lock in place of the one that is there."""
    # Reading needs no more than the standard library, and starts a host.
    tomlkit = import_module("tomlkit")
    document = tomlkit.document()
    for line in _HEAD.splitlines():
        document.add(tomlkit.comment(line))
    document.add("version", tomlkit.item(lock.version))
    for name, items in (
        ("environments", lock.environments),
        ("packages", lock.packages),
        ("providers", lock.providers),
        ("servers", lock.servers),
    ):
        if items:
            document.add(name, _tables(tomlkit, items))
    part = file.with_name(f"{file.name}.part")
    part.write_text(tomlkit.dumps(document), "utf-8", newline="\n")
    part.replace(file)


def _tables(tomlkit: Any, items: Iterable[BaseModel]) -> Any:
    tables = tomlkit.aot()
    for item in items:
        table = tomlkit.table()
        for name, value in item.model_dump(mode="json", exclude_defaults=True).items():
            if name == "files":
                lines = "".join(f"{digest}  {path}\n" for path, digest in value.items())
                table.add(name, tomlkit.string(lines, multiline=True))
            elif value or name == "digest":
                table.add(name, tomlkit.item(value))
        tables.append(table)
    return tables


def shorten(digests: Mapping[str, str]) -> dict[str, str]:
    """Return the first digits of each digest, by path in order."""
    return {path: digest[:SHORT] for path, digest in sorted(digests.items())}


def _error(file: Path, message: str, hint: str) -> ConfigError:
    return ConfigError([Problem(code="lock_unreadable", message=message, file=str(file), hint=hint)])
