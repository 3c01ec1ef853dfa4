"""Plans of an MCP server's tools, and the conversion of its answers into results."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import cast

from toolplug.catalog.call import EMPTY, CallContext, CannotAsk, ToolCall, ToolResult, ToolStatus, no_report
from toolplug.catalog.catalog import EMPTY_CATALOG, Catalog
from toolplug.catalog.definition import ANY_OBJECT, ToolDefinition, ToolRef
from toolplug.catalog.plan import NO_HOOKS, Gate, Plan, Target, TenantsGate, Tool
from toolplug.catalog.schema import Schema
from toolplug.errors import ToolError, ToolUnavailable
from toolplug.execution.accounting import CallAccounting, CallCounters, LevelKey
from toolplug.execution.plans import CallServices, PlanBuilder, PlanSource, ToolPolicy
from toolplug.execution.resolved_limits import NO_LIMITS, LimitLevel
from toolplug.host.file.tool_servers import SERVER_KIND
from toolplug.parts.mcp.client.connection import BadAnswer, McpAnswer, Repetition, ServerRefused
from toolplug.parts.mcp.client.connection_strategies import ConnectionStrategy, SwitchedConnection
from toolplug.parts.mcp.client.server_config import ADDED, Server
from toolplug.parts.mcp.content import META, PlacedText
from toolplug.parts.mcp.discovery.record import FoundTool, ServerName
from toolplug.parts.mcp.input_rounds import answered_in_rounds, of_server
from toolplug.signatures.values import encode_value

MAX_META = 16_384
"""Characters of a result's `_meta`; it is no limit of the tool's, since models do not see it."""
_NOT_PASSED_ON = ("io.modelcontextprotocol/", "toolplug/")
"""Keys that speak of the server that answers, which is this one to its own clients."""
_ANY = Schema(ANY_OBJECT)
UNFIT = "structured content that does not fit the tool's output schema"


def result_of(answer: McpAnswer, output: Schema | None) -> ToolResult:
    """Return the result: text content as its output, one block per line; each other block as a part.

    The output knows the places of the parts, for MCP clients. Structured content that does not fit the schema `output`
    is omitted, and the metadata says so; the text stays. The answer's `_meta` is in the metadata unless too large.
    """
    text: list[str] = []
    parts: list[Mapping[str, object]] = []
    places: list[int] = []
    for block in answer.content:
        words = block.get("text")
        if block.get("type") == "text" and isinstance(words, str):
            text.append(words)
        else:
            parts.append(block)
            places.append(len("\n".join(text)))
    joined = "\n".join(text)
    output_text = PlacedText.of(joined, places) if places else joined
    status = ToolStatus.TOOL_ERROR if answer.is_error else ToolStatus.SUCCESS
    metadata = _metadata(answer)
    structured = answer.structured
    if structured is None or output is None or answer.is_error or output.is_valid(structured):
        return ToolResult("", "", output_text, status, structured, tuple(parts), metadata)
    return ToolResult("", "", output_text, status, None, tuple(parts), {**metadata, "left_out": UNFIT})


def _metadata(answer: McpAnswer) -> Mapping[str, object]:
    meta = {key: value for key, value in answer.meta.items() if not key.startswith(_NOT_PASSED_ON)}
    text = encode_value(meta) if meta else None
    return EMPTY if text is None or len(text) > MAX_META else {META: meta}


class OwnTarget:
    """What targets of toolplug itself inherit, which stay the same over the connection of a session."""


class ServerPlanner:
    """Builds the tools of one server from its configuration. A policy `ask` requires `approvals`."""

    def __init__(self, server: Server, services: CallServices, labels: Labels) -> None:
        self._server = server
        self._services = services
        self._labels = labels
        self._level = _level(server.name)
        level = LimitLevel(self._level, server.limits, partial(server.origin, "limits"))
        self._builder = PlanBuilder(services, level, of_one_tenant=server.name.tenant is not None)
        self._policy_origin = server.origin("policy")
        self.own_gates: tuple[Gate, ...] = ()
        """Of a server of one tenant."""
        if server.name.tenant is not None:
            self.own_gates = (TenantsGate(frozenset({server.name.tenant}), server.origin()),)

    @property
    def accounting(self) -> CallAccounting:
        return self._services.accounting

    @property
    def drain_s(self) -> float:
        """Seconds that running calls may take to end when the server is disabled."""
        return self._builder.drain_s

    def catalog(
        self,
        found: Iterable[FoundTool],
        reach: SwitchedConnection,
        before: Catalog = EMPTY_CATALOG,
        gates_of: Callable[[ToolDefinition], tuple[Gate, ...]] = lambda _: (),
    ) -> Catalog:
        """Return the catalog of these tools, without those whose policy is `disable`; quarantined ones are unavailable.

        Unchanged tools of `before`, which this planner made with the same target and `gates_of`, stay the same objects.
        """
        listed: list[Tool] = []
        unavailable: list[Tool] = []
        for item in found:
            if self._server.policy_of(item.name) == "disable":
                continue
            known, definition = before.get(item.name), self._as_offered(item.definition)
            if item.quarantined:
                unavailable.append(self._quarantine_tool(definition, reach, gates_of(definition)))
            elif known is not None and known.definition.signature == definition.signature:
                listed.append(known)
            else:
                listed.append(self._tool(definition, calling(reach, definition), reach, gates_of(definition)))
        return Catalog(listed, unavailable=Catalog(unavailable))

    def _as_offered(self, definition: ToolDefinition) -> ToolDefinition:
        offered = self._server.offer_for(definition.ref.name)
        return definition if offered == definition.offered else replace(definition, offered=offered)

    def request(self, method: str, name: str, target: Target, reach: SwitchedConnection) -> Plan:
        """Return the plan of a request besides tool calls, such as `prompts/get` of the prompt of this name.

        The server's limits and the policy `deny` apply, hooks and other policies do not. Its result is never cut.
        """
        server, services = self._server, self._services
        definition = ToolDefinition(name=name, parameters=_ANY, ref=ToolRef(SERVER_KIND, server.name.id, name, ""))
        counters, abandoned = self._labels.method(method), services.accounting.abandoned_limit(*self._level)
        policy = ToolPolicy("deny", self._policy_origin) if server.policy == "deny" else None
        source = PlanSource(target, reach.switch, counters, abandoned)
        plan = self._builder.build(definition, source, policy, gates=self.own_gates)
        return replace(plan, artifacts=None, hooks=NO_HOOKS)

    @property
    def hides_all(self) -> bool:
        """True if the policy of the whole server is `disable`."""
        return self._server.policy == "disable"

    def _quarantine_tool(self, definition: ToolDefinition, reach: SwitchedConnection, gates: tuple[Gate, ...]) -> Tool:
        tool = self._tool(definition, _refuse_quarantined, reach, gates)
        return tool._replace(plan=replace(tool.plan, approval=None))

    def _tool(
        self, definition: ToolDefinition, target: Target, reach: SwitchedConnection, gates: tuple[Gate, ...]
    ) -> Tool:
        server, services, name = self._server, self._services, definition.ref.name
        rule = server.rule(name)
        origin = self._policy_origin if rule.policy is None else server.origin("tools", name, "policy")
        policy = rule.policy_in(server.policy_of(name), origin)
        if policy.word == "ask" and services.approvals is None:
            raise ValueError(f"the policy of server {server.name.id!r} is ask, and there is no one to ask")
        own = LimitLevel((*self._level, name), rule.limits, partial(server.origin, "tools", name, "limits"))
        abandoned = services.accounting.abandoned_limit(*self._level)
        plan = self._builder.build(
            definition,
            PlanSource(target, reach.switch, self._labels.counters(name), abandoned),
            policy,
            None if rule.limits == NO_LIMITS else own,
            gates=(*self.own_gates, *gates, *rule.gates(partial(server.origin, "tools", name))),
        )
        return Tool(definition, plan)


class Labels:
    """The counters of one server's tools. Tools beyond a maximum share one, as do all servers added at run time."""

    def __init__(self, accounting: CallAccounting, server: ServerName) -> None:
        self._accounting = accounting
        self._added = server.tenant is not None
        self._provider = f"{SERVER_KIND}:{ADDED if self._added else server.id}"

    def method(self, method: str) -> CallCounters:
        """Return the counters of a method of the protocol other than a tool call."""
        return self._accounting.counters(self._provider, method)

    def counters(self, name: str) -> CallCounters:
        if self._added:
            return self._accounting.counters(self._provider, ADDED)
        return self._accounting.capped_counters(self._provider, name)


def calling(reach: SwitchedConnection, definition: ToolDefinition) -> Target:
    """Return the target that calls the tool of this definition over a connection."""
    output = definition.output_schema

    async def target(call: ToolCall, context: CallContext) -> ToolResult:
        arguments = cast("Mapping[str, object]", call.arguments)  # decoded on its way here
        report = None if context.report is no_report else context.report

        async def send(repetition: Repetition | None) -> McpAnswer:
            return await reach.ask_as(context, partial(send_over, repetition))

        async def send_over(
            repetition: Repetition | None, line: ConnectionStrategy, headers: Mapping[str, str]
        ) -> McpAnswer:
            return await line.call(call.name, arguments, report, context.trace_context, ask, repetition, headers)

        ask = of_server(context.ask, definition.ref)
        with refusals_in_words():
            answer = await answered_in_rounds(send, ask, definition.ref, arguments)
        return result_of(answer, output)

    return target


RPC_CODE = "rpc_code"
"""In the metadata of a failed result: the code of JSON-RPC with which a server has refused the request."""


@contextmanager
def refusals_in_words(*, coded: bool = False) -> Generator[None]:
    """Turn the refusal of a server, an answer that cannot be read, and `CannotAsk` into a `ToolError`.

    If it is `coded`, the metadata has the server's code, which is passed on to the client of a prompt or resource.
    """
    try:
        yield
    except ServerRefused as error:
        said = str(error) or f"its server refused the call with code {error.code}"
        code = {RPC_CODE: error.code} if coded else {}
        raise ToolError(said, metadata={"code": "server_refused", **code}) from None
    except BadAnswer:
        raise ToolError("its server gave no answer that can be read", metadata={"code": "bad_answer"}) from None
    except CannotAsk as error:
        said = f"its server asks something before it answers, and the user cannot be asked: {error}"
        raise ToolError(said, metadata={"code": "cannot_ask"}) from None


def over(catalog: Catalog, reach: SwitchedConnection) -> Catalog:
    """Return the same tools with another target; those of toolplug itself and unavailable ones stay as they are."""
    tools = [
        Tool(definition, replace(plan, target=calling(reach, definition), switch=reach.switch))
        if not isinstance(plan.target, OwnTarget)
        else Tool(definition, plan)
        for definition, plan in catalog.values()
    ]
    return Catalog(tools, prefixes=catalog.prefixes, unavailable=catalog.unavailable)


async def _refuse_quarantined(call: ToolCall, context: CallContext) -> ToolResult:
    raise ToolUnavailable("it is new or has changed, and is not accepted yet", code="quarantined")


def _level(name: ServerName) -> LevelKey:
    """Return the level of a server's limits, with its tenant, as two tenants may use the same name."""
    return (SERVER_KIND, name.id) if name.tenant is None else (f"{SERVER_KIND} of {name.tenant}", name.id)
