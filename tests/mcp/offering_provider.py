"""A provider with prompts and resources: good ones, and ones that break."""

from __future__ import annotations

import asyncio
from typing import Literal

from toolplug import CallContext, FunctionProvider, ToolError, prompt, resource, tool


class Notes(FunctionProvider):
    """Keeps notes, and offers them as prompts and resources."""

    @tool
    async def count(self) -> int:
        """Count the notes."""
        return 2

    @prompt(title="Review a note")
    async def review(self, text: str, style: Literal["short", "long"] = "short") -> str:
        """Ask for a review.

        Args:
            text: the note
        """
        return f"Review, {style}: {text}"

    @prompt(complete={"who": ["Ann", "Anton", "Bob"]})
    def greet(self, who: str, context: CallContext) -> list[object]:
        """Greet somebody."""
        return [f"Greet {who} for {context.principal.subject}.", {"role": "assistant", "content": "Hello!"}]

    @prompt
    def broken(self) -> str:
        """Raise an error with a secret."""
        raise ValueError("the password is rosebud")

    @prompt
    def nonsense(self) -> int:
        """Return something that is no message."""
        return 7

    @prompt
    async def hanging(self) -> str:
        """Never end."""
        await asyncio.Event().wait()
        return ""

    @prompt
    async def refusing(self) -> str:
        """Refuse in words."""
        raise ToolError("there are no notes yet")

    @prompt
    async def huge(self) -> str:
        """Return more than fits."""
        return "x" * 3_000_000

    @resource("notes://motto")
    def motto(self) -> str:
        """The motto."""
        return "Write it down."

    @resource("notes://logo", mime_type="image/png", title="Logo", size=3)
    async def logo(self) -> bytes:
        """A picture."""
        return b"\x01\x02\x03"

    @resource("notes://broken")
    async def unreadable(self) -> str:
        """Raise an error."""
        raise RuntimeError("the password is rosebud")

    @resource("notes://by/{name}", complete={"name": lambda typed: [f"{typed}1", f"{typed}2"]})
    async def note(self, name: str) -> dict[str, str]:
        """A note by its name."""
        return {"name": name}
