"""What applications lend: registered as a whole, changed in parts, negotiated before anything is kept."""

from __future__ import annotations

import json

import pytest
from tests.http.conftest import ALICE
from tests.http.event_talk import talking
from tests.http.session_plugin import SCHEMA, Json, new_plugin, refusal, sessions_host, tool

pytestmark = pytest.mark.anyio

STORAGE = {"type": "storage", "level": "advanced", "resources": ["rows", {"max": 3}]}
ENVIRONMENT = {"version": "3.1", "features": ["graphs"], "limitations": [], "contextInfo": {"document": None}}


@pytest.mark.requirement(
    "C-6-register", "C-6-tool-shape", "DYN-AC-1", "DYN-register-endpoint", "DYN-environment-shape", "DYN-US-register"
)
async def test_registering_answers_what_was_taken_and_what_the_session_is_held_to() -> None:
    whole = tool("draw", description="Draw.", outputSchema={"type": "object"}, annotations={"readOnlyHint": True})
    async with sessions_host(sessions={"ttl": "10m", "grace": "1500ms"}) as (_, _, client):
        plugin = await new_plugin(client)
        answer = await plugin.register(
            tool("add"), {**whole, "requires": ["storage"]}, capabilities=[STORAGE], environment=ENVIRONMENT
        )
        assert (answer.status_code, answer.json()) == (
            201,
            {
                "success": True,
                "registeredTools": ["add", "draw"],
                "failedTools": [],
                "sessionConfiguration": {
                    "pluginType": "table",
                    "capabilities": [STORAGE],
                    "environment": ENVIRONMENT,
                    "limits": {"maxTools": 256, "maxUpdatesPerMinute": 10, "maxWaitingCalls": 100},
                    "ttlSeconds": 600,
                    "graceSeconds": 1.5,
                    "heartbeatSeconds": 15,
                },
                "revision": 1,
            },
        )
        shown = (await plugin.metadata())["tools"][1]
        assert shown == {**whole, "requires": ["storage"], "available": True}


@pytest.mark.requirement("C-6-register-replaces", "C-6-atomic-revision", "DYN-event-update", "DYN-AC-3")
async def test_registering_again_replaces_the_whole_set_with_one_event_for_the_difference() -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("kept"), tool("gone"), tool("other"))
        async with talking(app, f"{plugin.place}/stream", ALICE) as reader:
            await reader.until("connected")
            changed = tool("other", description="New.")
            answer = await plugin.register(tool("kept"), changed, tool("new"))
            told = await reader.next()
            again = await plugin.register(tool("kept"), changed, tool("new"))
            await plugin.update(removed=["new"], reason="told")
            after = await reader.next()
        assert (answer.json()["revision"], again.json()["revision"]) == (2, 2)
        assert told.event == "tool-availability-update"
        timestamp = told.data.pop("timestamp")
        assert told.data == {
            "sessionCode": plugin.code,
            "updates": {"added": [tool("new")], "removed": ["gone"], "modified": [changed]},
            "revision": 2,
            "reason": "registered",
        }
        assert timestamp < after.data["timestamp"] or timestamp == after.data["timestamp"]
        assert (after.data["revision"], after.data["reason"]) == (3, "told")


@pytest.mark.requirement(
    "C-6-register", "C-6-register-partial", "DYN-AC-8", "C-6-capability-level", "C-6-no-shadow", "DYN-OQ-1"
)
async def test_a_bad_definition_is_left_out_and_told_by_name(sample_package: None) -> None:
    async with sessions_host(providers={"sample": {"enabled": True}}) as (_, _, client):
        plugin = await new_plugin(client)
        answer = await plugin.register(
            tool("good"),
            tool("two words"),
            {"name": "no_schema", "inputSchema": "x"},
            tool("whoami"),
            tool("needs", requires=[{"type": "storage", "level": "enterprise"}]),
            tool("good"),
            "text",
            capabilities=[STORAGE],
        )
        body = answer.json()
        assert (answer.status_code, body["registeredTools"], await plugin.names()) == (201, ["good"], ["good"])
        failed = {failed["toolName"]: (failed["error"], failed["recoverable"]) for failed in body["failedTools"]}
        assert failed == {
            "two words": (
                "'two words' is not a valid name for a tool;"
                " 1 to 128 of the characters A-Z a-z 0-9 _ . - / are allowed",
                False,
            ),
            "no_schema": ("inputSchema must be a JSON Schema, an object", False),
            "whoami": ("the name belongs to provider 'sample'; a session's tools need names of their own", True),
            "needs": ("it requires 'storage' at level 'enterprise'; 'advanced' was declared", True),
            "good": ("duplicate name", True),
            "": ("a tool must be an object with name, description and inputSchema", False),
        }


@pytest.mark.requirement("C-6-register-none-good", "C-6-register-atomic", "DYN-AC-8")
@pytest.mark.parametrize(("tools", "atomic"), [(["bad name"], False), (["good", "bad name"], True)])
async def test_a_registration_of_which_nothing_may_be_taken_is_422_and_keeps_what_was(
    tools: list[str], atomic: bool
) -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client, tool("before"))
        answer = await plugin.register(*map(tool, tools), atomic=atomic)
        assert refusal(answer) == (422, "registration_failed", "tools")
        assert answer.json()["failedTools"] == [
            {
                "toolName": "bad name",
                "error": (
                    "'bad name' is not a valid name for a tool;"
                    " 1 to 128 of the characters A-Z a-z 0-9 _ . - / are allowed"
                ),
                "recoverable": False,
            }
        ]
        shown = await plugin.metadata()
        assert (shown["revision"], [item["name"] for item in shown["tools"]]) == (1, ["before"])


@pytest.mark.requirement("C-6-register-empty")
async def test_a_registration_of_nothing_is_good() -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        answer = await plugin.register()
        assert (answer.status_code, answer.json()["registeredTools"], answer.json()["revision"]) == (201, [], 1)
        shown = await plugin.metadata()
        assert (shown["registered"], shown["toolCount"]) == (True, 0)


@pytest.mark.requirement("C-6-capability-invalid", "C-6-capability-shape", "DYN-AC-5", "DYN-capability-shape")
@pytest.mark.parametrize(
    ("capability", "param"),
    [
        ({"type": "telepathy", "level": "basic", "resources": []}, "capabilities[1].type"),
        ({"type": "storage", "level": "expert", "resources": []}, "capabilities[1].level"),
        ({"type": "storage", "level": "basic", "resources": {}}, "capabilities[1].resources"),
        ({"type": "storage", "level": "basic", "more": 1}, "capabilities[1].more"),
        ({"level": "basic"}, "capabilities[1].type"),
        ("storage", "capabilities[1]"),
        (None, "capabilities[1]"),
    ],
)
async def test_an_unknown_capability_is_422_before_any_tool_is_kept(capability: object, param: str) -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        answer = await plugin.register(tool("good"), capabilities=[STORAGE, capability])
        assert refusal(answer) == (422, "invalid_capability", param)
        assert (await plugin.metadata())["registered"] is False


@pytest.mark.requirement("C-6-capability-shape")
@pytest.mark.parametrize("type_", ["data_analysis", "visualization", "messaging", "storage", "computation"])
@pytest.mark.parametrize("level", ["basic", "advanced", "enterprise"])
async def test_every_known_capability_is_taken(type_: str, level: str) -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        capability = {"type": type_, "level": level, "resources": []}
        assert (await plugin.register(tool("good"), capabilities=[capability])).status_code == 201


@pytest.mark.requirement("C-6-register-as-specified")
@pytest.mark.parametrize("both", [False, True])
async def test_a_registration_may_look_as_in_the_specification(both: bool) -> None:
    async with sessions_host() as served:
        plugin = await new_plugin(served.client)
        tools = {"availableTools": [tool("export")], **({"tools": [tool("export")]} if both else {})}
        environment = {"version": "3", "features": [], "limitations": [], "contextInfo": {}}
        body = {"sessionCode": plugin.code, "pluginType": "codap", "capabilities": [], "environment": environment}
        answer = await plugin.send("register-tools", {**body, **tools})
        assert (answer.status_code, answer.json()["registeredTools"]) == (201, ["export"])


@pytest.mark.requirement("C-6-register")
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "tools"),
        ({"pluginType": "table"}, "tools"),
        ({"pluginType": "table", "tools": {}}, "tools"),
        ({"pluginType": "table", "tools": None}, "tools"),
        ({"pluginType": 7, "tools": []}, "pluginType"),
        ({"pluginType": "table", "tools": [], "atomic": "true"}, "atomic"),
        ({"pluginType": "table", "tools": [], "capabilities": {}}, "capabilities"),
        ({"pluginType": "table", "tools": [], "environment": []}, "environment"),
        ({"pluginType": "table", "availableTools": {}}, "availableTools"),
        ({"pluginType": "table", "tools": [tool("a")], "availableTools": []}, "tools"),
        ({"sessionCode": "ABCDEFGH", "availableTools": []}, "sessionCode"),
        ({"pluginType": "table", "tools": [], "plugintype": ""}, "plugintype"),
    ],
)
async def test_what_is_no_registration_is_400_and_names_the_field(body: Json, param: str) -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        answer = await plugin.send("register-tools", body)
        assert refusal(answer) == (400, "invalid_request", param)


HIDDEN = "a\u202e\U000e0041\ufe01\x85b"


@pytest.mark.requirement("C-8-hidden-text")
async def test_a_schema_is_cleaned_like_a_servers_and_the_removals_are_reported() -> None:
    schema = {
        "type": "object",
        "title": HIDDEN,
        "properties": {"rows": {"type": "integer", "description": HIDDEN, "default": HIDDEN, "examples": [HIDDEN]}},
        "nullable": True,
    }
    hidden = {"name": "add", "inputSchema": schema, "outputSchema": schema, "annotations": {"title": HIDDEN}}
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        answer = await plugin.register(hidden)
        assert answer.status_code == 201
        (report,) = answer.json()["cleanedTools"]
        assert report["toolName"] == "add"
        assert report["removed"][:2] == [
            "/inputSchema/title: invisible characters",
            "/inputSchema/properties/rows/description: invisible characters",
        ]
        assert "/inputSchema/nullable: no keyword of JSON Schema" in report["removed"]
        listed = await client.get("/v1/tools", headers=ALICE, params={"session": plugin.code, "format": "mcp"})
        metadata = await client.get(f"{plugin.place}/metadata", headers=ALICE)
        for shown in (listed.text, metadata.text):
            assert not set(HIDDEN) & set(shown) - {"a", "b"}
        assert listed.json()["tools"][0]["inputSchema"]["title"] == "a\nb"
        updated = await plugin.update(modified=[hidden])
        assert (updated.json()["revision"], len(updated.json()["cleanedTools"])) == (1, 1)
        assert "cleanedTools" not in (await plugin.update(added=[tool("clean")])).json()


@pytest.mark.requirement("C-8-hidden-names")
@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"properties": {"a\u200b": {}}}, "/inputSchema/properties/a"),
        ({"$defs": {"a\u00ad": {}}}, "/inputSchema/$defs/a"),
        ({"properties": {"a": {"pattern": "\u3164"}}}, "/inputSchema/properties/a/pattern"),
        ({"properties": {"a": {"enum": ["\U000e0041"]}}}, "/inputSchema/properties/a/enum"),
        ({"properties": {"a": {"const": "\u202e"}}}, "/inputSchema/properties/a/const"),
    ],
)
async def test_a_hidden_character_in_what_is_compared_fails_the_tool(schema: Json, pointer: str) -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        hidden = {"name": "hidden", "inputSchema": {"type": "object", **schema}}
        answer = await plugin.register(tool("good"), hidden)
        (failed,) = answer.json()["failedTools"]
        assert (failed["toolName"], failed["recoverable"]) == ("hidden", False)
        assert failed["error"].startswith(f"{pointer} has the hidden character U+")
        refused = await plugin.update(added=[hidden])
        assert refusal(refused) == (422, "invalid_tool", "toolUpdates.added[0].inputSchema")


@pytest.mark.requirement("C-6-plugin-type-default", "C-6-no-input-schema")
async def test_a_registration_needs_neither_a_plugin_type_nor_an_input_schema() -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client, pluginType="codap")
        answer = await plugin.send("register-tools", {"tools": [{"name": "plain", "description": "Plain."}]})
        assert (answer.status_code, answer.json()["registeredTools"]) == (201, ["plain"])
        assert answer.json()["sessionConfiguration"]["pluginType"] == "codap"
        added = await plugin.update(added=[{"name": "more"}])
        assert (added.status_code, (await plugin.metadata())["pluginType"]) == (200, "codap")


@pytest.mark.requirement("DYN-environment-shape", "C-6-limits")
@pytest.mark.parametrize("depth", [200, *range(235, 258), 700])
async def test_an_environment_that_is_taken_can_be_shown_everywhere(depth: int) -> None:
    deep: object = 1
    for _ in range(depth):
        deep = {"a": deep}
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        capability = {"type": "storage", "level": "basic", "resources": [deep]}
        for more in ({"environment": {"a": deep}}, {"capabilities": [capability]}):
            answer = await plugin.register(tool("add"), **more)
            if answer.status_code != 201:
                assert refusal(answer) == (422, "invalid_environment", "environment")
        assert (await client.get("/api/sessions", headers=ALICE)).status_code == 200
        assert (await client.get(f"{plugin.place}/metadata", headers=ALICE)).status_code == 200


@pytest.mark.requirement("C-6-update-atomic", "DYN-AC-6", "DYN-update-endpoint", "DYN-metadata-after-update")
async def test_an_update_adds_removes_and_modifies_at_once() -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client, tool("kept"), tool("gone"), tool("other"))
        changed, new = tool("other", description="New."), tool("new")
        answer = await plugin.update(added=[new], removed=["gone"], modified=[changed])
        assert (answer.status_code, answer.json()) == (
            200,
            {"success": True, "revision": 2, "updates": {"added": [new], "removed": ["gone"], "modified": [changed]}},
        )
        shown = await plugin.metadata()
        assert (shown["revision"], [item["name"] for item in shown["tools"]]) == (2, ["kept", "other", "new"])


@pytest.mark.requirement("C-6-update-atomic", "C-6-update-conflicts", "C-6-update-invalid", "C-6-no-shadow")
@pytest.mark.parametrize(
    ("changes", "status", "code", "param"),
    [
        ({"added": [tool("new"), tool("kept")]}, 409, "tool_exists", "toolUpdates.added[1].name"),
        ({"added": [tool("new")], "removed": ["nobody"]}, 409, "tool_not_found", "toolUpdates.removed[0]"),
        ({"added": [tool("new")], "modified": [tool("nobody")]}, 409, "tool_not_found", "toolUpdates.modified[0]"),
        ({"added": [tool("new"), tool("two words")]}, 422, "invalid_tool", "toolUpdates.added[1].name"),
        ({"added": [{"name": "new", "inputSchema": []}]}, 422, "invalid_tool", "toolUpdates.added[0].inputSchema"),
        ({"modified": [tool("kept", description=7)]}, 422, "invalid_tool", "toolUpdates.modified[0].description"),
        ({"modified": [tool("kept", more=1)]}, 422, "invalid_tool", "toolUpdates.modified[0].more"),
        ({"added": [tool("new", requires=["storage"])]}, 422, "invalid_tool", "toolUpdates.added[0]"),
        ({"added": [tool("whoami")]}, 422, "invalid_tool", "toolUpdates.added[0]"),
        ({"added": [tool("new")], "removed": ["new"]}, 422, "invalid_tool", "toolUpdates"),
    ],
)
async def test_an_update_that_cannot_be_changes_nothing(
    sample_package: None, changes: Json, status: int, code: str, param: str
) -> None:
    async with sessions_host(providers={"sample": {"enabled": True}}) as (_, _, client):
        plugin = await new_plugin(client, tool("kept"))
        before = await plugin.metadata()
        answer = await plugin.update(**changes)
        assert refusal(answer) == (status, code, param)
        after = await plugin.metadata()
        assert {**after, "expiresAt": ""} == {**before, "expiresAt": ""}


@pytest.mark.requirement("DYN-update-unregistered", "C-6-update-conflicts")
async def test_an_update_of_what_was_never_registered_is_409() -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        assert refusal(await plugin.update(added=[tool("new")])) == (409, "not_registered", None)


@pytest.mark.requirement("C-6-update-nothing", "DYN-AC-6")
@pytest.mark.parametrize("changes", [{}, {"added": [], "removed": []}, {"modified": [tool("kept")]}])
async def test_a_change_of_nothing_is_200_without_a_new_revision_or_event(changes: Json) -> None:
    async with sessions_host() as (_, app, client):
        plugin = await new_plugin(client, tool("kept"))
        async with talking(app, f"{plugin.place}/stream", ALICE) as reader:
            await reader.until("connected")
            answer = await plugin.update(**changes)
            assert (answer.status_code, answer.json()) == (
                200,
                {"success": True, "revision": 1, "updates": {"added": [], "removed": [], "modified": []}},
            )
            await plugin.update(removed=["kept"])
            assert (await reader.next()).data["revision"] == 2


@pytest.mark.requirement("C-6-update-if-match")
async def test_an_update_can_ask_for_the_revision_that_it_was_made_for() -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client, tool("kept"))
        etag = (await client.get(f"{plugin.place}/metadata", headers=ALICE)).headers["etag"]
        spellings = ["1", '"1"', 'W/"1"', etag, etag.removeprefix("W/")]
        for number, given in enumerate(spellings):
            again = await plugin.update(modified=[tool("kept")], if_match=given)
            assert (again.status_code, again.json()["revision"]) == (200, 1), number
        assert (await plugin.update(added=[tool("new")], if_match="*")).json()["revision"] == 2
        for given in spellings:
            late = await plugin.update(removed=["new"], if_match=given)
            assert refusal(late) == (412, "revision_mismatch", "If-Match")
        for given in ("", "one", "1, 2", '"1', "-1", "1.0", "1" * 19):
            unread = await plugin.update(removed=["new"], if_match=given)
            assert refusal(unread) == (400, "invalid_request", "If-Match")
        assert await plugin.names() == ["kept", "new"]


@pytest.mark.requirement("C-6-update-invalid")
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "toolUpdates"),
        ({"toolUpdates": []}, "toolUpdates"),
        ({"toolUpdates": {"added": {}}}, "toolUpdates.added"),
        ({"toolUpdates": {"removed": [7]}}, "toolUpdates.removed[0]"),
        ({"toolUpdates": {"aded": []}}, "toolUpdates.aded"),
        ({"toolUpdates": {}, "reason": None}, "reason"),
        ({"toolUpdates": {}, "reason": "x" * 1001}, "reason"),
    ],
)
async def test_what_is_no_update_is_400_and_names_the_field(body: Json, param: str) -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client, tool("kept"))
        assert refusal(await plugin.send("update-tools", body)) == (400, "invalid_request", param)


@pytest.mark.requirement("C-6-limits", "C-6-too-many-tools", "H-limit-session-tools", "DYN-OQ-2")
async def test_256_tools_are_taken_and_one_more_is_refused_whole() -> None:
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        tools = [tool(f"tool_{number}") for number in range(257)]
        assert refusal(await plugin.register(*tools)) == (422, "too_many_tools", "tools")
        assert (await plugin.metadata())["registered"] is False
        assert len((await plugin.register(*tools[:256])).json()["registeredTools"]) == 256
        assert refusal(await plugin.update(added=tools[256:])) == (422, "too_many_tools", "tools")
        answer = await plugin.update(added=tools[256:], removed=["tool_0"])
        assert (answer.status_code, (await plugin.metadata())["toolCount"]) == (200, 256)


@pytest.mark.requirement("C-6-limits", "C-5-retry-after")
async def test_ten_changes_a_minute_are_taken_and_the_eleventh_is_429() -> None:
    async with sessions_host(sessions={}) as (_, _, client):
        plugin = await new_plugin(client, tool("kept"))
        for number in range(9):
            assert (await plugin.update(added=[tool(f"tool_{number}")])).status_code == 200
        assert (await plugin.update(removed=["nobody"])).status_code == 409, "what is refused counts as well"
        for answer in (await plugin.update(added=[tool("more")]), await plugin.register(tool("more"))):
            assert refusal(answer) == (429, "too_many_updates", None)
            assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert (await plugin.metadata())["revision"] == 10


@pytest.mark.requirement("C-5-max-body", "C-6-limits")
async def test_a_registration_may_have_eight_mebibytes_and_an_answer_one() -> None:
    most = 8 * 1024 * 1024
    async with sessions_host() as (_, _, client):
        plugin = await new_plugin(client)
        head = {**plugin.headers, "Content-Type": "application/json"}
        body = json.dumps({"pluginType": "table", "tools": [tool("good")]}).encode()
        for size, status in ((most, 201), (most + 1, 413)):
            answer = await client.post(f"{plugin.place}/register-tools", headers=head, content=body.ljust(size))
            assert answer.status_code == status
        for size, status in ((1024 * 1024, 404), (1024 * 1024 + 1, 413)):
            content = json.dumps({"id": "req_1", "result": 1}).encode().ljust(size)
            answer = await client.post(f"{plugin.place}/tool-results", headers=head, content=content)
            assert answer.status_code == status


@pytest.mark.requirement("C-6-late-provider", "DYN-compat-registered")
async def test_a_provider_that_comes_later_wins_and_the_tool_is_shown_as_shadowed(
    sample_package: None,
) -> None:
    async with sessions_host(providers={"sample": {"enabled": True}}) as (_, _, client):
        root = {"X-API-Key": "root-key"}
        await client.post("/v1/providers/sample/disable", headers=root)
        plugin = await new_plugin(client, tool("whoami"))
        assert (await plugin.metadata())["tools"] == [{**tool("whoami"), "available": True}]
        await client.post("/v1/providers/sample/enable", headers=root)
        assert (await plugin.metadata())["tools"] == [{**tool("whoami"), "available": False, "reason": "shadowed"}]
        answer = await client.post("/v1/tool-calls", headers=ALICE, json={"name": "whoami", "session": plugin.code})
        assert answer.json()["status"] == "success"


@pytest.mark.requirement("DYN-AC-4", "DYN-US-per-app", "DYN-AC-10", "DYN-AC-2")
async def test_two_kinds_of_applications_lend_tools_of_one_name_side_by_side() -> None:
    async with sessions_host() as (_, _, client):
        table = await new_plugin(client, tool("send", description="Send the rows."))
        chat = await new_plugin(client)
        await chat.send("register-tools", {"pluginType": "chat", "tools": [tool("send", inputSchema={**SCHEMA})]})
        assert [(await plugin.metadata())["pluginType"] for plugin in (table, chat)] == ["table", "chat"]
        assert [shown.get("description") for shown in (await table.metadata())["tools"]] == ["Send the rows."]
        assert [shown.get("description") for shown in (await chat.metadata())["tools"]] == [None]
