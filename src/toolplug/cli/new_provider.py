"""`toolplug new-provider`: a complete provider package, from a template or from a file that is served already."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import packages_distributions, version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import typer
from packaging.version import Version

from toolplug.cli.options import DEFAULT_FILE, ConfigOption, JsonOption, found_config
from toolplug.cli.output import echo, print_answer, print_problems, problem_fields
from toolplug.errors import ConfigError, Problem, ProviderError
from toolplug.providers.entry_points import InstalledProvider, find_installed
from toolplug.providers.loading import file_module, file_of, load, names_file, provider_file

TEMPLATES = "provider_package"
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
_TEST_IMPORTS = {"": ("CallContext", "Principal", "ToolCall", "ToolResult"), Part.METRICS: ("FunctionRegistry",)}
_NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
_LONGEST = 48
_PREFIX = "toolplug_"
"""The prefix of the packages, which is not part of the type."""

app: typer.Typer = typer.Typer()


@app.command()
def new_provider(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The provider's type, such as weather; with --from that of the file."),
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="Make the package of this file: notes.py, or notes.py:Notes."),
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
    With --from it has the code of a file that `toolplug serve` can serve, and depends on what the file imports.
    Overwrites nothing.

    Example: toolplug new-provider weather && cd toolplug-weather && pip install -e . pytest && python -m pytest
    """
    key = _key_of(name, from_file)
    if parts and from_file is not None:
        raise typer.BadParameter("--with is for a package from the template; with --from it has the code of the file")
    code = None if from_file is None else _code_of(from_file, key)
    folder = Path(f"toolplug-{key.replace('_', '-')}")
    if folder.exists():
        message, hint = "exists already and is unchanged", "take another name, or move it away"
        raise ConfigError([Problem(code="exists", message=message, file=str(folder), hint=hint)])
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


def _key_of(name: str | None, from_file: str | None) -> str:
    """Return the provider's key in the configuration, by its name or that of the file. Raises `typer.BadParameter`."""
    if name is None and from_file is None:
        raise typer.BadParameter("give NAME, or --from FILE")
    name = name or Path(file_of(from_file or "")).stem
    key = name.replace("-", "_").removeprefix(_PREFIX)
    if not _NAME.fullmatch(name) or not _NAME.fullmatch(key) or len(key) > _LONGEST:
        wrong = f"{name!r}: lower-case words of a-z and 0-9, joined by - or _, are a provider's name"
        raise typer.BadParameter(f"{wrong}; give one as NAME" if from_file else wrong)
    return key


def _ask() -> frozenset[Part]:
    """Ask the person at the terminal for each part."""
    echo("A tool and a setting are in it. What else should it have?", err=True)
    asked = ((part, typer.confirm(f"  {what}", default=part in USUAL, err=True)) for part, what in QUESTIONS.items())
    return frozenset(part for part, wanted in asked if wanted)


def _report_taken(key: str, owner: InstalledProvider) -> Problem:
    message = f"{owner.package} is installed and has the provider type {key!r} too: no configuration can name both"
    return Problem(code="type_taken", message=message, hint="take another name, or uninstall it")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Code:
    """A file's code as that of a package, the words of its templates, and the template of its test."""

    words: Mapping[str, str]
    source: str
    test: str
    dependencies: tuple[str, ...]
    warnings: tuple[Problem, ...]


def _code_of(from_file: str, key: str) -> _Code:
    """Load the file as `toolplug serve` does. Raises `ConfigError` for one that it could not serve."""
    if not names_file(from_file):
        raise typer.BadParameter(f"{from_file!r} is no Python file; give notes.py, or notes.py:Notes")
    try:
        found = provider_file(from_file, Path())
        loaded = load(found)
    except ProviderError as error:
        raise ConfigError([Problem(code="import_failed", message=str(error), hint=error.fix)]) from error
    plugin, module = loaded.plugin, file_module(found)
    # The name that the module has for it, which the entry point needs; `__name__` may be another one.
    names = [name for name, value in vars(module).items() if value is plugin and isinstance(value, type)]
    if plugin is not module and not names:
        message = f"{from_file} is no provider class"
        raise ConfigError([Problem(code="no_class", message=message, hint="name a FunctionProvider of the file")])
    source = found.code.decode("utf-8")
    dependencies, unknown = _imports(source)
    required = (
        []
        if loaded.config is None
        else [name for name, field in loaded.config.model_fields.items() if field.is_required()]
    )
    return _Code(
        words={
            "class_name": "".join(names[:1]),
            "entry_point": ":".join((f"toolplug_{key}.provider", *names[:1])),
            "file": file_of(from_file),
            "tool": loaded.tools[0] if loaded.tools else "TOOL",
            "tools": ", ".join(f'"{tool}"' for tool in loaded.tools),
            "required": f"  # its Config needs {', '.join(required)}" if required else "",
        },
        source=source,
        test="class_test" if names else "module_test",
        dependencies=dependencies,
        warnings=(*_unset(key, required), *(_unknown(from_file, each) for each in unknown)),
    )


def _unset(key: str, required: list[str]) -> list[Problem]:
    message = f"its Config needs {', '.join(required)}, and its tests fail without"
    hint = f"give them as SETTINGS in tests/test_{key}.py"
    return [Problem(code="settings_needed", message=message, hint=hint)] if required else []


def _unknown(from_file: str, module: str) -> Problem:
    return Problem(
        code="unknown_import",
        message=f"{from_file} imports {module!r}, which is of no installed package",
        hint="copy it into the package, or add its package to the dependencies in pyproject.toml",
    )


def _imports(source: str) -> tuple[tuple[str, ...], list[str]]:
    """The requirements for what the source imports, and the modules that no installed package has."""
    imported = sorted({name.partition(".")[0] for name in _list_imported(ast.parse(source))} - sys.stdlib_module_names)
    owners = packages_distributions()
    known = sorted({owners[name][0] for name in imported if name in owners} - {"toolplug"})
    return (
        tuple(f"{each}>={'.'.join(map(str, Version(version(each)).release[:2]))}" for each in known),
        [name for name in imported if name not in owners and name != "toolplug"],
    )


def _list_imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


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


def _class_name(key: str) -> str:
    return "".join(word.capitalize() for word in key.split("_"))


def _write(folder: Path, key: str, code: _Code | None, parts: frozenset[Part]) -> list[Path]:
    folder.mkdir()
    running = Version(version("toolplug"))  # the next minor of a 0.x version may be incompatible
    requirement = f"toolplug>={running.major}.{running.minor},<{running.major}.{running.minor + 1}"
    needed = _list_needed(parts) if code is None else code.dependencies
    words = {
        "name": key,
        "dashed": key.replace("_", "-"),
        "class_name": _class_name(key),
        "entry_point": f"toolplug_{key}.provider:{_class_name(key)}",
        "dependencies": ", ".join(f'"{each}"' for each in (requirement, *needed)),
        "imports": _names(_IMPORTS, parts),
        "test_imports": _names(_TEST_IMPORTS, parts),
        **({} if code is None else code.words),
    }
    texts = {folder / "src" / f"toolplug_{key}" / "py.typed": ""}
    source = files("toolplug.cli").joinpath(TEMPLATES)
    others = {} if code is None else {"README.md": "file_README.md", "test_provider.py": f"{code.test}.py"}
    for template, target in FILES.items():
        text = _with(parts, source.joinpath(f"{others.get(template, template)}.template").read_text("utf-8"))
        texts[folder / Template(target).substitute(words)] = Template(text).substitute(words)
    if code is not None:
        texts[folder / "src" / f"toolplug_{key}" / "provider.py"] = code.source
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8", newline="")  # the code of a file has its own line ends
    return list(texts)
