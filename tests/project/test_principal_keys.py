"""Keys that are made of a principal: each has the scope of the credentials that callers bring, or a reason for none.

An application may have one API key for all its users. What is kept for the key of one user must not be found by
another, who brings other credentials (`toolplug.execution.user_auth`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from tests.project.sources import Source, product

HOLDERS = (ast.Call, ast.Tuple, ast.List, ast.Dict, ast.JoinedStr)
DIGESTS = {"name_digest", "tenant_digest"}

SCOPED = {
    "execution/idempotency.py:Replays._key",
    "host/artifacts.py:Artifacts._key",
    "http/tools.py:call_id",
    "parts/mcp/http/endpoint.py:_owner",
    "parts/mcp/input_rounds.py:_digest",
    "parts/responses/stored.py:_SealedRecord.of",
    "parts/sessions/queued_calls.py:QueuedCalls.start",
    "plugins/toolplug-code-interpreter/src/toolplug_code_interpreter/containers.py:Containers.share",
}
"""Places that have the scope."""

REASONS = {
    "it says who somebody is, and finds nothing": {
        "apart/values.py:decode_principal",
        "apart/values.py:encode_principal",
        "cli/store.py:saved_toolsets",
        "execution/accounting.py:audit",
        "execution/results.py:_invalid",
        "host/tool_infos.py:_find_callers",
        "host/explain.py:Explainer._gates",
        "host/tool_infos.py:ToolInfos.page",
        "cli/agents.py:AgentLists._save",
        "host/toolsets/service.py:ToolsetService.allow",
        "host/toolsets/service.py:ToolsetService.bind",
        "http/auth/authentication.py:_holder",
        "http/auth/authentication.py:_identify",
        "http/auth/authentication.py:_principal",
        "http/auth/jwt.py:Tokens._principal",
        "http/tools.py:delegate",
        "parts/approvals/held.py:show_grant",
        "parts/approvals/records.py:ticket_of",
        "parts/approvals/running.py:Approvals._decide",
        "parts/approvals/terms.py:_caller",
        "parts/credentials/http.py:show_sign_in",
        "parts/mcp/http/endpoint.py:is_still_admitted",
        "parts/mcp/servers.py:McpServers.add",
        "parts/sessions/queued_calls.py:QueuedCalls._execute",
        "parts/sessions/service.py:Sessions._create",
        "testing/in_process.py:_api_key",
        "testing/provider_rules/routes.py:isolation_rules",
        "testing/provider_rules/metrics.py:_callers_values",
        "plugins/toolplug-console/src/toolplug_console/provider.py:Console.visitor",
        "plugins/toolplug-console/src/toolplug_console/seen_call.py:SeenCall.detail",
        "plugins/toolplug-console/src/toolplug_console/seen_call.py:seen_call",
        "plugins/toolplug-console/src/toolplug_console/shared_hour.py:_seen_call",
        "plugins/toolplug-journal/src/toolplug_journal/chain.py:append",
        "plugins/toolplug-journal/src/toolplug_journal/provider.py:Journal._entry",
        "plugins/toolplug-journal/src/toolplug_journal/provider.py:Journal._record_decision",
        "plugins/toolplug-notify/src/toolplug_notify/message.py:of_several",
        "plugins/toolplug-notify/src/toolplug_notify/message.py:of_ticket",
        "plugins/toolplug-remote/src/toolplug_remote/protocol.py:call_headers",
    },
    "it counts what a key uses, whoever is behind it": {
        "host/quotas/quota_use.py:QuotaUse.check_stream",
        "host/quotas/quota_use.py:QuotaUse.count_call",
        "host/quotas/quota_use.py:QuotaUse.stream",
        "host/quotas/settings.py:Quotas.levels",
        "host/quotas/stored_bytes.py:CountingStore.__aenter__",
        "host/quotas/stored_bytes.py:CountingStore._check",
        "host/quotas/stored_bytes.py:CountingStore._count_change",
        "host/quotas/stored_bytes.py:CountingStore._write_owner",
        "host/quotas/stored_bytes.py:_StoredSize.owners",
        "http/app.py:_HostApp._open_stream",
        "http/requests.py:key_of",
        "parts/approvals/running.py:Approvals._ask",
        "parts/approvals/running.py:Approvals._full",
        "parts/mcp/servers.py:McpServers._check_room",
        "parts/mcp/serving/mcp_sessions.py:McpSessions._of_principal",
        "parts/mcp/serving/mcp_sessions.py:McpSessions.open",
        "parts/responses/running.py:Conversations.use",
        "parts/sessions/peers/shared_records.py:NewSessions._look",
        "parts/sessions/service.py:Sessions._place",
        "plugins/toolplug-console/src/toolplug_console/feed.py:ViewerPlaces.place",
    },
    "it is uploaded to the key, and made by no call": {
        "plugins/toolplug-file-search/src/toolplug_file_search/provider.py:_caller",
    },
    "it is a right or a choice of the key, and nobody's data": {
        "host/views.py:Views._chooser",
        "parts/approvals/grants.py:Grants.check_room",
        "parts/approvals/grants.py:Grants.list_grants",
        "parts/approvals/grants.py:Grants.revoke",
        "toolsets/saved/saved_toolset.py:Caller.owner",
        "toolsets/saved/saved_toolset.py:ToolsetOwner.key",
    },
    "the record has the scope, and is compared": {
        "parts/approvals/events.py:leave_untold",
        "parts/approvals/grants.py:Grants._view",
        "parts/approvals/grants.py:Grants.claim",
        "parts/approvals/grants.py:Grants.claim_at_once",
        "parts/approvals/grants.py:Grants.make",
        "parts/approvals/records.py:approved_key",
        "parts/approvals/records.py:equal_key",
        "parts/approvals/records.py:question_of",
        "parts/approvals/records.py:ticket_key",
        "parts/approvals/records.py:waiting_key",
        "parts/approvals/running.py:Approvals._ask",
        "parts/approvals/running.py:Approvals._new",
        "parts/mcp/input_rounds.py:_key",
        "plugins/toolplug-tasks/src/toolplug_tasks/records.py:_keys_of",
        "parts/responses/stored.py:_healing_key",
        "parts/responses/stored.py:_key",
        "parts/responses/stored.py:events_key",
    },
    "a user who signs in, or has a JWT, brings nothing: who is behind a key is one user": {
        "parts/credentials/exchange.py:ExchangedTokens._fetch_token",
        "parts/credentials/service.py:BrowserLogin.check",
        "parts/credentials/oauth.py:OAuthCredentials.finish",
        "parts/credentials/records.py:AskedSignIn.principal",
        "parts/credentials/records.py:SignIns.link",
        "parts/credentials/records.py:_bound",
        "parts/credentials/records.py:connections_of_tenant",
        "parts/credentials/records.py:user_key",
        "parts/mcp/client/users.py:user_of",
    },
    "it has what is brought itself": {"parts/mcp/client/users.py:UserConnections._key"},
    "it is of a tenant": {"parts/mcp/discovery/record_store.py:record_key"},
}
"""Places that need none: reason → `file:function`."""


def names_in(node: ast.AST) -> set[object]:
    """The attributes, keys and variables that an expression reads."""
    found: set[object] = set()
    for each in ast.walk(node):
        match each:
            case ast.Attribute(attr=name) | ast.Name(id=name):
                found.add(name)
            case ast.Subscript(slice=ast.Constant(value=name)):
                found.add(name)
            case _:
                pass
    return found


def keys_of_principals(source: Source) -> Iterator[tuple[str, bool]]:
    """The functions that join tenant and subject, or digest a tenant, and whether each has a scope."""
    path = source.name.removeprefix("src/toolplug/")

    def look(node: ast.AST, place: str, around: ast.AST) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            place, around = f"{place}.{node.name}".removeprefix("."), node
        if isinstance(node, HOLDERS):
            found = names_in(node)
            digests = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in DIGESTS
            if {"tenant", "subject"} <= found or (digests and "tenant" in found):
                yield f"{path}:{place}", bool({"scope", "_scope_of"} & names_in(around))
        for child in ast.iter_child_nodes(node):
            yield from look(child, place, around)

    return look(source.tree, "", source.tree)


@pytest.mark.requirement("I38-scope")
def test_every_key_of_a_principal_has_the_scope_of_its_credentials_or_a_reason() -> None:
    found = {key for source in product() for key in keys_of_principals(source)}
    excused = set[str]().union(*REASONS.values())
    assert {place for place, _ in found} - SCOPED - excused == set()
    assert {place for place, scoped in found if not scoped} - excused == set()
    assert (SCOPED | excused) - {place for place, _ in found} == set()


def test_a_new_key_of_a_principal_is_found() -> None:
    text = "def key(context):\n    who = context.principal\n    return f'mine/{who.tenant}/{who.subject}'\n"
    assert [*keys_of_principals(Source("src/toolplug/new.py", text))] == [("new.py:key", False)]
