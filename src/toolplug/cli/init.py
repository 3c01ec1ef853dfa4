"""`toolplug init`: a first configuration."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

import typer

from toolplug.cli.logs import log_warnings
from toolplug.cli.options import DEFAULT_FILE, ConfigOption, JsonOption
from toolplug.cli.output import print_answer
from toolplug.cli.plugins import read_known_plugins
from toolplug.errors import ConfigError, Problem
from toolplug.host.file.configuration import CONSOLE
from toolplug.host.file.settings import DEFAULT_STORE, ProviderSettings
from toolplug.packages.entry_points import find_installed

app: typer.Typer = typer.Typer()

CODE_FILE = "my_tools.py"


@app.command()
def init(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Write a commented providers.yaml that runs as it is, and my_tools.py next to it. Overwrites nothing.

    The configuration enables the tool of my_tools.py, and has an entry for every installed provider package, disabled:
    enable what should run. The console has none, as `serve` shows it without one, nor has a package of a store, which
    the URL of `store` enables. Where there is a my_tools.py, the entry for it is left out.

    Example: toolplug init && toolplug serve
    """
    log_warnings(config)
    file = config or Path(DEFAULT_FILE)
    code = file.with_name(CODE_FILE)
    has_code = code.exists()
    # The URL of `store` enables a store, which has no entry.
    skipped = {
        CONSOLE,
        *(name for each in read_known_plugins() if each.capabilities == ["store"] for name in each.types),
    }
    types = [name for name, packages in find_installed().types.items() if len(packages) == 1 and name not in skipped]
    entries = [f"  {name}:\n    enabled: false\n" for name in types]
    if not has_code:
        entries.insert(0, f"  {code.stem}:\n    type: ./{code.name}\n    enabled: true\n")
    text = Template(_read("providers.yaml.template")).substitute(
        entries="".join(entries) or "  {}\n",
        reserved=f"{', '.join(ProviderSettings.model_fields)}, settings",
        # It runs as it is, also where the extra `sqlite` is not installed.
        store="memory://" if find_spec("aiosqlite") is None else DEFAULT_STORE,
    )
    _write(file, text)
    if not has_code:
        _write(code, _read(f"{CODE_FILE}.template"))
    created = str(file) if has_code else f"{file} and {code}"
    advice = "enable a provider in it, toolplug providers, toolplug serve" if has_code else "toolplug serve"
    print_answer(
        as_json,
        {"file": str(file), "code": None if has_code else str(code)},
        f"Created {created}. Next: {advice}",
    )


def _read(template: str) -> str:
    return files("toolplug.cli").joinpath(template).read_text("utf-8")


def _write(file: Path, text: str) -> None:
    """Write a new file. Raises `ConfigError` if it exists."""
    try:
        with file.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
    except FileExistsError:
        message, hint = "exists already and is unchanged", "give another name with -c"
        raise ConfigError([Problem(code="exists", message=message, file=str(file), hint=hint)]) from None
