"""Skills: what is listed, loaded, found and read, what does not parse, and paths that lead elsewhere."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest

from toolplug import CallContext, FunctionRegistry, ToolCall, open_host
from toolplug.errors import ConfigError
from toolplug.testing.provider_check import check_provider, running
from toolplug_skills.provider import Skills

PACKAGE = Path(__file__).parents[1]
FIVE = Path(__file__).parent / "skills"
"""Five skills as people publish them: with and without files, a colon in the description, a list of tools."""

pytestmark = pytest.mark.anyio


def write_skill(folder: Path, name: str, head: str | None = None, text: str = "Do it.\n") -> Path:
    place = folder / name
    place.mkdir(parents=True)
    head = f"name: {name}\ndescription: The skill {name}.\n" if head is None else head
    (place / "SKILL.md").write_text(f"---\n{head}---\n{text}")
    return place


async def output(registry: FunctionRegistry, tool: str, /, **arguments: object) -> str:
    return (await registry.execute(ToolCall("1", tool, arguments), CallContext())).output


@pytest.mark.requirement("I39-skills", "I2-9-all-use-it")
async def test_the_plugin_keeps_every_rule_of_a_provider() -> None:
    calls: Mapping[str, Mapping[str, object]] = {
        "load_skill": {"name": "release-notes"},
        "search_skills": {"query": "release notes"},
        "read_skill_file": {"name": "release-notes", "path": "SKILL.md"},
    }
    resources = {"skill://provider/{name}/{+path}": {"name": "release-notes", "path": "SKILL.md"}}
    settings = {"folders": [str(FIVE)]}
    await check_provider(Skills, settings=settings, calls=calls, resources=resources, readme=PACKAGE / "README.md")


@pytest.mark.requirement("I39-skills")
async def test_five_skills_load_unchanged_each_with_its_instructions_and_files(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(Skills, {"folders": [str(FIVE)]}) as registry:
        described = registry.catalog["load_skill"].definition.description
        names = [line.partition(":")[0] for line in described.splitlines() if ": " in line]
        assert names == ["csv-cleaning", "incident-report", "meeting-minutes", "release-notes", "sql-review"]
        loaded = await output(registry, "load_skill", name="csv-cleaning")
        assert loaded.startswith("# Cleaning CSV files")
        assert loaded.endswith("Files, for read_skill_file: references/encodings.md, scripts/check.py\n")
        script = await output(registry, "read_skill_file", name="csv-cleaning", path="scripts/check.py")
        linked = await output(registry, "read_skill_file", name="csv-cleaning", path="./scripts/check.py")
        assert linked == script
        assert script == (FIVE / "csv-cleaning/scripts/check.py").read_text()
        assert "Files" not in await output(registry, "load_skill", name="meeting-minutes")
        found = orjson.loads(await output(registry, "search_skills", query="what changed since the last release"))
        assert found[0]["name"] == "release-notes"
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.requirement("I39-skills")
async def test_a_folder_may_be_one_skill_and_is_read_again_when_it_is_loaded(tmp_path: Path) -> None:
    place = write_skill(tmp_path, "one")
    async with running(Skills, {"folders": [str(place)]}) as registry:
        assert await output(registry, "load_skill", name="one") == "Do it.\n"
        (place / "SKILL.md").write_text("---\nname: one\ndescription: d\n---\nDo it twice.\n")
        assert await output(registry, "load_skill", name="one") == "Do it twice.\n"


@pytest.mark.requirement("I39-skills-tokens")
async def test_a_thousand_skills_cost_a_request_less_than_1500_tokens(tmp_path: Path) -> None:
    for number in range(1000):
        name = f"a-skill-with-quite-a-long-name-{number}"
        write_skill(tmp_path, name, f"name: {name}\ndescription: {'About the topic. ' * 50}\n")
    async with running(Skills, {"folders": [str(tmp_path)]}) as registry:
        tools = [
            {"name": each.name, "description": each.description, "parameters": each.parameters.value}
            for each in (tool.definition for tool in registry.catalog.values())
        ]
        assert len(orjson.dumps(tools)) / 4 <= 1500
        assert "950 more are found by search_skills." in registry.catalog["load_skill"].definition.description
        found = orjson.loads(await output(registry, "search_skills", query="a-skill-with-quite-a-long-name-777"))
        assert found[0]["name"] == "a-skill-with-quite-a-long-name-777"


WRONG = {
    "no head": ("Do it.\n", "SKILL.md:1: it has no head"),
    "no end": ("---\nname: bad\n", "SKILL.md:1: it has no head"),
    "no name, in its folder neither": ("---\nname: 技能\ndescription: d\n---\n", "SKILL.md:2: a name has at most 64"),
    "no description": ("---\nname: bad\n---\n", "SKILL.md:1: no description"),
    "no YAML": ("---\nname: bad\ndescription: [d\n---\n", "SKILL.md:"),
    "twice the same key": ("---\nname: bad\nname: bad\ndescription: d\n---\n", "SKILL.md:3: "),
}


@pytest.mark.requirement("I39-skills-broken")
@pytest.mark.parametrize("case", WRONG)
async def test_a_skill_that_does_not_parse_is_one_line_with_its_place_and_the_others_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    write_skill(tmp_path, "good")
    text, said = WRONG[case]
    folder = "坏" if "folder" in case else "bad"
    place = write_skill(tmp_path, folder)
    (place / "SKILL.md").write_text(text)
    provider = Skills({"folders": [str(tmp_path)]})
    async with FunctionRegistry({"skills": provider}) as registry:
        assert await output(registry, "load_skill", name="good") == "Do it.\n"
        assert "there is no skill 'bad'" in await output(registry, "load_skill", name="bad")
        (problem,) = await provider.diagnose()
    assert problem.startswith(f"{tmp_path}/{folder}/{said}")
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [problem]


INEXACT = {
    "no name": ("description: d\n", "odd", "SKILL.md:1: no name; 'odd' is taken"),
    "another name than its folder": ("name: other\ndescription: d\n", "other", "SKILL.md:2: the skill 'other' is in"),
    "a name with capitals and a space": (
        "name: Odd One\ndescription: d\n",
        "odd-one",
        "SKILL.md:2: a name has at most",
    ),
    "a long name": (f"name: {'n' * 70}\ndescription: d\n", "n" * 64, "SKILL.md:2: a name has at most"),
    "a long description": (f"name: odd\ndescription: {'d' * 1025}\n", "odd", "SKILL.md:3: the description has 1025"),
}
"""Cases → the head, the name that it is served by, and the line about it."""


@pytest.mark.requirement("I39-skills-broken")
@pytest.mark.parametrize("case", INEXACT)
async def test_a_head_that_is_not_quite_by_the_specification_serves_and_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    head, name, said = INEXACT[case]
    write_skill(tmp_path, "odd", head)
    provider = Skills({"folders": [str(tmp_path)]})
    async with FunctionRegistry({"skills": provider}) as registry:
        assert await output(registry, "load_skill", name=name) == "Do it.\n"
        assert f"{name}: d" in registry.catalog["load_skill"].definition.description
        (note,) = await provider.diagnose()
    assert note.startswith(f"{tmp_path}/odd/{said}")
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [("WARNING", note)]


@pytest.mark.requirement("I39-skills-broken")
async def test_a_stray_file_hides_no_skill_below_it(tmp_path: Path) -> None:
    write_skill(tmp_path, "good")
    (tmp_path / "SKILL.md").write_text("---\nname: template\ndescription: d\n---\n")
    provider = Skills({"folders": [str(tmp_path)]})
    async with FunctionRegistry({"skills": provider}) as registry:
        assert await output(registry, "load_skill", name="good") == "Do it.\n"
        (note,) = await provider.diagnose()
    assert "SKILL.md:2: the skill 'template' is in the folder" in note


@pytest.mark.requirement("I39-skills-broken")
async def test_a_folder_without_skills_is_one_line(tmp_path: Path) -> None:
    write_skill(tmp_path / "below", "one")
    provider = Skills({"folders": [str(tmp_path)]})
    async with FunctionRegistry({"skills": provider}):
        (problem,) = await provider.diagnose()
    assert problem == f"{tmp_path}: no folder in it has a SKILL.md; name the folder that the skills are in"


@pytest.mark.requirement("I39-skills-broken")
async def test_a_value_with_a_colon_is_read_as_it_is_meant(tmp_path: Path) -> None:
    write_skill(tmp_path, "one", "name: one\ndescription: Use when: someone asks.\n")
    async with running(Skills, {"folders": [str(tmp_path)]}) as registry:
        assert "one: Use when: someone asks." in registry.catalog["load_skill"].definition.description


@pytest.mark.requirement("I39-skills-broken")
async def test_a_folder_that_is_not_there_stops_the_start_and_two_of_a_name_are_a_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="folders: 'gone' cannot be read: No such file or directory"):
        async with FunctionRegistry({"skills": Skills({"folders": ["gone"]})}):
            raise AssertionError("it must not start")
    write_skill(tmp_path / "a", "one")
    write_skill(tmp_path / "b", "one", text="Other.\n")
    provider = Skills({"folders": [str(tmp_path / "a"), str(tmp_path / "b")]})
    async with FunctionRegistry({"skills": provider}) as registry:
        assert await output(registry, "load_skill", name="one") == "Do it.\n"
        (problem,) = await provider.diagnose()
    assert f"the skill 'one' is in {tmp_path}/a/one too" in problem


@pytest.mark.process
@pytest.mark.requirement("I39-skills")
async def test_a_process_of_its_own_is_refused_in_words(tmp_path: Path) -> None:
    write_skill(tmp_path, "one")
    entry = {"enabled": True, "folders": [str(tmp_path)], "run": {"process": True}}
    with pytest.raises(ConfigError) as caught:
        async with open_host({"store": "memory://", "providers": {"skills": entry}}):
            raise AssertionError("it must not start")
    assert "mcp_extensions cannot be used from a process of its own (remove run from its entry" in str(caught.value)


@pytest.mark.requirement("I39-skills-paths")
@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "/etc/passwd",
        "",
        ".",
        "link",
        "linked/secret",
        "pipe",
        "a/../../secret",
        "./../secret",
        ".hidden",
        "a/.hidden",
        "a/__pycache__/x.pyc",
        "a",
        "a\0b",
        "x/" * 9 + "y",
    ],
)
async def test_no_path_leads_out_of_a_skill(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("the secret")
    place = write_skill(tmp_path / "skills", "one")
    (place / "link").symlink_to(tmp_path / "secret")
    (place / "linked").symlink_to(tmp_path)
    (place / "a").mkdir()
    (place / "a/__pycache__").mkdir()
    for hidden in (place / ".hidden", place / "a/.hidden", place / "a/__pycache__/x.pyc"):
        hidden.write_text("the secret")
    os.mkfifo(place / "pipe")
    async with running(Skills, {"folders": [str(tmp_path / "skills")]}) as registry:
        call = ToolCall("1", "read_skill_file", {"name": "one", "path": path})
        result = await registry.execute(call, CallContext())
        assert (result.status, "the secret" in result.output) == ("tool_error", False)
        assert "Files" not in await output(registry, "load_skill", name="one")


@pytest.mark.requirement("I39-skills-paths")
async def test_a_skill_that_is_a_link_is_a_line_and_one_that_becomes_a_link_is_not_read(tmp_path: Path) -> None:
    elsewhere = write_skill(tmp_path / "elsewhere", "two", text="the secret")
    place = write_skill(tmp_path / "skills", "one")
    (tmp_path / "skills/two").symlink_to(elsewhere)
    provider = Skills({"folders": [str(tmp_path / "skills")]})
    async with FunctionRegistry({"skills": provider}) as registry:
        (problem,) = await provider.diagnose()
        assert "two: it is a link, which is not followed" in problem
        (place / "SKILL.md").unlink()
        place.rmdir()
        place.symlink_to(elsewhere)
        result = await registry.execute(ToolCall("1", "load_skill", {"name": "one"}), CallContext())
        assert (result.status, "the secret" in result.output) == ("tool_error", False)


@pytest.mark.requirement("I39-skills")
async def test_files_that_are_large_or_no_text_are_refused_in_words_and_resources_have_their_bytes(
    tmp_path: Path,
) -> None:
    place = write_skill(tmp_path, "one")
    (place / "large").write_bytes(b"a" * (256 * 1024 + 1))
    (place / "picture.png").write_bytes(b"\x89PNG\xff")
    provider = Skills({"folders": [str(tmp_path)]})
    async with FunctionRegistry({"skills": provider}) as registry:
        assert await output(registry, "read_skill_file", name="one", path="large") == "one: 'large' is over 256 KiB"
        said = await output(registry, "read_skill_file", name="one", path="picture.png")
        assert said == "'picture.png' of 'one' is no text; it has 5 bytes"
        head, every = provider.resources()
        assert head.uri == "skill://skills/one/SKILL.md"
        assert await head.read({}, CallContext()) == (place / "SKILL.md").read_text()  # type: ignore[misc]
        given = {"name": "one", "path": "picture.png"}
        assert await every.read(given, CallContext()) == b"\x89PNG\xff"  # type: ignore[misc]
