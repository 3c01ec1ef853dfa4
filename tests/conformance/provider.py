"""The tools that the conformance suite expects of a server, as its scenarios describe them."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Annotated

from httpx2 import AsyncClient
from pydantic import BaseModel, Field

from toolplug import (
    CallContext,
    FunctionProvider,
    ToolCall,
    ToolDefinition,
    ToolError,
    ToolResult,
    prompt,
    resource,
    tool,
)
from toolplug.catalog.call import CannotAsk, UserAnswer

PICTURE = {
    "type": "image",
    "data": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==",
    "mimeType": "image/png",
}
SOUND = {
    "type": "audio",
    "data": "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=",
    "mimeType": "audio/wav",
}


FULL_SCHEMA = ToolDefinition(
    name="json_schema_2020_12_tool",
    description="Tool with JSON Schema 2020-12 features",
    parameters={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)


USER = {
    "username": {"type": "string", "description": "User's response"},
    "email": {"type": "string", "description": "User's email address"},
}
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
TITLED = [{"const": f"value{number}", "title": f"Choice {number}"} for number in (1, 2, 3)]
OPTIONS = ["option1", "option2", "option3"]
CHOICES = {
    "untitledSingle": {"type": "string", "enum": OPTIONS},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}


async def asked(context: CallContext, message: str, properties: Mapping[str, object]) -> UserAnswer:
    """Ask the user of the client by a form."""
    try:
        return await context.ask(message, {"type": "object", "properties": properties, "required": [*properties]})
    except CannotAsk as error:
        raise ToolError(f"the user cannot be asked: {error}") from None


class Conformance(FunctionProvider):
    """Answers as the suite says."""

    class Config(BaseModel):
        """Where the host is that this provider stands in."""

        host: str

    def tools(self) -> Sequence[ToolDefinition]:
        return [*super().tools(), FULL_SCHEMA]

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        if call.name == FULL_SCHEMA.name:
            return ToolResult(output="the arguments fit")
        return await super().execute(call, context)

    @tool
    async def test_simple_text(self) -> str:
        """Answer with text."""
        return "This is a simple text response for testing."

    @tool
    async def test_image_content(self) -> ToolResult:
        """Answer with a picture."""
        return ToolResult(parts=(PICTURE,))

    @tool
    async def test_audio_content(self) -> ToolResult:
        """Answer with a sound."""
        return ToolResult(parts=(SOUND,))

    @tool
    async def test_embedded_resource(self) -> ToolResult:
        """Answer with a resource."""
        text = "This is an embedded resource content."
        return ToolResult(parts=(embedded("test://embedded-resource", "text/plain", text),))

    @tool
    async def test_multiple_content_types(self) -> ToolResult:
        """Answer with content of three types."""
        inner = embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
        return ToolResult(output="Multiple content types test:", parts=(PICTURE, inner))

    @tool
    async def test_error_handling(self) -> str:
        """Fail on purpose."""
        raise ToolError("This tool intentionally returns an error for testing")

    @tool
    async def test_tool_with_progress(self, context: CallContext) -> str:
        """Report how far it is."""
        for done in (0, 50, 100):
            context.report(done, 100)
            await asyncio.sleep(0.05)
        return "done"

    @tool
    async def test_logging_tool(self) -> str:
        """Write a line to the log of the host, which is no message to the client."""
        self.log.info("a line")
        return "logged"

    @tool
    async def test_elicitation(self, message: str, context: CallContext) -> str:
        """Ask the user of the client."""
        answer = await asked(context, message, USER)
        return f"User response: action={answer.action}, content={dict(answer.content)}"

    @tool
    async def test_elicitation_sep1034_defaults(self, context: CallContext) -> str:
        """Ask by a form with defaults."""
        answer = await asked(context, "Who are you?", DEFAULTS)
        return f"Elicitation completed: action={answer.action}, content={dict(answer.content)}"

    @tool
    async def test_elicitation_sep1330_enums(self, context: CallContext) -> str:
        """Ask by a form with choices."""
        answer = await asked(context, "Which ones?", CHOICES)
        return f"Elicitation completed: action={answer.action}, content={dict(answer.content)}"

    @tool
    async def test_streaming_elicitation(self, context: CallContext) -> str:
        """Say something on the way; in 2026-07-28 nobody is asked while a call runs."""
        context.report(1, 1, "nothing to ask")
        return "asked nothing"

    @tool
    async def test_trigger_tool_change(self) -> str:
        """Have the operator switch another provider off, or on again."""
        return await self._switched()

    @tool
    async def test_trigger_prompt_change(self) -> str:
        """Do the same, since the other provider has a prompt too."""
        return await self._switched()

    async def _switched(self) -> str:
        async with AsyncClient(base_url=self.config.host, timeout=30) as operator:
            providers = (await operator.get("/v1/providers")).raise_for_status().json()["providers"]
            state = next(provider["state"] for provider in providers if provider["key"] == "spare")
            verb = "disable" if state == "active" else "enable"
            (await operator.post(f"/v1/providers/spare/{verb}")).raise_for_status()
        return verb

    @tool
    async def test_x_mcp_header(
        self, region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})], priority: int = 0
    ) -> str:
        """Answer with what a header has to repeat."""
        return f"{region} {priority}"

    @prompt
    async def test_simple_prompt(self) -> str:
        """A prompt without arguments."""
        return "This is a simple prompt for testing."

    @prompt(complete={"arg1": ["paris", "park", "party"]})
    async def test_prompt_with_arguments(self, arg1: str, arg2: str) -> str:
        """A prompt with arguments."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @prompt
    async def test_prompt_with_embedded_resource(self, resourceUri: str) -> list[object]:  # noqa: N803  the suite's
        """A prompt with a resource."""
        text = "Embedded resource content for testing."
        whole = {"role": "user", "content": embedded(resourceUri, "text/plain", text)}
        return [whole, "Please process the embedded resource above."]

    @prompt
    async def test_prompt_with_image(self) -> list[object]:
        """A prompt with a picture."""
        return [{"role": "user", "content": PICTURE}, "Please analyze the image above."]

    @resource("test://static-text", mime_type="text/plain")
    async def static_text(self) -> str:
        """A text."""
        return "This is the content of the static text resource."

    @resource("test://static-binary", mime_type="image/png")
    async def static_binary(self) -> bytes:
        """A picture."""
        return b64decode(PICTURE["data"])

    @resource("test://template/{id}/data", mime_type="application/json")
    async def template_data(self, id: str) -> dict[str, object]:  # noqa: A002  the variable's name
        """The data of an id."""
        return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}

    @resource("test://watched-resource")
    async def watched(self) -> str:
        """A resource that clients follow."""
        return "watched"


class Spare(FunctionProvider):
    """Comes and goes."""

    @tool
    async def test_spare(self) -> str:
        """Be there."""
        return "there"

    @prompt
    async def test_spare_prompt(self) -> str:
        """Be there."""
        return "there"


def embedded(uri: str, mime_type: str, text: str) -> dict[str, object]:
    """A resource within a result."""
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": text}}
