"""What `toolplug new-provider --from` makes a package of, and the code that it gets.

A package of an OpenAPI document, an MCP server or a plugin of llm is a subclass of the provider that serves such things
already, with what it was made of as its default: there is one place for each way of serving. It is started once before
anything is written, so that what would fail there fails here, and the tools of the package's test are known.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from shlex import split
from string import Template
from tempfile import TemporaryDirectory
from types import FunctionType, ModuleType
from typing import Any, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import typer
from packaging.utils import canonicalize_name
from packaging.version import Version

from toolplug.errors import ConfigError, InvalidDefinition, Problem, ProviderError
from toolplug.foreign.named_objects import import_object
from toolplug.packages.entry_points import find_installed
from toolplug.packages.loading import file_module, file_of, load, names_file, provider_file
from toolplug.providers.authoring import check_declared, tool
from toolplug.providers.entry import ProviderState
from toolplug.providers.plugins.shapes import function_provider
from toolplug.providers.registry import FunctionRegistry

TEMPLATES = "provider_package"
FETCH_S = 10.0
MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
"""Of a document at a URL, as of one that the provider `openapi` reads."""
DOCUMENTS = (".json", ".yaml", ".yml")
_SHORT = re.compile(r"^(llm-tools-|llm-)")
_LINE = 100
"""Characters of a list in one line; a longer one gets a line for each item."""


class SourceKind(StrEnum):
    """What a package may be made of, as the word before the colon names it."""

    FILE = "file"
    OPENAPI = "openapi"
    MCP = "mcp"
    MODULE = "module"
    LLM = "llm"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSource:
    """A source, and the name that a package of it has unless another is given; empty if it says none."""

    kind: SourceKind
    target: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageCode:
    """The code of a package: its `provider.py`, further files beside it, the words of its templates, and its test."""

    words: Mapping[str, str]
    source: str
    test: str
    dependencies: tuple[str, ...]
    data: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    warnings: tuple[Problem, ...] = ()


def find_source(text: str) -> PackageSource:
    """Return what `--from` names: by the word before its colon, else by what it looks like. Raises `BadParameter`."""
    word, colon, rest = text.partition(":")
    if colon and word in SourceKind.__members__.values():
        kind, target = SourceKind(word), rest.strip()
    else:
        kind, target = _guess(text), text.strip()
    if not target:
        raise typer.BadParameter(f"{text!r} names nothing; write it after {word}:")
    match kind:
        case SourceKind.MCP:
            name = ""
        case SourceKind.LLM:
            name = _SHORT.sub("", canonicalize_name(target))
        case SourceKind.MODULE:
            name = target.rpartition(".")[2]
        case _:
            name = Path(urlsplit(target).path if "://" in target else file_of(target)).stem
    return PackageSource(kind=kind, target=target, name=name)


def _guess(text: str) -> SourceKind:
    if names_file(text) and (" " not in text or Path(file_of(text)).is_file()):
        return SourceKind.FILE
    if "://" in text:
        return SourceKind.OPENAPI if urlsplit(text).path.endswith(DOCUMENTS) else SourceKind.MCP
    if text.endswith(DOCUMENTS):
        return SourceKind.OPENAPI
    if " " in text.strip():
        return SourceKind.MCP
    if canonicalize_name(text).startswith("llm-"):
        return SourceKind.LLM
    if all(part.isidentifier() for part in text.split(".")) and not Path(text).exists():
        return SourceKind.MODULE
    raise typer.BadParameter(
        f"{text!r} is no Python file, OpenAPI document (.json, .yaml), URL, command, module or plugin of llm; "
        f"say which it is: {', '.join(f'{kind}:{text}' for kind in SourceKind)}"
    )


async def read_code(source: PackageSource, key: str, settings: Mapping[str, object]) -> PackageCode:
    """Read the source and return the code of its package.

    key: the provider's key, of which the names in the code are made
    settings: those with which it is started here and in its test

    Raises `ConfigError` for a source of which no package can be made.
    """
    if settings and source.kind is SourceKind.MODULE:
        raise typer.BadParameter("--set is for settings, and the functions of a module have none")
    match source.kind:
        case SourceKind.FILE:
            return _code_of_file(source.target, key, settings)
        case SourceKind.MODULE:
            return _code_of_module(source.target, key)
        case SourceKind.OPENAPI:
            return await _code_of_document(source.target, key, settings)
        case SourceKind.MCP:
            return await _code_of_server(source.target, key, settings)
        case SourceKind.LLM:
            return await _code_of_llm(source.target, key, settings)


def class_name_of(key: str) -> str:
    name = "".join(word.capitalize() for word in key.split("_"))
    return f"{name}Provider" if iskeyword(name) else name


def _refuse(code: str, message: str, hint: str = "") -> ConfigError:
    return ConfigError([Problem(code=code, message=message, hint=hint)])


def _code_of_file(name: str, key: str, settings: Mapping[str, object]) -> PackageCode:
    """Return the code of a file that `toolplug serve` can serve, else of the functions of one that has no tool."""
    if not names_file(name):
        raise typer.BadParameter(f"{name!r} is no Python file; give notes.py, or notes.py:Notes")
    try:
        found = provider_file(name, Path())
        loaded = load(found)
    except ProviderError as error:
        if error.state is ProviderState.INCOMPATIBLE and (functions := _find_functions(import_object(name, Path()))[0]):
            return _code_of_functions(Path(file_of(name)), key, functions)
        raise _refuse("import_failed", str(error), error.fix) from error
    plugin, module = loaded.plugin, file_module(found)
    # The name that the module has for it, which the entry point needs; `__name__` may be another one.
    names = [name for name, value in vars(module).items() if value is plugin and isinstance(value, type)]
    if plugin is not module and not names:
        raise _refuse("no_class", f"{name} is no provider class", "name a FunctionProvider of the file")
    source = found.code.decode("utf-8")
    dependencies, unknown = _imports(source)
    fields = {} if loaded.config is None else loaded.config.model_fields
    required = [name for name, each in fields.items() if each.is_required() and name not in settings]
    return PackageCode(
        words={
            **_words(key, settings, loaded.tools, f"as it was in `{file_of(name)}`"),
            "class_name": "".join(names[:1]),
            "entry_point": ":".join((f"toolplug_{key}.provider", *names[:1])),
            "required": f"  # its Config needs {', '.join(required)}" if required else "",
        },
        source=source,
        test="class_test" if names else "module_test",
        dependencies=dependencies,
        warnings=(*_unset(key, required), *(_unknown(file_of(name), each) for each in unknown)),
    )


def _code_of_functions(path: Path, key: str, functions: Sequence[str]) -> PackageCode:
    """Return the code of a package that has a file without tools, and makes its functions tools."""
    text = path.read_bytes()
    dependencies, unknown = _imports(text.decode("utf-8"))
    return PackageCode(
        words=_words(key, {}, functions, f"and calls the functions of `functions.py`, which was `{path}`"),
        source=_module_text(key, "functions", functions, after=f"\nfrom toolplug_{key} import functions\n"),
        test="class_test",
        dependencies=dependencies,
        data={"functions.py": text},
        warnings=tuple(_unknown(str(path), each) for each in unknown),
    )


def _code_of_module(name: str, key: str) -> PackageCode:
    try:
        module = import_object(name, Path())
    except InvalidDefinition as error:
        raise _refuse("import_failed", str(error)) from error
    functions, left_out = _find_functions(module)
    if not functions:
        why = f": {'; '.join(left_out)}" if left_out else ""
        hint = "name a module with functions of its own that have names and parameters as tools do"
        raise _refuse("no_functions", f"the module {name} has no function that can be a tool{why}", hint)
    dependencies, unknown = _imports(f"import {name}")
    # As isort has it: a line between the standard library and other packages.
    gap = "\n" if name.partition(".")[0] in sys.stdlib_module_names else ""
    return PackageCode(
        words=_words(key, {}, functions, f"and calls the functions of `{name}`"),
        source=_module_text(key, name, functions, before=f"import {name}\n{gap}"),
        test="class_test",
        dependencies=dependencies,
        warnings=(
            *(_unknown("the package", each) for each in unknown),
            *(Problem(code="left_out", message=f"left out {each}") for each in left_out),
        ),
    )


def _find_functions(module: object) -> tuple[list[str], list[str]]:
    """Return the public functions of a module that can be tools, and why others cannot."""
    if not isinstance(module, ModuleType):
        return [], []
    exported: Sequence[str] | None = getattr(module, "__all__", None)
    functions, left_out = dict[str, str](), list[str]()
    for attribute, value in vars(module).items():
        own = attribute in exported if exported is not None else not attribute.startswith("_")
        if not own or not inspect.isroutine(value):
            continue
        if exported is None and value.__module__ != module.__name__:
            continue
        if attribute == tool.__name__:
            left_out.append(f"{attribute}: the code of the package has this name")
            continue
        try:
            [definition] = check_declared(function_provider(cast("FunctionType", tool(value))))
        except InvalidDefinition as error:
            left_out.append(f"{attribute}: {error}")
            continue
        # Two names of one function are one tool.
        functions.setdefault(definition.name, attribute)
    return [*functions.values()], left_out


def _module_text(key: str, module: str, functions: Sequence[str], *, before: str = "", after: str = "") -> str:
    lines = [f"    {name} = staticmethod(tool({module}.{name}))" for name in functions]
    words = {"module": module, "before": before, "after": after, "functions": "\n".join(lines)}
    return _template("source_module.py", key, words)


async def _code_of_document(place: str, key: str, settings: Mapping[str, object]) -> PackageCode:
    """Return the code of an OpenAPI document, which is a file of the package: its tools stay those that were tested."""
    _require("toolplug-openapi", "openapi")
    data = _fetch(place) if "://" in place else _read(Path(place))
    reading, known = import_module("toolplug_openapi.reading"), import_module("toolplug_openapi.settings")
    refused: type[Exception] = import_module("toolplug_openapi.document").DocumentRefused
    try:
        found: Any = reading.read_document(data, known.Settings(document=place))
    except refused as error:
        raise _refuse("no_document", str(error), "give a document of OpenAPI 3.0 or 3.1, in JSON or YAML") from error
    url = str(settings.get("base_url", found.server))
    words = {
        "document": f"openapi{'.json' if data.lstrip().startswith(b'{') else '.yaml'}",
        "url_import": "" if url else ", WebUrl",
        "url_type": "str | None" if url else "WebUrl",
        "url_default": f"default={json.dumps(url)}, " if url else "",
    }
    # A document in a file may say only that its server is the one that it came from.
    needed = {} if url else {"base_url": "http://127.0.0.1"}
    message = "its document names no server, and its entry has to: base_url is a required setting"
    warnings = (Problem(code="settings_needed", message=message),) if needed else ()
    host = urlsplit(url).hostname
    origin = f"over the document `{words['document']}`, which was `{place}`"
    return await _subclass(
        "source_openapi.py",
        key,
        {**needed, **settings},
        {**words, "network": json.dumps([host] if host else [])},
        needs=[_require("toolplug-openapi", "openapi")],
        data={words["document"]: data},
        origin=origin,
        warnings=warnings,
    )


async def _code_of_server(place: str, key: str, settings: Mapping[str, object]) -> PackageCode:
    needs = [_require("toolplug-fastmcp", "fastmcp")]
    if "://" in place:
        words = {"target": json.dumps(place), "network": json.dumps([urlsplit(place).hostname])}
        return await _subclass(
            "source_mcp_url.py", key, settings, words, needs=needs, origin=f"over the MCP server at <{place}>"
        )
    try:
        command = split(place)
    except ValueError as error:
        raise _refuse("no_command", f"{place!r} is no command: {error}", "write it as for a shell") from error
    words = {"target": _list_texts(command), "subprocess": "true"}
    return await _subclass(
        "source_mcp_command.py", key, settings, words, needs=needs, origin=f"over the MCP server `{place}`"
    )


async def _code_of_llm(package: str, key: str, settings: Mapping[str, object]) -> PackageCode:
    adapter = _require("toolplug-llm", "llm")
    try:
        needs = [adapter, *_pin([package])]
    except PackageNotFoundError as error:
        raise _refuse("not_installed", f"no package {package!r} is installed", f"pip install {package}") from error
    words = {"package": package}
    return await _subclass("source_llm.py", key, settings, words, needs=needs, origin=f"over `{package}`")


async def _subclass(
    template: str,
    key: str,
    settings: Mapping[str, object],
    words: Mapping[str, str],
    *,
    needs: Sequence[str],
    origin: str,
    data: Mapping[str, bytes] = {},
    warnings: tuple[Problem, ...] = (),
) -> PackageCode:
    """Return the code of a subclass of another package's provider, which is started once. Raises `ConfigError`."""
    text = _template(template, key, words)
    tools = await _start_once(key, text, data, settings)
    return PackageCode(
        words={**_words(key, settings, tools, origin), **words},
        source=text,
        test="class_test",
        dependencies=tuple(needs),
        data=data,
        warnings=warnings,
    )


async def _start_once(key: str, text: str, data: Mapping[str, bytes], settings: Mapping[str, object]) -> list[str]:
    """Start the provider of this code in a folder of its own, and return the names of its tools."""
    with TemporaryDirectory(prefix="toolplug-") as folder:
        for name, content in {"provider.py": text.encode(), **data}.items():
            (Path(folder) / name).write_bytes(content)
        found = provider_file(f"provider.py:{class_name_of(key)}", Path(folder))
        try:
            loaded = load(found)
            config = None if loaded.config is None else loaded.config.model_validate(dict(settings))
            async with FunctionRegistry({key: loaded.build(key, config)}) as registry:
                return [*registry.catalog]
        except ProviderError as error:
            raise _refuse("import_failed", str(error), error.fix) from error
        except ConfigError as error:
            # The provider's own words, without whose they are: there is one provider here.
            text = error.problems[0].message
            said = text.partition("raised InvalidDefinition: ")[2] or text
            raise _refuse("start_failed", said, "give settings that it needs to start with --set") from error
        except ValueError as error:  # of pydantic
            said = " ".join(str(error).split())
            raise _refuse("settings_needed", f"its settings are wrong: {said}", "give them with --set") from error
        finally:
            # Its folder goes: the same code elsewhere must not find this module.
            sys.modules.pop(found.entry_point.module, None)


def _require(package: str, type_name: str) -> str:
    """Return the requirement of the plugin that serves such things. Raises `ConfigError` if it is not installed."""
    if type_name not in find_installed().types:
        raise _refuse("not_installed", f"{package} is not installed, which serves this", f"pip install {package}")
    return require_minor(package)


def require_minor(package: str) -> str:
    """Return the requirement of the installed minor version: the next one of a 0.x version may be incompatible."""
    running = Version(version(package))
    return f"{package}>={running.major}.{running.minor},<{running.major}.{running.minor + 1}"


def _pin(packages: Sequence[str]) -> list[str]:
    return [f"{each}>={'.'.join(map(str, Version(version(each)).release[:2]))}" for each in packages]


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise _refuse("unreadable", f"{path} cannot be read: {error.strerror}") from error


def _fetch(url: str) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise _refuse("unreadable", f"{url} is no http or https URL")
    try:
        with urlopen(url, timeout=FETCH_S) as answer:
            return answer.read(MAX_DOCUMENT_BYTES + 1)
    except HTTPError as error:
        raise _refuse("unreadable", f"{url} cannot be fetched: HTTP {error.code}") from error
    except (URLError, OSError, ValueError) as error:
        said = getattr(error, "reason", error)
        raise _refuse("unreadable", f"{url} cannot be fetched: {said}", "start the server, or give a file") from error


def _template(name: str, key: str, words: Mapping[str, str]) -> str:
    text = files("toolplug.cli").joinpath(TEMPLATES).joinpath(f"{name}.template").read_text("utf-8")
    return Template(text).substitute({"name": key, "class_name": class_name_of(key), **words})


def _words(key: str, settings: Mapping[str, object], tools: Sequence[str], origin: str) -> dict[str, str]:
    name = class_name_of(key)
    return {
        "class_name": name,
        "entry_point": f"toolplug_{key}.provider:{name}",
        "origin": f"The code is in `src/toolplug_{key}/provider.py`, {origin}.",
        "tool": tools[0] if tools else "TOOL",
        "tools": _list_texts(tools),
        "settings": _python(dict(settings)),
        "settings_yaml": "".join(f"    {each}: {json.dumps(value)}\n" for each, value in settings.items()),
        "required": "",
    }


def _python(value: object) -> str:
    """Return a value of JSON as Python writes it, with the quotation marks that formatters prefer."""
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return f"{{{', '.join(f'{json.dumps(name)}: {_python(inner)}' for name, inner in pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_python, cast('list[object]', value)))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _list_texts(texts: Sequence[str]) -> str:
    """Return the items of a list as Python has them, without the brackets."""
    items = [json.dumps(text) for text in texts]
    line = ", ".join(items)
    return line if len(line) <= _LINE else "".join(f"\n    {item}," for item in items) + "\n"


def _unset(key: str, required: list[str]) -> list[Problem]:
    message = f"its Config needs {', '.join(required)}, and its tests fail without"
    hint = f"give them as SETTINGS in tests/test_{key}.py"
    return [Problem(code="settings_needed", message=message, hint=hint)] if required else []


def _unknown(place: str, module: str) -> Problem:
    return Problem(
        code="unknown_import",
        message=f"{place} imports {module!r}, which is of no installed package",
        hint="copy it into the package, or add its package to the dependencies in pyproject.toml",
    )


def _imports(source: str) -> tuple[tuple[str, ...], list[str]]:
    """The requirements for what the source imports, and the modules that no installed package has."""
    imported = sorted({name.partition(".")[0] for name in _list_imported(ast.parse(source))} - sys.stdlib_module_names)
    owners = packages_distributions()
    known = sorted({owners[name][0] for name in imported if name in owners} - {"toolplug"})
    return tuple(_pin(known)), [name for name in imported if name not in owners and name != "toolplug"]


def _list_imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
