"""What a package says that it needs: `toolplug_permissions.toml` beside the modules of its provider.

It is disclosure: `run` of an entry grants, and nothing else does. It is a file of the package, since no wheel carries
the author's pyproject.toml; it is read without an import of the package.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolplug.errors import InvalidDefinition
from toolplug.packages.entry_points import GROUP

FILE = "toolplug_permissions.toml"
MAX_BYTES = 64 * 1024
"""Bytes of the file: a stranger has written it, and `doctor` reads one for each package."""
MAX_WORDS = 100
"""Words of one list, and characters of one word (`_Word`): what a person is to read before granting it."""

_STRING = re.compile(rb'"(?:[^"\\\n]|\\.)*"?|\'[^\'\n]*\'?')
"""A string on one line, or one that does not end there."""

_Word = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[ -~]+$")]
_Words = Annotated[tuple[_Word, ...], Field(max_length=MAX_WORDS, strict=False)]


class Permissions(BaseModel):
    """What a package asks for.

    * `network`: hosts, as `api.example.com`, `*.example.com` or `api.example.com:8443`
    * `files`: paths as an operator would grant them, as `./notes:rw`
    * `environment`: names of variables
    * `hooks`: hooks that see the calls of all providers, as `before_call`
    * `subprocess`: it starts programs

    ```python
    from toolplug.apart.permissions import Permissions

    asked = Permissions.model_validate({"network": ["api.example.com"]})
    assert asked.describe() == ["network: api.example.com"]
    ```
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True)

    network: _Words = ()
    files: _Words = ()
    environment: _Words = ()
    hooks: _Words = ()
    subprocess: bool = False

    def describe(self) -> list[str]:
        """Return a line for each thing that is asked for, as `doctor` shows it."""
        lines = [
            f"{name}: {', '.join(words)}"
            for name in ("network", "files", "environment", "hooks")
            if (words := getattr(self, name))
        ]
        return [*lines, *(["subprocess: true"] if self.subprocess else [])]


def read_permissions(package: str | Distribution) -> Permissions:
    """Return what an installed distribution asks for; nothing if it has no such file.

    Raises `InvalidDefinition` for a file that is not valid, with its path.
    """
    path = find_permissions(package)
    return Permissions() if path is None else parse_permissions(path)


def find_permissions(package: str | Distribution) -> Path | None:
    """Return the path of the file of a distribution: in the package of a provider, or in one around it."""
    if isinstance(package, str):
        try:
            package = distribution(package)
        except PackageNotFoundError:
            return None
    for point in package.entry_points.select(group=GROUP):
        parts = point.module.split(".")
        for length in range(len(parts), 0, -1):
            inside = "/".join((*parts[:length], FILE))
            for folder in (Path(str(package.locate_file(""))), *_editable_folders(parts[0])):
                if (path := folder / inside).is_file():
                    return path
    return None


def parse_permissions(path: Path) -> Permissions:
    """Read the file. Raises `InvalidDefinition`, naming the path and what is wrong in it."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise InvalidDefinition(f"{path}: has more than {MAX_BYTES} bytes")
        # The parser of the standard library takes a minute for a key of 20,000 parts; there is no use for one of two.
        if b'"""' in text or b"'''" in text or _STRING.sub(b"", text).count(b".") > MAX_WORDS:
            raise InvalidDefinition(f"{path}: has a string of several lines, or keys in keys: it needs none")
        return Permissions.model_validate(tomllib.loads(text.decode()))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        known = ", ".join(Permissions.model_fields)
        fix = f"; there are {known}" if first["type"] == "extra_forbidden" else ""
        raise InvalidDefinition(f"{path}: {where}: {first['msg']}{fix}") from None
    # RecursionError: brackets in brackets, of which the standard library's parser keeps no count.
    except (OSError, ValueError, RecursionError) as error:
        text = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise InvalidDefinition(f"{path}: is no TOML that can be read: {text}") from None


def _editable_folders(name: str) -> list[Path]:
    """Return the folders in which the top-level package is, for working copies; it is not imported."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return []
    return [Path(each).parent for each in (spec and spec.submodule_search_locations) or ()]
