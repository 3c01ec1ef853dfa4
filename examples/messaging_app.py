"""A chat that lends its operations to a model, as a messaging application does.

Run it beside a host: `python examples/messaging_app.py http://127.0.0.1:8080`. Its tools have the names of those of
`data_analysis_app.py` and other arguments; each session sees its own. `reply` is there while a thread is open.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from pydantic import BaseModel

from toolplug import CallContext, ToolError
from toolplug.client import Application, Capability, Requirement, Tool


class Message(BaseModel):
    """One message; `thread` is the number of the message that it answers."""

    number: int
    text: str
    thread: int | None = None


class Chat:
    """The application: what was said, and the thread that is open."""

    def __init__(self, application: Application) -> None:
        self.messages: list[Message] = []
        self.thread: int | None = None
        self._application = application
        self._reply = Tool(self.reply, requires=[Requirement("messaging", "advanced")])
        for function in (self.add, self.describe, self.search, self.open_thread):
            application.add(function)

    async def add(self, text: str) -> Message:
        """Write a message."""
        return self._written(text, None)

    async def describe(self) -> str:
        """Say what is in the chat."""
        return f"a chat of {len(self.messages)} messages"

    async def search(self, text: str, context: CallContext, limit: int = 10) -> list[Message]:
        """Find messages that contain the text, newest first."""
        found: list[Message] = []
        for done, message in enumerate(reversed(self.messages), start=1):
            context.report(done, len(self.messages))
            if text in message.text and len(found) < limit:
                found.append(message)
        return found

    async def open_thread(self, number: int | None = None) -> None:
        """Open the thread of a message, or none."""
        if number is not None and number not in {message.number for message in self.messages}:
            raise ToolError(f"there is no message {number}")
        if number is not None and self.thread is None:
            self._application.add(self._reply, reason="a thread was opened")
        if number is None and self.thread is not None:
            self._application.remove("reply", reason="the thread was closed")
        self.thread = number

    async def reply(self, text: str) -> Message:
        """Answer in the open thread."""
        return self._written(text, self.thread)

    def _written(self, text: str, thread: int | None) -> Message:
        self.messages.append(Message(number=len(self.messages) + 1, text=text, thread=thread))
        return self.messages[-1]


async def main(url: str) -> None:
    """Lend until interrupted, or until the session is over."""
    application = Application(url, plugin_type="slack", capabilities=[Capability(type="messaging", level="enterprise")])
    Chat(application)
    async with application:
        print(f"session {application.code}", flush=True)
        await application.serve()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"))
