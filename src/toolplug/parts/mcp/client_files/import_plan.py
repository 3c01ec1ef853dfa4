"""The plan of an import: the entries to add to a configuration, and its output.

They are inserted into the text of the configuration, and nothing else in it changes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from toolplug.catalog.text import pluralize
from toolplug.cli.output import echo
from toolplug.config.document import Document, decode_source, parse_document, read_document
from toolplug.config.masking import find_secrets, named_arguments
from toolplug.config.yaml_tree import MappingNode, Mark, ScalarValue, Value, resolve_scalar
from toolplug.errors import ConfigError, Problem
from toolplug.parts.mcp.client_files.reading import ClientServer, read_client_file
from toolplug.parts.mcp.settings import SECTION

MAX_ID = 64

_EDITOR_VARIABLES = (
    *("cwd", "userHome", "execPath", "pathSeparator", "/", "defaultBuildTask"),
    *("workspaceFolder", "workspaceFolderBasename", "workspaceRoot", "relativeFile", "relativeFileDirname"),
    *("extensionPath", "workspacePath"),  # of extensions of Gemini CLI
    *("file", "fileBasename", "fileBasenameNoExtension", "fileDirname", "fileExtname", "fileWorkspaceFolder"),
    *("lineNumber", "selectedText"),
)
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?\}")
_FOREIGN = re.compile(
    r"\$\{(?:(?P<kind>env|input|config|command):(?P<name>[^}]+)|(?P<editor>EDITORS)(?::[^}]*)?)\}"
    r"|\$\{\{ ?(?P<stored>(?:secrets|inputs)\.[\w.-]+) ?\}\}".replace("EDITORS", "|".join(_EDITOR_VARIABLES))
)
"""A variable in the syntax of editors: of the environment, asked for, kept, or a fact such as the open folder."""


def legal_ids(names: Iterable[str]) -> Mapping[str, str]:
    """Return a unique id for each name: the name itself if it is a valid id."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        unique = wanted = _legal_id(name)
        number = 1
        while unique in taken:
            number += 1
            unique = f"{wanted[: MAX_ID - len(str(number)) - 1]}-{number}"
        taken.add(unique)
        found[name] = unique
    return found


def _legal_id(name: str) -> str:
    plain = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_")
    if not plain:
        return "server"
    return (plain if plain[0].isalpha() else f"server-{plain}")[:MAX_ID]


def server_entry(server: ClientServer, name: str, variables: Variables) -> Mapping[str, Value]:
    """Return the entry for the configuration under this id, with references to `variables` in place of secrets."""
    entry: dict[str, Value] = {}
    if server.command is not None:
        entry["command"] = variables.referring(name, "command", "", server.command)
        entry["args"] = [*_arguments(server.args, name, variables)]
        entry["env"] = _refer_named(server.env, name, "env", variables)
        entry["cwd"] = server.cwd
    elif server.url is not None:
        entry["url"] = variables.referring(name, "url", "", server.url)
        entry["headers"] = _refer_named(server.headers, name, "header", variables)
    if server.disabled:
        entry["enabled"] = False
    return {key: value for key, value in entry.items() if value is not None and value not in ([], {})}


def remarks(server: ClientServer) -> Iterator[str]:
    """Yield notes for the user on what the entry leaves out."""
    if server.ignored_keys:
        yield f"left out: {', '.join(server.ignored_keys)}"
    if server.type == "sse":
        yield "its transport is the former one, sse; Streamable HTTP is spoken here, which is often at another path"


def _refer_named(values: Mapping[str, str | None], server: str, kind: str, variables: Variables) -> dict[str, Value]:
    return {key: variables.referring(server, kind, key, value) for key, value in values.items() if value is not None}


def _arguments(args: Sequence[str], server: str, variables: Variables) -> Iterator[str]:
    for argument in named_arguments(args):
        value = variables.referring(server, "argument", argument.name, argument.value)
        yield f"{variables.referring(server, 'argument', '', argument.before)}{value}"


class Variables:
    """The environment variables that imported servers need. Their values are never written or printed."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self.uses: dict[str, str] = {}

    def referring(self, server: str, kind: str, name: str, value: str) -> str:
        """Return the value for the configuration, with a reference to a variable in place of a secret.

        `kind`: the place of the value (`env`, `header` …). `name`: its name there.
        """
        text = self._own_references(server, kind, name, value)
        references: dict[str, str] = {}
        for secret in find_secrets(text, name):
            known = name if secret.name in ("", name) else f"{name}_{secret.name}" if kind == "env" else secret.name
            variable = self._add(server, kind, known or kind, secret.text)
            self.uses.setdefault(variable, " ".join(f"{kind} {secret.name or name} of {server}".split()))
            references[secret.text] = f"${{{variable}}}"
        if not references:
            return _escape(text)
        either = "|".join(re.escape(secret) for secret in sorted(references, key=len, reverse=True))
        return "".join(references.get(part) or _escape(part) for part in re.split(f"({either})", text))

    def _own_references(self, server: str, kind: str, name: str, value: str) -> str:
        """Return the value with `${NAME}` in place of editors' variables; all but the environment's are to be set."""

        def own(found: re.Match[str]) -> str:
            if found["editor"] in ("/", "pathSeparator"):
                return os.sep
            variable = _variable(found["name"] or found["editor"] or (found["stored"] or "").partition(".")[2])
            if found["kind"] != "env":
                self._values.setdefault(variable, found[0])
                use = f"{found[0]} of the editor, in the" if found["editor"] else ""
                self.uses.setdefault(variable, " ".join(f"{use} {kind} {name} of {server}".split()))
            return f"${{{variable}}}"

        return _FOREIGN.sub(own, value)

    def _add(self, server: str, kind: str, name: str, secret: str) -> str:
        """Add a variable and return its name: `name` for `env`; else, or if that is taken, the server and `name`."""
        wanted = _variable(name) if kind == "env" else _variable(f"{server}_{name}")
        number = 1
        while self._values.setdefault(wanted, secret) != secret:
            wanted = _variable(f"{server}_{name}" if number == 1 else f"{server}_{name}_{number}")
            number += 1
        return wanted


def _variable(text: str) -> str:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text) if text in _EDITOR_VARIABLES else text
    name = re.sub(r"[^A-Za-z0-9]+", "_", spaced).strip("_").upper()
    return name if name and not name[0].isdigit() else f"_{name}"


def _escape(text: str) -> str:
    """Escape each `${` that does not begin a reference as `$${`, which the configuration reads literally."""
    return re.sub(rf"({_REFERENCE.pattern})|\$\{{", lambda found: found[1] or "$${", text)


MAX_PREFIX = 32


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The entries to add to the configuration `config`, by id.

    `comments`: a line to write below an entry, by id. `kept`: ids already in the configuration, which is not changed.
    `notes`: for the user, by id. `own`: what is built into the program of the file. `variables`: the environment
    variables to set, with their uses. `problems`: of the invalid servers.
    """

    config: Path
    entries: Mapping[str, Mapping[str, Value]]
    comments: Mapping[str, str]
    kept: Sequence[str]
    notes: Mapping[str, Sequence[str]]
    own: Sequence[str]
    variables: Mapping[str, str]
    problems: Sequence[Problem]

    @property
    def text(self) -> str:
        """The entries as YAML; empty without entries."""
        return section_text(self.entries, self.comments) if self.entries else ""

    def write(self) -> None:
        """Add the entries to the configuration. Raises `ConfigError` and `OSError`, and then changes nothing."""
        if not self.entries:
            return
        file = self.config.resolve()
        data = file.read_bytes()
        changed = with_servers(data, parse_document(data, file=str(self.config)), self.entries, self.comments)
        new = file.with_name(f".{file.name}.new")
        try:
            new.write_bytes(changed)
            new.chmod(file.stat().st_mode & 0o777)
            new.replace(file)
        finally:
            new.unlink(missing_ok=True)


def plan_import(file: Path, config: Path) -> ImportPlan:
    """Read the file to import and the configuration. Raises `OSError`, and `ConfigError` if either is invalid."""
    reading = read_client_file(file)
    document = read_document(config).value
    section = document.get(SECTION)
    present = set(section) if isinstance(section, dict) else set[str]()
    variables = Variables()
    entries: dict[str, Mapping[str, Value]] = {}
    comments: dict[str, str] = {}
    notes: dict[str, Sequence[str]] = {}
    taken = _prefixes(document)
    ids = legal_ids(reading.servers)
    for name, server in reading.servers.items():
        key = ids[name]
        if key not in present:
            reason = _no_prefix(key, taken, has_auth="auth" in document)
            entry = server_entry(server, key, variables)
            entries[key] = {**entry, "prefix": key} if reason is None else entry
            if reason is not None:
                comments[key] = f"prefix: {key[:MAX_PREFIX]}  # {reason}"
            taken.add(key)
            notes[key] = [*([f"called {name!r} in the file"] if name != key else ()), *remarks(server)]
    kept = [key for key in ids.values() if key in present]
    return ImportPlan(config, entries, comments, kept, notes, reading.own, variables.uses, reading.problems)


def _prefixes(document: Mapping[str, Value]) -> set[str]:
    """Return the prefixes that the configuration uses."""
    sections = [section for name in (SECTION, "toolsets") if isinstance(section := document.get(name), dict)]
    entries = [entry for section in sections for entry in section.values() if isinstance(entry, dict)]
    return {prefix for entry in entries if isinstance(prefix := entry.get("prefix"), str)}


def _no_prefix(key: str, taken: set[str], *, has_auth: bool) -> str | None:
    """Return why the server gets no prefix, which would list its tools for callers without agent; None if it does."""
    if has_auth:
        return "would give its tools to every key that names no agents"
    if key in taken:
        return "is used already"
    return None if len(key) <= MAX_PREFIX else f"is the id cut to {MAX_PREFIX} characters"


def print_import(plan: ImportPlan, *, written: bool) -> None:
    """Print the plan: what was done on stdout, or else the lines to add on stdout and the rest on stderr."""
    if not written and plan.entries:
        echo(plan.text)
    for line in _lines(plan, "added" if written else "to add"):
        echo(line, err=not written)
    if plan.entries and written:
        echo("toolplug discover lists their tools")


def import_fields(plan: ImportPlan, *, written: bool) -> dict[str, object]:
    """Convert the plan to JSON values."""
    return {
        "file": str(plan.config),
        "written": written,
        "servers": plan.entries,
        "comments": plan.comments,
        "kept": plan.kept,
        "notes": {name: notes for name, notes in plan.notes.items() if notes},
        "builtIn": [*plan.own],
        "variables": plan.variables,
        "yaml": plan.text,
    }


def _lines(plan: ImportPlan, done: str) -> Iterator[str]:
    names = f": {', '.join(plan.entries)}" if plan.entries else ""
    yield f"{plan.config}: {pluralize(len(plan.entries), 'server')} {done}{names}"
    yield from (f"{name}: exists already and is unchanged" for name in plan.kept)
    yield from (f"{name}: no prefix, which {line.partition('  # ')[2]}" for name, line in plan.comments.items())
    yield from (f"{name}: {note}" for name, notes in plan.notes.items() for note in notes)
    if plan.own:
        yield f"left out, as the file's own program alone has them: {', '.join(plan.own)}"
    for name, use in plan.variables.items():
        yield f"set the environment variable {name}: its value is the {use}"


_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./+-]*")
_FORMER_WORDS = frozenset({"y", "n", "yes", "no", "on", "off"})
"""Booleans of YAML 1.1."""
_UNPRINTABLE = re.compile(r"[\x7f-\x84\x86-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_LINES = re.compile(r"[^\r\n\x85\u2028\u2029]*(?:\r\n|[\r\n\x85\u2028\u2029]|\Z)")
_STEP = 2

Entries = Mapping[str, Mapping[str, Value]]
Comments = Mapping[str, str]
"""A line below an entry, by the key of the entry; left out in flow style."""


def with_servers(data: bytes, document: Document, entries: Entries, comments: Comments) -> bytes:
    """Add new entries to `mcp_servers` in the text of the document; return the text, otherwise unchanged to the byte.

    Raises `ConfigError` for a section that cannot be extended so, such as an alias.
    """
    text = decode_source(data, file=document.file)
    mark = "\ufeff" if data.startswith("\ufeff".encode()) else ""
    lines = [line for line in _LINES.findall(text) if line]
    added: dict[str, Value] = {name: dict(entry) for name, entry in entries.items()}
    changed = (mark + _insert(lines, document, added, block_text(entries, comments))).encode()
    wanted = document.value
    section = wanted.get(SECTION)
    wanted[SECTION] = {**section, **added} if isinstance(section, dict) else added
    with suppress(ConfigError):
        if parse_document(changed, file=document.file).value == wanted:
            return changed
    message = "nothing can be added here without changing what is here"
    hint = "--dry-run prints the lines to add by hand"
    raise ConfigError([document.problem((SECTION,), code="cannot_add", message=message, hint=hint, at_key=True)])


def section_text(entries: Entries, comments: Comments) -> str:
    """Return the section with only these entries."""
    return "\n".join([f"{SECTION}:", *_indent(block_text(entries, comments), _STEP)])


def _insert(lines: list[str], document: Document, added: dict[str, Value], block: Sequence[str]) -> str:
    """Insert the entries, given as values for flow style and as lines for block style."""
    root = document.root
    present = root.entries.get(SECTION)
    if present is None:
        if _is_flow(lines, root.mark):
            return _into_flow(lines, root, {SECTION: added})
        section = [f"{SECTION}:", *_indent(block, _STEP)]
        blank = [""] if lines and lines[-1].strip() else []
        return _after(lines, len(lines), [*blank, *_indent(section, root.mark.column - 1)])
    node = present.node
    if isinstance(node, MappingNode) and _is_flow(lines, node.mark):
        return _into_flow(lines, node, added)
    indent = present.key_mark.column - 1 + _STEP
    if isinstance(node, MappingNode):
        indent = next((entry.key_mark.column - 1 for entry in node.entries.values()), indent)
    return _after(lines, _end(lines, document, present.key_mark.line, indent), _indent(block, indent))


def _end(lines: Sequence[str], document: Document, start: int, indent: int) -> int:
    """Return the number of the section's last line; comments indented like its entries are part of it."""
    later = [entry.key_mark.line for entry in document.root.entries.values() if entry.key_mark.line > start]
    end = min(later, default=len(lines) + 1) - 1
    while end > start:
        line = lines[end - 1]
        bare = line.lstrip(" ")
        if bare.strip() and not (bare.startswith("#") and len(line) - len(bare) < indent):
            break
        end -= 1
    return end


def _after(lines: Sequence[str], count: int, new: Sequence[str]) -> str:
    """Return the text with new lines after the first `count`, with the same line ends."""
    ending = "\r\n" if any(line.endswith("\r\n") for line in lines) else "\n"
    before = "".join(lines[:count])
    if before and not before.endswith(("\n", "\r")):
        before += ending
    return before + "".join(f"{line}{ending}" for line in new) + "".join(lines[count:])


def _indent(lines: Sequence[str], indent: int) -> list[str]:
    return [" " * indent + line for line in lines]


def _is_flow(lines: Sequence[str], mark: Mark) -> bool:
    return mark.line <= len(lines) and lines[mark.line - 1][mark.column - 1 : mark.column] == "{"


def _into_flow(lines: list[str], node: MappingNode, entries: dict[str, Value]) -> str:
    """Return the text with the entries after the opening brace of the mapping."""
    at, column = node.mark.line - 1, node.mark.column
    inner = flow_text(entries)[1:-1] + (", " if node.entries else "")
    return "".join([*lines[:at], lines[at][:column], inner, lines[at][column:], *lines[at + 1 :]])


def block_text(entries: Entries, comments: Comments) -> list[str]:
    """Return the lines of the entries in block style, without line ends. Lists are in one line."""
    lines: list[str] = []
    for name, entry in entries.items():
        lines.append(f"{scalar_text(name)}:")
        for key, value in entry.items():
            if isinstance(value, dict):
                lines.append(f"  {scalar_text(key)}:")
                lines += [f"    {scalar_text(part)}: {flow_text(item)}" for part, item in value.items()]
            else:
                lines.append(f"  {scalar_text(key)}: {flow_text(value)}")
        if name in comments:
            lines.append(f"  # {comments[name]}")
    return lines


def flow_text(value: Value | Mapping[str, Value]) -> str:
    """Return the value in flow style."""
    if isinstance(value, list):
        return f"[{', '.join(flow_text(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{scalar_text(key)}: {flow_text(item)}' for key, item in value.items())}}}"
    return scalar_text(value)


def scalar_text(value: ScalarValue) -> str:
    """Return the scalar, in double quotes unless every version of YAML reads the plain text as the same string.

    `yaml.safe_dump` uses single quotes, and no quotes for strings that only YAML 1.2 reads as numbers.
    """
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and resolve_scalar(value) == value and value.lower() not in _FORMER_WORDS:
        return value
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
