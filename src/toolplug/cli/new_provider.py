"""`toolplug new-provider`: a complete provider package."""

from __future__ import annotations

import re
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import typer
from packaging.version import Version

from toolplug.cli.options import DEFAULT_FILE, ConfigOption, JsonOption, found_config
from toolplug.cli.output import print_answer, print_problems, problem_fields
from toolplug.errors import ConfigError, Problem
from toolplug.providers.entry_points import InstalledProvider, installed

TEMPLATES = "provider_package"
FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "LICENSE": "LICENSE",
    "package.py": "src/toolplug_$name/__init__.py",
    "provider.py": "src/toolplug_$name/provider.py",
    "test_provider.py": "tests/test_$name.py",
}
"""The target of each template; an empty `py.typed` is added to the code."""

_NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
_LONGEST = 48
_PREFIX = "toolplug_"
"""The prefix of the packages, which is not part of the type."""

app: typer.Typer = typer.Typer()


@app.command()
def new_provider(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The provider's type, such as weather or unit-prices.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a complete provider package into ./toolplug-NAME: code, tests, README. Its tests pass at once.

    It has one tool, one route and one setting, to be replaced by yours. Overwrites nothing.

    Example: toolplug new-provider weather && cd toolplug-weather && pip install -e . pytest && python -m pytest
    """
    key = name.replace("-", "_").removeprefix(_PREFIX)
    if not _NAME.fullmatch(name) or not _NAME.fullmatch(key) or len(key) > _LONGEST:
        raise typer.BadParameter(f"{name!r}: lower-case words of a-z and 0-9, joined by - or _, are a provider's name")
    folder = Path(f"toolplug-{key.replace('_', '-')}")
    written = _write(folder, key)
    text = (
        f"Created {folder}. Next steps:\n\n  cd {folder}\n  pip install -e . pytest\n  python -m pytest\n\n"
        f"Then enable it in {found_config(config) or DEFAULT_FILE}:\n\nproviders:\n  {key}:\n    enabled: true"
    )
    warnings = [_taken(key, owner) for owner in installed().types.get(key, ())]
    fields: dict[str, object] = {"folder": str(folder), "files": [str(file) for file in written]}
    print_answer(as_json, {**fields, **({"warnings": problem_fields(warnings)} if warnings else {})}, text)
    if not as_json:
        print_problems(warnings, as_json=False)


def _taken(key: str, owner: InstalledProvider) -> Problem:
    message = f"{owner.package} is installed and has the provider type {key!r} too: no configuration can name both"
    return Problem(code="type_taken", message=message, hint="take another name, or uninstall it")


def _write(folder: Path, key: str) -> list[Path]:
    try:
        folder.mkdir()
    except FileExistsError:
        message, hint = "exists already and is unchanged", "take another name, or move it away"
        raise ConfigError([Problem(code="exists", message=message, file=str(folder), hint=hint)]) from None
    running = Version(version("toolplug"))  # the next minor of a 0.x version may be incompatible
    words = {
        "name": key,
        "dashed": key.replace("_", "-"),
        "class_name": "".join(word.capitalize() for word in key.split("_")),
        "requirement": f"toolplug>={running.major}.{running.minor},<{running.major}.{running.minor + 1}",
    }
    texts = {folder / "src" / f"toolplug_{key}" / "py.typed": ""}
    source = files("toolplug.cli").joinpath(TEMPLATES)
    for template, target in FILES.items():
        file = folder / Template(target).substitute(words)
        texts[file] = Template(source.joinpath(f"{template}.template").read_text("utf-8")).substitute(words)
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return list(texts)
