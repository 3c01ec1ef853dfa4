"""The extension `io.modelcontextprotocol/skills`: entries of skills for the clients that may read them."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from tests.mcp.task_client import McpCaller

from toolplug import Principal
from toolplug_skills import extension, manifest

FIVE = Path(__file__).parent / "skills"
NAME = "io.modelcontextprotocol/skills"
NOTHING: Mapping[str, object] = MappingProxyType({})

OpenHost = Callable[..., AbstractAsyncContextManager[Any]]

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("I39-skills-list")]


def write_skill(folder: Path, name: str, **files: bytes) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(f"---\nname: {name}\ndescription: The skill {name}.\n---\nDo it.\n")
    for file, data in files.items():
        (place / file).write_bytes(data)
    return place


def entry(folder: Path, **more: object) -> dict[str, object]:
    return {"type": "skills", "enabled": True, "folders": [str(folder)], **more}


async def every(caller: McpCaller) -> list[Any]:
    """The entries of all pages."""
    found: list[Any] = []
    page = await caller.send("skills/list")
    while True:
        found += page["skills"]
        if "nextCursor" not in page:
            return found
        page = await caller.send("skills/list", cursor=page["nextCursor"])


async def bytes_of(caller: McpCaller, uri: str) -> bytes:
    (content,) = (await caller.send("resources/read", {"Mcp-Name": uri}, uri=uri))["contents"]
    return content["text"].encode() if "text" in content else base64.b64decode(content["blob"])


async def test_skills_are_listed_with_their_whole_head_and_each_file_as_it_is_read(in_process_host: OpenHost) -> None:
    async with in_process_host({"providers": {"skills": entry(FIVE)}}) as served:
        caller = McpCaller(served.callers["anonymous"].client)
        said = await caller.send("server/discover")
        assert said["capabilities"]["extensions"] == {NAME: {}}
        assert "resources" in said["capabilities"]
        page = await caller.send("skills/list")
        assert {key: page[key] for key in page if key != "skills"} == {
            "resultType": "complete",
            "ttlMs": extension.TTL_MS,
            "cacheScope": "private",
        }
        assert [skill["uri"] for skill in page["skills"]] == [
            f"skill://skills/{name}/SKILL.md" for name in sorted(os.listdir(FIVE))
        ]
        for skill in page["skills"]:
            place = FIVE / skill["frontmatter"]["name"]
            _, head, _ = (place / "SKILL.md").read_text().split("---\n", 2)
            # One has a colon in its description, which only toolplug reads; the others are as any parser has them.
            if place.name != "incident-report":
                assert skill["frontmatter"] == yaml.safe_load(head)
            files = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
            base = f"skill://skills/{place.name}/"
            assert sorted(each["uri"].removeprefix(base) for each in skill["resources"]) == files
            for each in skill["resources"]:
                data = await bytes_of(caller, each["uri"])
                assert (each["size"], each["digest"]) == (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}")
        one = await caller.send("skills/get", uri=page["skills"][0]["uri"])
        assert (one["skill"], one["resultType"], one["cacheScope"]) == (page["skills"][0], "complete", "private")


@pytest.mark.parametrize(
    "uri", ["skill://skills/none/SKILL.md", "skill://skills/one", "file:///etc/passwd", "", 7, None]
)
async def test_what_is_no_skill_is_refused(in_process_host: OpenHost, tmp_path: Path, uri: object) -> None:
    write_skill(tmp_path / "skills", "one")
    async with in_process_host({"providers": {"skills": entry(tmp_path / "skills")}}) as served:
        caller = McpCaller(served.callers["anonymous"].client)
        assert (await caller.send("skills/get", uri=uri))["code"] == -32602
        assert (await caller.send("skills/list", cursor=uri or "another"))["code"] == -32602


async def test_several_entries_are_one_list_and_each_agent_has_the_skills_of_its_toolsets(
    in_process_host: OpenHost, tmp_path: Path
) -> None:
    for team, names in {"sales": ("offers", "same"), "support": ("refunds", "same")}.items():
        for name in names:
            write_skill(tmp_path / team, name, **{"note.txt": team.encode()})
    teams = ("sales", "support")
    config = {
        "providers": {team: entry(tmp_path / team) for team in teams},
        "toolsets": {team: {"prefix": team, "from": f"provider:{team}"} for team in teams},
        "agents": {"clerk": {"toolsets": ["support"]}, "idle": {"toolsets": []}},
    }
    scopes = frozenset({"tools:read", "tools:call"})
    principals = [
        Principal(name, scopes=scopes, agents=agents)
        for name, agents in (("boss", None), ("clerk", frozenset({"clerk"})), ("idle", frozenset({"idle"})))
    ]
    async with in_process_host(config, principals=principals) as served:
        boss, clerk, idle = (McpCaller(served.callers[each.subject].client) for each in principals)
        uris = {
            team: [f"skill://{team}/{name}/SKILL.md" for name in names]
            for team, names in (("sales", ("offers", "same")), ("support", ("refunds", "same")))
        }
        assert [each["uri"] for each in await every(boss)] == [*uris["sales"], *uris["support"]]
        assert [each["uri"] for each in await every(clerk)] == uris["support"]
        assert await every(idle) == []
        assert await bytes_of(boss, "skill://sales/same/note.txt") == b"sales"
        assert await bytes_of(clerk, "skill://support/same/note.txt") == b"support"
        for uri in uris["sales"]:
            assert (await clerk.send("skills/get", uri=uri))["code"] == -32602
        assert (await clerk.send("skills/list", cursor=uris["sales"][0]))["code"] == -32602


async def test_a_long_list_has_pages_of_whole_skills(
    in_process_host: OpenHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extension, "PAGE_BYTES", 2000)
    for number in range(60):
        write_skill(tmp_path / "skills", f"skill-{number:02}", **({"large": b"a" * 1950} if number == 3 else {}))
    async with in_process_host({"providers": {"skills": entry(tmp_path / "skills")}}) as served:
        caller = McpCaller(served.callers["anonymous"].client)
        first = await caller.send("skills/list")
        # Three small ones, and the one that passes the bound.
        assert [len(each["resources"]) for each in first["skills"]] == [1, 1, 1, 2]
        monkeypatch.setattr(extension, "PAGE_BYTES", 1 << 20)
        second = await caller.send("skills/list", cursor=first["nextCursor"])
        assert len(second["skills"]) == extension.PAGE_SKILLS
        assert [each["frontmatter"]["name"] for each in await every(caller)] == [f"skill-{n:02}" for n in range(60)]


async def test_a_changed_skill_is_told_as_it_is_now_and_one_that_broke_is_left_out(
    in_process_host: OpenHost, tmp_path: Path
) -> None:
    one, two = (write_skill(tmp_path / "skills", name) for name in ("one", "two"))
    async with in_process_host({"providers": {"skills": entry(tmp_path / "skills")}}) as served:
        caller = McpCaller(served.callers["anonymous"].client)
        assert len(await every(caller)) == 2
        (one / "new file.md").write_text("more")
        (one / "SKILL.md").write_text("---\nname: one\ndescription: d\nmetadata: {version: '2', tags: [a, 1]}\n---\n")
        (two / "SKILL.md").write_text("no head")
        (skill,) = await every(caller)
        assert skill["frontmatter"] == {
            "name": "one",
            "description": "d",
            "metadata": {"version": "2", "tags": ["a", 1]},
        }
        (new,) = [each for each in skill["resources"] if each["uri"].endswith("/new%20file.md")]
        assert await bytes_of(caller, new["uri"]) == b"more"


async def test_a_skill_that_hosts_need_not_take_is_left_out_and_doctor_says_so(
    in_process_host: OpenHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(tmp_path / "skills", "good", more=b"a" * 100)
    write_skill(tmp_path / "skills", "large", more=b"a" * 1000)
    write_skill(tmp_path / "skills", "many", a=b"", b=b"", c=b"")
    monkeypatch.setattr(manifest, "MAX_FILES", 3)
    monkeypatch.setattr(manifest, "MAX_SKILL_BYTES", 1000)
    async with in_process_host({"providers": {"skills": entry(tmp_path / "skills")}}) as served:
        caller = McpCaller(served.callers["anonymous"].client)
        assert [each["frontmatter"]["name"] for each in await every(caller)] == ["good"]
        assert (await caller.send("skills/get", uri="skill://skills/many/SKILL.md"))["code"] == -32602
        (generation,) = served.host.registry.running().values()
        assert [problem.message for problem in await generation.diagnosis()] == [
            f"{tmp_path}/skills/large: its files have over 0 MiB, so that skills/list leaves it out; split it",
            f"{tmp_path}/skills/many: it has over 3 files, so that skills/list leaves it out; split it",
        ]


async def test_links_hidden_files_and_names_that_are_no_text_are_no_files_of_a_skill(
    in_process_host: OpenHost, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("the secret")
    place = write_skill(tmp_path / "skills", "one", **{".env": b"the secret"})
    (place / "link").symlink_to(tmp_path / "secret")
    os.mknod(os.fsencode(place) + b"/\xff.md")
    async with in_process_host({"providers": {"skills": entry(tmp_path / "skills")}}) as served:
        caller = McpCaller(served.callers["anonymous"].client)
        (skill,) = await every(caller)
        assert [each["uri"] for each in skill["resources"]] == ["skill://skills/one/SKILL.md"]
        for name in (".env", "link", "%FF.md", "../../secret"):
            refused = await caller.send("resources/read", uri=f"skill://skills/one/{name}")
            assert "code" in refused, name


@pytest.mark.requirement("I39-skills-tools")
async def test_doctor_says_which_callers_lack_the_tools_that_a_skill_names(
    in_process_host: OpenHost, tmp_path: Path
) -> None:
    (tmp_path / "tools.py").write_text(
        'from toolplug import tool\n\n@tool\ndef send_mail(to: str) -> str:\n    "Send."\n    return to\n'
    )
    place = write_skill(tmp_path / "skills", "offers")
    (place / "SKILL.md").write_text(
        "---\nname: offers\ndescription: d\nallowed-tools: send_mail Bash(git:*) load_skill Read\n---\nDo it.\n"
    )
    own = {"type": "./tools.py", "enabled": True, "tools": {"send_mail": {"tenants": ["t1"]}}}
    config = {
        "providers": {"own": own, "skills": entry(tmp_path / "skills")},
        "toolsets": {"skills": {"prefix": "skills", "from": "provider:skills"}},
        "agents": {"clerk": {"toolsets": ["skills"]}},
    }
    scopes = frozenset({"tools:read", "tools:call"})
    principals = [
        Principal("ann", "t1", scopes),
        Principal("bob", "t2", scopes),
        Principal("eve", "t1", frozenset({"tools:read"})),
        Principal("jim", "t1", scopes, frozenset({"clerk"})),
    ]
    async with in_process_host(config, principals=principals) as served:
        generation = served.host.registry.running()["skills"]
        others = "eve of t1, jim of t1 as clerk; `toolplug explain` says why"
        assert [problem.message for problem in await generation.diagnosis()] == [
            f"the skill 'offers' names the tool 'send_mail', which these callers lack: bob of t2, {others}",
            f"the skill 'offers' names the tool 'load_skill', which these callers lack: {others}",
            "not tools of this host: Bash, Read",
        ]
