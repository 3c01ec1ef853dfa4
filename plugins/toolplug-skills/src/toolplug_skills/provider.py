"""The provider `skills`: tools that find, load and read the skills of some folders, and their resources."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, Field

from toolplug import (
    CallableTools,
    CallContext,
    FunctionProvider,
    McpExtension,
    ProviderContext,
    Resource,
    ToolDefinition,
    ToolError,
    tool,
)
from toolplug.errors import InvalidDefinition
from toolplug.search import make_indexes, search
from toolplug_skills.extension import INVALID_PARAMS, SkillsExtension
from toolplug_skills.folders import FileRefused, folder_below, is_supported, list_files, opened_folder, read_below
from toolplug_skills.lacking import find_lacking
from toolplug_skills.locked import hash_skills
from toolplug_skills.manifest import SkillEntry, TooLarge, describe_skill, uri_of
from toolplug_skills.skill_file import HEAD_FILE, NotASkill, SkillFile, parse_skill

MAX_SKILLS = 10_000
"""Of all folders of an entry."""
MAX_SHOWN = 50
"""Skills with a line in the description of `load_skill`; all others are found by `search_skills`."""
MAX_LINE = 90
"""Characters of such a line: 50 of them and the rest of the tools are below 1,500 tokens of four bytes."""
MAX_FOUND = 10
MAX_LISTED = 200
"""Files that `load_skill` lists; others are read by those who know their path."""
MAX_FILE_BYTES = 256 * 1024
"""Of a file that is read: what a model can use of it at once is less."""


class Skill(NamedTuple):
    """A skill as it was when it was found. `root` is the folder of the configuration that it is in."""

    root: Path
    folder: str
    name: str
    description: str
    tools: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """One line for a list of skills."""
        text = f"{self.name}: {self.description}"
        return text if len(text) <= MAX_LINE else f"{text[: MAX_LINE - 1].rstrip()}…"


class Skills(FunctionProvider):
    """The skills of some folders: a folder each with a `SKILL.md`, and files that it may name."""

    class Config(BaseModel):
        """The settings of one entry under `providers:`."""

        folders: list[str] = Field(
            min_length=1, max_length=100, description="folders of skills, or of one skill; below that of the file"
        )

    config: Config
    _site: ProviderContext
    _skills: Mapping[str, Skill] = {}
    _problems: Sequence[str] = ()
    _extensions: Sequence[McpExtension] = ()

    async def start(self, site: ProviderContext) -> None:
        """Read the heads of all skills; one that does not parse is left out with an error in the log."""
        if not is_supported():
            raise InvalidDefinition("skills need a system that opens files below a folder: Linux or macOS")
        self._site = site
        self._skills, self._problems = await site.in_thread(_find_skills, self.config.folders, site.config_dir)
        for text in self._problems:
            self.log.error("%s", text)
        for text in self._notes():
            self.log.warning("%s", text)
        self._extensions = (SkillsExtension([_EntryShelf(site, self._skills)]),)
        described = [ToolDefinition(name=skill.name, description=skill.description) for skill in self._skills.values()]
        self._indexes = await site.in_thread(make_indexes, described)

    @classmethod
    def locked_files(cls, config: Config, folder: Path) -> Mapping[str, str]:
        """Return the digest of each file of all skills, for the lock."""
        return hash_skills(config.folders, folder)

    def mcp_extensions(self) -> Sequence[McpExtension]:
        """Return the extension by which clients list skills."""
        return self._extensions

    async def diagnose(self) -> Sequence[str]:
        """Return what is wrong with skills, a text each with its place, and which of their tools callers lack."""
        too_large = await self._site.in_thread(_find_too_large, self._skills.values())
        callers: Mapping[str, Mapping[str, bool]] = {}
        with suppress(LookupError):  # in a registry without a host
            callers = self._site.service(CallableTools).by_caller()
        return [*self._problems, *self._notes(), *too_large, *find_lacking(self._skills.values(), callers)]

    def _notes(self) -> Sequence[str]:
        return [note for skill in self._skills.values() for note in skill.notes]

    def tools(self) -> Sequence[ToolDefinition]:
        """Return the tools; the description of `load_skill` has the first skills, a line each."""
        return [self._with_skills(each) if each.name == "load_skill" else each for each in super().tools()]

    def _with_skills(self, definition: ToolDefinition) -> ToolDefinition:
        shown = [skill.line for skill in [*self._skills.values()][:MAX_SHOWN]]
        others = len(self._skills) - len(shown)
        more = [f"{others} more are found by search_skills."] if others > 0 else []
        return replace(definition, description="\n".join([definition.description, *shown, *more]))

    @tool(read_only=True)
    async def load_skill(self, name: Annotated[str, Field(max_length=200, description="of a skill")]) -> str:
        """Load the instructions of a skill before you do what it is for."""
        skill = self._skill(name)
        loaded, files = await self._site.in_thread(_load, skill)
        others = [path for path in files if path != HEAD_FILE]
        if not others:
            return loaded.text
        return f"{loaded.text.rstrip()}\n\nFiles, for read_skill_file: {', '.join(others)}\n"

    @tool(read_only=True)
    async def search_skills(
        self, query: Annotated[str, Field(max_length=1000, description="what is to be done, in a few words")]
    ) -> list[dict[str, str]]:
        """Find skills by what they are for; load_skill loads one."""
        hits = await self._site.in_thread(search, self._indexes.both, query, MAX_FOUND)
        return [{"name": each.name, "description": each.description} for each in hits.best]

    @tool(read_only=True)
    async def read_skill_file(
        self,
        name: Annotated[str, Field(max_length=200, description="of a skill")],
        path: Annotated[str, Field(max_length=1000, description="as load_skill lists it, such as references/a.md")],
    ) -> str:
        """Read a file of a skill as text; scripts too are text, and are not run."""
        skill = self._skill(name)
        data = await self._site.in_thread(_read, skill, path)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ToolError(f"{path!r} of {name!r} is no text; it has {len(data)} bytes") from None

    def resources(self) -> Sequence[Resource]:
        """Return the `SKILL.md` of the first skills as resources, and a template for every file of every skill."""
        base = _base_of(self._site.key)
        heads = [
            Resource(
                uri=uri_of(f"{base}/{skill.name}", HEAD_FILE),
                name=skill.name,
                description=skill.description,
                mime_type="text/markdown",
                read=partial(self._read_head, skill.name),
            )
            for skill in [*self._skills.values()][:MAX_SHOWN]
        ]
        # One template for all: 10,000 of them would be matched with each URI that is read.
        every = Resource(
            uri=_template_of(self._site.key),
            name="skill-file",
            description="A file of a skill.",
            read=self._read_resource,
        )
        return [*heads, every]

    async def _read_head(self, name: str, variables: Mapping[str, object], context: CallContext) -> str | bytes:
        return await self._read_resource({"name": name, "path": HEAD_FILE}, context)

    async def _read_resource(self, variables: Mapping[str, object], context: CallContext) -> str | bytes:
        try:
            data = await self._site.in_thread(_read, self._skill(str(variables["name"])), str(variables["path"]))
        except ToolError as error:
            raise ToolError(str(error), metadata={"rpc_code": INVALID_PARAMS}) from error
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data

    def _skill(self, name: str) -> Skill:
        skill = self._skills.get(name)
        if skill is None:
            raise ToolError(f"there is no skill {name[:80]!r}; search_skills finds the names of those that there are")
        return skill


class _EntryShelf:
    """The skills of one entry for clients of MCP. Implements `toolplug_skills.extension.Shelf`."""

    def __init__(self, site: ProviderContext, skills: Mapping[str, Skill]) -> None:
        self._site = site
        self._skills = skills
        self.key: str = site.key
        self.template: str = _template_of(site.key)
        self.uris: Mapping[str, str] = {uri_of(self._folder_of(name), HEAD_FILE): name for name in skills}

    async def describe(self, name: str) -> SkillEntry | None:
        """Return the entry of a skill; None if it is gone, does not parse any longer, or is too large."""
        return await self._site.in_thread(_describe, self._skills[name], self._folder_of(name))

    def _folder_of(self, name: str) -> str:
        return f"{_base_of(self.key)}/{name}"


def _base_of(key: str) -> str:
    """Return the URI below which the skills of an entry are: two entries may have skills of one name."""
    return f"skill://{quote(key, safe='')}"


def _template_of(key: str) -> str:
    return _base_of(key) + "/{name}/{+path}"


def _find_skills(folders: Sequence[str], base: Path) -> tuple[dict[str, Skill], list[str]]:
    """Return the skills by name, in the order of folders and names, and what is wrong with the others."""
    found: dict[str, Skill] = {}
    problems: list[str] = []
    for folder in folders:
        root, before = base / folder, len(found) + len(problems)
        try:
            with opened_folder(root) as opened:
                if HEAD_FILE in os.listdir(opened) and _add(
                    found, problems, opened, Skill(root, "", root.resolve().name, "", ()), folder
                ):
                    continue  # what is below it are its files
                for name in sorted(each for each in os.listdir(opened) if not each.startswith(".")):
                    _add_below(found, problems, opened, root, name, f"{folder}/{name}")
        except OSError as error:
            raise InvalidDefinition(
                f"folders: {folder!r} cannot be read: {error.strerror}; a relative path begins at {base}"
            ) from None
        if len(found) + len(problems) == before:
            problems.append(f"{folder}: no folder in it has a {HEAD_FILE}; name the folder that the skills are in")
        if len(found) > MAX_SKILLS:
            raise InvalidDefinition(f"folders: there are more than {MAX_SKILLS} skills; name fewer folders")
    return found, problems


def _add_below(found: dict[str, Skill], problems: list[str], opened: int, root: Path, name: str, shown: str) -> None:
    """Add the skill in a folder of a folder of skills; what is no folder, or has no `SKILL.md`, is none."""
    if (root / name).is_symlink():
        problems.append(f"{shown}: it is a link, which is not followed; name the folder that it leads to under folders")
        return
    try:
        with folder_below(opened, name) as below:
            if HEAD_FILE in os.listdir(below):
                _add(found, problems, below, Skill(root, name, name, "", ()), shown)
    except NotADirectoryError:
        return
    except OSError as error:
        problems.append(f"{shown}: it cannot be read: {error.strerror}; change its permissions")


def _add(found: dict[str, Skill], problems: list[str], folder: int, skill: Skill, shown: str) -> bool:
    """Add a skill, or what is wrong with it; return whether its `SKILL.md` is wholly one by the specification."""
    place = f"{shown}/{HEAD_FILE}"
    try:
        read = parse_skill(read_below(folder, HEAD_FILE, MAX_FILE_BYTES), skill.name, place)
    except FileRefused as error:
        problems.append(f"{place}: {error}")
        return False
    except NotASkill as error:
        problems.append(str(error))
        return False
    if read.name in found:
        other = found[read.name].root / found[read.name].folder
        problems.append(f"{place}: the skill {read.name!r} is in {other} too, which comes first; rename one")
    else:
        found[read.name] = skill._replace(
            name=read.name, description=read.description, tools=read.tools, notes=read.notes
        )
    return not read.notes


def _open(stack: ExitStack, skill: Skill) -> int:
    """Open the folder of a skill. Raises `ToolError` if it is gone."""
    try:
        root = stack.enter_context(opened_folder(skill.root))
        return stack.enter_context(folder_below(root, skill.folder)) if skill.folder else root
    except OSError:
        raise ToolError(f"the folder of the skill {skill.name!r} is gone") from None


def _load(skill: Skill) -> tuple[SkillFile, list[str]]:
    """Return the skill as it is now, and its files."""
    with ExitStack() as stack:
        folder = _open(stack, skill)
        try:
            data = read_below(folder, HEAD_FILE, MAX_FILE_BYTES)
            return parse_skill(data, skill.name, f"{skill.name}/{HEAD_FILE}"), list_files(folder, MAX_LISTED)
        except (FileRefused, NotASkill) as error:
            raise ToolError(str(error)) from None


def _describe(skill: Skill, base: str) -> SkillEntry | None:
    with ExitStack() as stack:
        try:
            return describe_skill(_open(stack, skill), skill.name, base)
        except (FileRefused, NotASkill, TooLarge, ToolError):
            return None


def _find_too_large(skills: Iterable[Skill]) -> list[str]:
    """Return a text for each skill that hosts of MCP need not take, and `skills/list` leaves out."""
    found: list[str] = []
    for skill in skills:
        with ExitStack() as stack, suppress(FileRefused, NotASkill, ToolError):
            try:
                describe_skill(_open(stack, skill), skill.name, "")
            except TooLarge as error:
                found.append(f"{skill.root / skill.folder}: {error}, so that skills/list leaves it out; split it")
    return found


def _read(skill: Skill, path: str) -> bytes:
    with ExitStack() as stack:
        try:
            return read_below(_open(stack, skill), path, MAX_FILE_BYTES)
        except FileRefused as error:
            raise ToolError(f"{skill.name}: {error}") from None
