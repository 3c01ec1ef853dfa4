"""A provider with as many tools as its settings say."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from toolplug import CallContext, FunctionProvider, ToolCall, ToolDefinition, ToolError, ToolResult

VERBS = ("create", "delete", "list", "update", "find", "export", "archive", "merge", "rename", "share")
NOUNS = ("invoice", "customer", "ticket", "branch", "report", "meeting", "contact", "order", "folder", "payment")


def name_of(number: int) -> str:
    """The name of the tool of this number, as `merge_branch_37`."""
    return f"{VERBS[number % 10]}_{NOUNS[number // 10 % 10]}_{number}"


def definition(number: int) -> ToolDefinition:
    """The tool of this number."""
    verb, noun = VERBS[number % 10], NOUNS[number // 10 % 10]
    return ToolDefinition(
        name=name_of(number),
        description=f"{verb.title()} the {noun} of a department in the system of record.",
        parameters={
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": f"the id of the {noun}"},
                "note": {"type": "string", "description": "what to write in the log"},
            },
            "required": ["id"],
            "additionalProperties": False,
        },
    )


class Many(FunctionProvider):
    """`count` tools that answer their own name, and `extra` ones that do nothing but have a name."""

    class Config(BaseModel):
        count: int = 100
        extra: list[str] = []

    config: Config

    def tools(self) -> Sequence[ToolDefinition]:
        numbered = [definition(number) for number in range(self.config.count)]
        return [*numbered, *(ToolDefinition(name=name) for name in self.config.extra)]

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        assert isinstance(call.arguments, dict)
        if call.arguments.get("id") == "none":
            raise ToolError("there is no such id")
        context.report(1.0, 2.0, "half done")
        answer = {"did": call.name, "of": context.principal.subject, **call.arguments}
        return ToolResult(structured=answer, metadata={"seen": call.name}, parts=({"type": "text", "text": "part"},))
