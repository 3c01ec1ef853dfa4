"""`toolplug new-provider`: a complete provider package, from a template or from what is there already."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from toolplug.cli.arguments import arguments_from
from toolplug.cli.event_loop import async_command
from toolplug.cli.options import DEFAULT_FILE, ConfigOption, JsonOption, found_config
from toolplug.cli.output import echo, print_answer, print_problems, problem_fields
from toolplug.cli.package_sources import (
    TEMPLATES,
    PackageCode,
    PackageSource,
    class_name_of,
    find_source,
    read_code,
    require_minor,
)
from toolplug.errors import ConfigError, Problem
from toolplug.packages.entry_points import InstalledProvider, find_installed

FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "LICENSE": "LICENSE",
    "ci.yml": ".github/workflows/ci.yml",
    "package.py": "src/toolplug_$name/__init__.py",
    "provider.py": "src/toolplug_$name/provider.py",
    "permissions.toml": "src/toolplug_$name/toolplug_permissions.toml",
    "test_provider.py": "tests/test_$name.py",
}
"""The target of each template; an empty `py.typed` is added to the code."""


class Part(StrEnum):
    """What a package may have besides its tool and its setting."""

    ROUTES = "routes"
    METRICS = "metrics"
    STORAGE = "storage"
    STUB = "stub"
    PROMPTS = "prompts"


QUESTIONS = {
    Part.ROUTES: "a route over HTTP",
    Part.METRICS: "a metric of its own",
    Part.STORAGE: "records for each tenant",
    Part.STUB: "a built-in tool type that requests can name",
    Part.PROMPTS: "a prompt for MCP clients",
}
USUAL = frozenset({Part.ROUTES})
"""The parts of a package if nothing says which, and nobody can be asked."""

_REGION = re.compile(r"^ *# <(not )?(\w+)>\n(.*?)^ *# </\1?\2>\n", re.MULTILINE | re.DOTALL)  # linear: own templates
"""Lines of a template that belong to a package with this part, or without it."""
_IMPORTS = {
    "": ("CallContext", "FunctionProvider", "ToolError", "tool"),
    Part.ROUTES: ("route",),
    Part.STORAGE: ("ProviderContext",),
    Part.PROMPTS: ("prompt",),
}
_TEST_IMPORTS = {"": ("CallContext", "Principal", "ToolResult"), Part.METRICS: ("FunctionRegistry",)}
_NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
_LONGEST = 48
_PREFIX = "toolplug_"
"""The prefix of the packages, which is not part of the type."""

app: typer.Typer = typer.Typer()


@async_command(app)
async def new_provider(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The provider's type, such as weather; with --from that of the source."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="Make the package of this: notes.py, openapi.json, the URL or command of an MCP server, a module, "
            "llm-tools-…; file:, openapi:, mcp:, module: or llm: before it says which it is.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="With --from: a setting that the provider needs to start, for its test and README. May be repeated.",
        ),
    ] = None,
    parts: Annotated[
        list[Part] | None,
        typer.Option(
            "--with",
            metavar="PART",
            help=f"A part that it has: {', '.join(Part)}. May be repeated. Without it, a terminal is asked.",
        ),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a complete provider package into ./toolplug-NAME: code, tests, README. Its tests pass at once.

    It has one tool and one setting, and the parts that you choose, to be replaced by yours: a route if you choose none.
    With --from it serves what is there already: a file that `toolplug serve` can serve, the functions of a module, the
    operations of an OpenAPI document, the tools of an MCP server or of a plugin of llm. Overwrites nothing.

    Examples: toolplug new-provider weather && cd toolplug-weather && pip install -e . pytest && python -m pytest ·
    toolplug new-provider --from petstore.yaml · toolplug new-provider clock --from "uvx mcp-server-time"
    """
    found = None if source is None else find_source(source)
    key = _key_of(name, found)
    if parts and found is not None:
        raise typer.BadParameter("--with is for a package from the template; with --from it has the code of the source")
    if settings and found is None:
        raise typer.BadParameter("--set is for --from: a package from the template has settings of its own")
    folder = Path(f"toolplug-{key.replace('_', '-')}")
    _refuse_existing(folder)
    code = None if found is None else await read_code(found, key, arguments_from(settings or (), {}))
    chosen = frozenset(parts or ()) or (_ask() if code is None and not as_json and sys.stdin.isatty() else USUAL)
    written = _write(folder, key, code, chosen)
    text = (
        f"Created {folder}. Next steps:\n\n  cd {folder}\n  pip install -e . pytest\n  python -m pytest\n\n"
        f"Then enable it in {found_config(config) or DEFAULT_FILE}:\n\nproviders:\n  {key}:\n    enabled: true"
    )
    warnings = [
        *(() if code is None else code.warnings),
        *(_report_taken(key, each) for each in find_installed().types.get(key, ())),
    ]
    fields: dict[str, object] = {"folder": str(folder), "files": [str(file) for file in written]}
    print_answer(as_json, {**fields, **({"warnings": problem_fields(warnings)} if warnings else {})}, text)
    if not as_json:
        print_problems(warnings, as_json=False)


def _key_of(name: str | None, source: PackageSource | None) -> str:
    """Return the provider's key in the configuration, by its name or that of the source. Raises `BadParameter`."""
    if name is None and source is None:
        raise typer.BadParameter("give NAME, or --from SOURCE")
    if not name and source is not None and not source.name:
        raise typer.BadParameter("a server says no name for its package; give one as NAME")
    name = name or (source.name if source is not None else "")
    key = name.replace("-", "_").removeprefix(_PREFIX)
    if not _NAME.fullmatch(name) or not _NAME.fullmatch(key) or len(key) > _LONGEST:
        wrong = f"{name!r}: lower-case words of a-z and 0-9, joined by - or _, are a provider's name"
        raise typer.BadParameter(f"{wrong}; give one as NAME" if source is not None else wrong)
    return key


def _refuse_existing(folder: Path) -> None:
    if folder.exists():
        message, hint = "exists already and is unchanged", "take another name, or move it away"
        raise ConfigError([Problem(code="exists", message=message, file=str(folder), hint=hint)])


def _ask() -> frozenset[Part]:
    """Ask the person at the terminal for each part."""
    echo("A tool and a setting are in it. What else should it have?", err=True)
    asked = ((part, typer.confirm(f"  {what}", default=part in USUAL, err=True)) for part, what in QUESTIONS.items())
    return frozenset(part for part, wanted in asked if wanted)


def _report_taken(key: str, owner: InstalledProvider) -> Problem:
    message = f"{owner.package} is installed and has the provider type {key!r} too: no configuration can name both"
    return Problem(code="type_taken", message=message, hint="take another name, or uninstall it")


def _with(parts: frozenset[Part], text: str) -> str:
    """Return a template without the regions of other parts."""
    return _REGION.sub(lambda found: found[3] if (found[2] in parts) is not bool(found[1]) else "", text)


def _names(names: Mapping[str, Sequence[str]], parts: frozenset[Part]) -> str:
    """Return the names that a module with these parts imports, in the order of isort."""
    every = [name for part, imported in names.items() if not part or part in parts for name in imported]
    return ", ".join(sorted(every, key=lambda name: (name.islower(), name)))


def _list_needed(parts: frozenset[Part]) -> tuple[str, ...]:
    starlette = ("starlette>=1.3.1,<2",) if Part.ROUTES in parts else ()
    prometheus = ("prometheus-client>=0.22",) if Part.METRICS in parts else ()
    return ("pydantic>=2.12,<3", *prometheus, *starlette)


def _write(folder: Path, key: str, code: PackageCode | None, parts: frozenset[Part]) -> list[Path]:
    folder.mkdir()
    needed = _list_needed(parts) if code is None else code.dependencies
    words = {
        "name": key,
        "dashed": key.replace("_", "-"),
        "class_name": class_name_of(key),
        "entry_point": f"toolplug_{key}.provider:{class_name_of(key)}",
        "dependencies": ", ".join(f'"{each}"' for each in (require_minor("toolplug"), *needed)),
        "imports": _names(_IMPORTS, parts),
        "test_imports": _names(_TEST_IMPORTS, parts),
        "network": "[]",
        "subprocess": "false",
        **({} if code is None else code.words),
    }
    package = folder / "src" / f"toolplug_{key}"
    contents = {package / "py.typed": b""}
    templates = files("toolplug.cli").joinpath(TEMPLATES)
    others = {} if code is None else {"README.md": "file_README.md", "test_provider.py": f"{code.test}.py"}
    for template, target in FILES.items():
        text = _with(parts, templates.joinpath(f"{others.get(template, template)}.template").read_text("utf-8"))
        contents[folder / Template(target).substitute(words)] = Template(text).substitute(words).encode()
    if code is not None:
        contents |= {package / name: data for name, data in {"provider.py": code.source.encode(), **code.data}.items()}
    for file, content in contents.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)  # the code of a file has its own line ends
    return list(contents)
