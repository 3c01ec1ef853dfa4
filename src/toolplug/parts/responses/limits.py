"""The limits of the Responses API, as docs/reference/limits.md lists them: requests, conversations, models' answers."""

from __future__ import annotations

from typing import Final

# A request

MAX_TOOLS = 1_000
"""Entries of `tools`, of `allowed_tools` and of `tool_choice.tools`."""
MAX_ITEMS = 4_096
"""Of the input and of other lists. Reading so many and telling them to a model takes 30 ms."""
MAX_INCLUDES = 100
"""Entries of `include`."""
MAX_KEYS = 1_000
"""Fields of a tool, of an item or of a schema."""
MAX_FUNCTIONS: Final = 1_000
"""Tools of a response, those of its namespaces included."""
MAX_TEXT = 10 * 1024 * 1024
"""Characters of one text of the input."""
MAX_CONTENT_PARTS = 4_096
"""Of one item; all have twice as many at most. Reading each of them, and telling it to a model, takes 5 µs."""

# Stored responses and conversations

TTL_S = 30 * 86_400.0
"""How long a response is kept where `responses.ttl` does not say."""
MAX_CHAIN = 1_000
"""Responses of one conversation."""
HEAL_S = 3600.0
"""How long the hosted calls of a response that is not stored are kept for its client, where `responses.heal` does not
say."""
MAX_HEALED_RESPONSES: Final = 64
"""Responses whose hosted calls one request gets back, the newest first; each is one read of the store."""
MAX_HEALED_SOUGHT: Final = 512
"""Responses that are sought for one request, the newest; all of them together are one trip to the store."""
MAX_HEALED_ITEMS: Final = 512
"""Items of one response that are kept for this; of one with more none is kept."""
MAX_HEALED_BYTES: Final = 1024 * 1024
"""Of the hosted items of one response; of further ones the beginnings of the texts are kept."""
MAX_HEALED_IN_ALL: Final = 8 * 1024 * 1024
"""Bytes that are read for one request, the newest responses first."""
MAX_HEALED_TEXT: Final = 4096
"""Characters of an output, and of arguments, of an item that is too large."""
IDLE_S = 1800.0
"""Seconds without use after which the toolsets of a conversation are closed; they are opened again when it goes on."""
MOST = 10_000
"""Conversations with open toolsets."""
MOST_OF_CALLER = 500
"""Of one caller, which is a subject of a tenant."""

# An answer of a model's server

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
"""As it is sent, of a stream or in one piece."""
MAX_ERROR_BYTES: Final = 256 * 1024
"""Of an answer with another status than 200, which the client parses in one piece on the event loop."""

MAX_JSON_BYTES: Final = 4 * 1024 * 1024
"""Of one event, or of an answer that is no stream. The longest answer of a model has a quarter of it."""
MAX_VALUES: Final = 128 * 1024
"""Values in one event, or in an answer that is no stream: jiter takes up to 29 ms to build so many."""
MAX_NAMES: Final = 32 * 1024
"""Names of members of objects in it: jiter takes up to 15 ms for so many."""
MAX_LONG_DIGITS: Final = 1024 * 1024
"""Digits of long integers in it: jiter takes up to 16 ms for so many."""

MAX_ANSWER_CHARS: Final = 1024 * 1024
"""Texts and arguments of one answer together. The longest answer of a model has half as many."""
MAX_PARTS: Final = 128 * 1024
"""Events of one answer; a stream of 16 MiB has half as many."""
MAX_LEFT_OUT: Final = 1000
"""Things in one answer that cannot be used."""

MAX_ENTRIES: Final = 4096
"""Parts of the content and reasoning of one chunk; each takes 4 µs to read."""

MAX_CALL_ID: Final = 64
"""Characters of a call's id, as OpenAI has it."""
MAX_CALLS: Final = 128
"""Of one answer."""
MAX_ARGUMENT_CHARS: Final = 512 * 1024
"""Of one call; the longest answer of a model has about as many."""

MAX_FIELDS_CHARS: Final = 512 * 1024
"""Characters of the fields that a server wants back with a message, or with a call."""
MAX_FIELD_VALUES: Final = 4096
"""Of one turn's message, and of each of its calls. Reading and storing so many values takes 20 ms."""

# What is made of it

MAX_TURNS = 10
"""Turns of a response where `responses.max_turns` does not say."""
MAX_ANNOTATIONS = 100
"""Citations of one message."""
