"""`toolplug plugins`: the plugins that are installed, and those that are known."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence, Set
from importlib.resources import files
from typing import Annotated, Any, ClassVar

import typer
from packaging.utils import canonicalize_name
from pydantic import BaseModel, ConfigDict, Field

from toolplug.apart.permissions import find_permissions, parse_permissions
from toolplug.cli.options import ConfigOption, JsonOption, found_config
from toolplug.cli.output import echo, print_json, print_problems, print_table, problem_fields
from toolplug.config.document import read_document
from toolplug.config.run_settings import RunSettings, find_engines
from toolplug.errors import InvalidDefinition
from toolplug.host.file.configuration import ConfigFiles
from toolplug.packages.entry_points import find_installed

app: typer.Typer = typer.Typer()

_ONE_LINE = Field(min_length=1, max_length=80, pattern=r"^[ -~]+$")


class ListedPermissions(BaseModel):
    """What a listed plugin reaches, in words for the person who enables it."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    network: list[str] = []
    files: list[str] = []
    environment: list[str] = []
    hooks: list[str] = []
    subprocess: bool = False

    def describe(self) -> list[str]:
        """Return a line for each kind of permission that there is."""
        kinds = ("network", "files", "environment", "hooks")
        lines = [f"{kind}: {', '.join(words)}" for kind in kinds if (words := getattr(self, kind))]
        return [*lines, *(["subprocess"] if self.subprocess else [])]


class ListedPlugin(BaseModel):
    """An entry of `known_plugins.toml`, which says what its fields are."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    package: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    types: list[str] = Field(min_length=1)
    summary: str = _ONE_LINE
    capabilities: list[str] = Field(min_length=1)
    permissions: ListedPermissions
    page: str = _ONE_LINE


def read_known_plugins() -> list[ListedPlugin]:
    """Return the plugins of the list, in its order."""
    text = files("toolplug.cli").joinpath("known_plugins.toml").read_text("utf-8")
    return [ListedPlugin.model_validate(entry) for entry in tomllib.loads(text)["plugin"]]


InstalledOption = Annotated[bool, typer.Option("--installed", help="Only those that are installed.")]


@app.command()
def plugins(config: ConfigOption = None, installed: InstalledOption = False, as_json: JsonOption = False) -> int:
    """List the plugins that are installed, and those that are known, with what each brings and reaches.

    Imports no plugin, and asks no index: what is known is a list in this version of toolplug. For a package that is not
    in the list, what it reaches is what its toolplug_permissions.toml says, and what it brings is not known before an
    entry enables it; toolplug providers shows it then. Says which of them entries of the configuration enable, if there
    is one.

    Example: toolplug plugins --installed
    """
    found = find_installed()
    versions: dict[str, str] = {}
    types: dict[str, list[str]] = {}
    for providers in found.types.values():
        for each in providers:
            name = canonicalize_name(each.distribution)
            versions[name] = each.version
            types.setdefault(name, []).append(each.type)
    for name, point in find_engines().items():
        if point.dist is not None:
            package = canonicalize_name(point.dist.name)
            versions[package] = point.dist.version
            types.setdefault(package, []).append(name)
    known = {plugin.package: plugin for plugin in read_known_plugins()}
    names = [name for name in sorted({*versions, *known}) if name in versions or not installed]
    enabled = _enabled_types(found_config(config))
    rows = [_fields(name, versions.get(name), types.get(name), known.get(name), enabled) for name in names]
    if as_json:
        print_json({**({"problems": problem_fields(found.problems)} if found.problems else {}), "plugins": rows})
    else:
        _print(rows)
        print_problems(found.problems, as_json=False)
    return 1 if found.problems else 0


def _enabled_types(config: ConfigFiles | None) -> Set[str]:
    """Return the types, and the engines, of the enabled entries of a file. Raises `ConfigError` if it is no YAML."""
    entries = None if config is None else read_document(config.file).value.get("providers")
    if not isinstance(entries, dict):
        return frozenset()
    enabled = {key: each for key, each in entries.items() if isinstance(each, dict) and each.get("enabled") is True}
    engines = {str(name) for each in enabled.values() if isinstance(run := each.get("run"), dict) for name in run}
    return engines - RunSettings.model_fields.keys() | {str(each.get("type", key)) for key, each in enabled.items()}


def _fields(
    name: str,
    version: str | None,
    types: Sequence[str] | None,
    listed: ListedPlugin | None,
    enabled: Set[str],
) -> dict[str, Any]:
    types = types or (listed.types if listed is not None else [])
    asked, problem = (None, "") if listed is not None else _read_asked(name)
    return {
        "package": name,
        "types": types,
        "version": version,
        "enabled": not enabled.isdisjoint(types),
        "listed": listed is not None,
        "summary": None if listed is None else listed.summary,
        "capabilities": None if listed is None else listed.capabilities,
        "permissions": asked if listed is None else listed.permissions.model_dump(),
        "page": None if listed is None else listed.page,
        **({"problem": problem} if problem else {}),
    }


def _read_asked(package: str) -> tuple[dict[str, Any] | None, str]:
    """Return what a package says that it needs, None if it says nothing, and what is wrong with that."""
    try:
        path = find_permissions(package)
        return (None if path is None else parse_permissions(path).model_dump(mode="json")), ""
    except InvalidDefinition as error:
        return None, str(error)


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        echo("no plugin is installed; toolplug plugins lists those that are known")
        return
    print_table(("package", "type", "version", "enabled", "capabilities", "permissions"), [_cells(row) for row in rows])
    if any(row["version"] is None for row in rows):
        echo("\nA plugin without a version is not installed: pip install PACKAGE")


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    if row["permissions"] is None:
        asked = row.get("problem", "not listed")
        return row["package"], ", ".join(row["types"]), row["version"], _yes(row), "not listed", asked
    permissions = ListedPermissions.model_validate(row["permissions"]).describe()
    return (
        row["package"],
        ", ".join(row["types"]),
        row["version"] or "-",
        _yes(row),
        ", ".join(row["capabilities"] or ["not listed"]),
        "; ".join(permissions) or "none",
    )


def _yes(row: Mapping[str, Any]) -> str:
    return "yes" if row["enabled"] else "no"
