"""The provider: the eight tools with which a model manages its toolsets."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

from pydantic import Field

from toolplug import (
    CallContext,
    Caller,
    FunctionProvider,
    ProviderContext,
    SavedToolsets,
    ToolError,
    ToolReference,
    tool,
)
from toolplug.errors import AccessError, ApiError, StoreError
from toolplug_toolsets.arguments import MAX_NOTES, MAX_TOOLS, NoteText, ToolRef, ToolsetName
from toolplug_toolsets.tokens import ENCODING, context_tokens

MAX_LISTED = 1000
RETRY_S = 1.0


class Toolsets(FunctionProvider):
    """Offers the host's saved toolsets as tools; they stay listed whatever is equipped.

    Each caller has toolsets of their own, and in a session others than outside of it.
    """

    _site: ProviderContext | None = None

    async def start(self, site: ProviderContext) -> None:
        self._site = site

    @tool(name="list-available-tools", read_only=True)
    async def list_available_tools(
        self,
        context: CallContext,
        search: Annotated[str, Field(max_length=200)] = "",
        limit: Annotated[int, Field(ge=1, le=MAX_LISTED)] = 200,
    ) -> dict[str, object]:
        """List the tools that a toolset can be built from, also while one is equipped.

        Args:
            search: only tools with this text in their name or description
            limit: how many at most
        """
        with _tell_refusals():
            catalog = await self._saved.available(Caller.of(context))
        wanted = search.casefold()
        found = [
            definition
            for definition in catalog.definitions()
            if definition.ref.source != self.key and wanted in f"{definition.name} {definition.description}".casefold()
        ]
        shown = [
            {**ToolReference.of(definition.name).fields(), "description": definition.description}
            for definition in found[:limit]
        ]
        return {"tools": shown, "total": len(found)}

    @tool(name="build-toolset")
    async def build_toolset(
        self,
        context: CallContext,
        name: ToolsetName,
        tools: Annotated[list[ToolRef], Field(min_length=1, max_length=MAX_TOOLS)],
        description: Annotated[str, Field(max_length=1000)] = "",
    ) -> dict[str, object]:
        """Save a new toolset, without notes; equip-toolset makes it the list of tools.

        Args:
            tools: its tools, in the order in which they are to be listed
            description: what it is for
        """
        with _tell_refusals():
            references = [item.reference for item in tools]
            shown = await self._saved.build(Caller.of(context), name, references, description=description)
        return {**shown.fields()}

    @tool(name="list-saved-toolsets", read_only=True)
    async def list_saved_toolsets(self, context: CallContext) -> dict[str, object]:
        """List the saved toolsets, and which of them is equipped."""
        with _tell_refusals():
            return {"toolsets": [line.fields() for line in await self._saved.saved(Caller.of(context))]}

    @tool(name="equip-toolset", idempotent=True)
    async def equip_toolset(self, context: CallContext, name: ToolsetName) -> dict[str, object]:
        """Make the tools of a saved toolset the only ones that are listed, with its notes."""
        with _tell_refusals():
            return {**(await self._saved.equip(Caller.of(context), name)).fields()}

    @tool(name="unequip-toolset", idempotent=True)
    async def unequip_toolset(self, context: CallContext) -> dict[str, object]:
        """List every tool again."""
        with _tell_refusals():
            return {"unequipped": await self._saved.unequip(Caller.of(context))}

    @tool(name="delete-toolset", destructive=True)
    async def delete_toolset(self, context: CallContext, name: ToolsetName) -> dict[str, object]:
        """Delete a saved toolset with its notes; where it is equipped, every tool is listed again."""
        with _tell_refusals():
            await self._saved.delete(Caller.of(context), name)
        return {"deleted": name}

    @tool(name="get-active-toolset", read_only=True)
    async def get_active_toolset(self, context: CallContext) -> dict[str, object]:
        """Show the equipped toolset, its notes, and how many tokens of context its tools take."""
        caller = Caller.of(context)
        with _tell_refusals():
            shown = await self._saved.active(caller)
            catalog = await self._saved.active_catalog(caller)
        counted = await self._started.in_thread(context_tokens, catalog)
        return {
            "toolset": None if shown is None else shown.fields(),
            "contextTokens": {"encoding": ENCODING, "total": counted.total, "tools": counted.tools},
        }

    @tool(
        name="add-tool-annotation",
        description="Add contextual annotations to a tool in the current toolset to guide LLM usage",
    )
    async def add_tool_annotation(
        self,
        context: CallContext,
        tool_ref: Annotated[ToolRef, Field(alias="toolRef")],
        notes: Annotated[
            list[NoteText],
            Field(min_length=1, max_length=MAX_NOTES, description="Array of annotations to add to the tool"),
        ],
    ) -> dict[str, object]:
        """Add notes to a tool of the equipped toolset."""
        with _tell_refusals():
            added = await self._saved.add_notes(Caller.of(context), tool_ref.reference, [note.value for note in notes])
        return {**added.fields()}

    @property
    def _started(self) -> ProviderContext:
        if self._site is None:
            raise ToolError("toolsets are not there: the provider has not been started")
        return self._site

    @property
    def _saved(self) -> SavedToolsets:
        """The host's own. Raises `ToolError` where it has none."""
        try:
            return self._started.service(SavedToolsets)
        except LookupError as error:
            raise ToolError(str(error)) from None


@contextmanager
def _tell_refusals() -> Generator[None]:
    """Tell the model what the host refuses, with its code for programs."""
    try:
        yield
    except ApiError as error:
        raise ToolError(str(error), metadata={"code": error.code}) from None
    except AccessError as error:
        raise ToolError(str(error), metadata={"code": "no_access"}) from None
    except StoreError:
        raise ToolError(
            "toolsets cannot be read or saved now; try again",
            retry_after_s=RETRY_S,
            metadata={"code": "store_unavailable"},
        ) from None
