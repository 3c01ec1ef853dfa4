"""What a plugin offers besides its tools: prompts and resources for MCP, console pages, and sources of toolsets."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from pydantic import SecretStr

from toolplug.catalog.call import CallContext, ToolCall, ToolResult
from toolplug.catalog.definition import check_provider_tool_name
from toolplug.catalog.text import cleaned_description, hidden_character
from toolplug.errors import InvalidDefinition

Completion = Sequence[str] | Callable[[str], Iterable[str] | Awaitable[Iterable[str]]]
"""The values that an argument can have, or a function that returns those for what the user has typed so far."""

NO_COMPLETIONS: Mapping[str, Completion] = {}


class PromptArgument(NamedTuple):
    """One argument of a prompt; its value is text.

    ```python
    from toolplug import Prompt, PromptArgument

    who = PromptArgument("who", "the name of the guest", required=True)
    greet = Prompt(name="greet", get=lambda arguments, context: f"Greet {arguments['who']}.", arguments=(who,))
    assert greet.parameters["required"] == ["who"]
    ```
    """

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt of a provider, as `FunctionProvider.prompts` returns it; `@prompt` makes one of a method.

    * `name`: the name in lists; 1 to 64 of the characters A-Z a-z 0-9 _ -
    * `get`: returns the messages for the arguments, as `@prompt` describes; `async def` or a plain `def`
    * `title`, `description`: texts for people
    * `completions`: by argument, the values that clients may suggest
    * `schema`: the JSON Schema of the arguments; by default each is text

    Raises `InvalidDefinition` for an invalid name, and for a completion of an unknown argument.

    ```python
    from toolplug import Prompt, PromptArgument

    greet = Prompt(name="greet", get=lambda arguments, context: f"Greet {arguments['who']}.",
                   arguments=(PromptArgument("who", required=True),))
    ```
    """

    name: str
    get: Callable[[Mapping[str, object], CallContext], object]
    title: str = ""
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()
    completions: Mapping[str, Completion] = field(default_factory=lambda: NO_COMPLETIONS)
    schema: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        check_provider_tool_name(self.name)
        names = [argument.name for argument in self.arguments]
        check_completions(f"prompt {self.name!r}", self.completions, names)

    @property
    def parameters(self) -> Mapping[str, object]:
        """The JSON Schema of the arguments."""
        if self.schema is not None:
            return self.schema
        return {
            "type": "object",
            "properties": {argument.name: {"type": "string"} for argument in self.arguments},
            "required": [argument.name for argument in self.arguments if argument.required],
            "additionalProperties": False,
        }

    @property
    def fields(self) -> dict[str, object]:
        """The prompt as MCP lists it, without its name."""
        listed: dict[str, object] = {}
        if self.title:
            listed["title"] = cleaned_description(self.title)
        if self.description:
            listed["description"] = cleaned_description(self.description)
        if self.arguments:
            listed["arguments"] = [_argument_object(argument) for argument in self.arguments]
        return listed


def _argument_object(argument: PromptArgument) -> dict[str, object]:
    described = {"description": cleaned_description(argument.description)} if argument.description else {}
    return {"name": argument.name, **described, "required": argument.required}


def check_completions(owner: str, completions: Mapping[str, Completion], names: Sequence[str]) -> None:
    """Raise `InvalidDefinition` for completions of an argument that is not among `names`."""
    for name in completions:
        if name not in names:
            known = ", ".join(map(repr, names)) or "none"
            raise InvalidDefinition(f"{owner}: completions of {name!r}, which is no argument; there are {known}")


MAX_URI_BYTES = 2_048
_EXPRESSION = re.compile(r"\{([^{}]*)\}")
# Two of the operators of RFC 6570: the others (`?`, `;`, `.`) have no use in the URI of a resource.
_VARIABLE = re.compile(r"\+?([A-Za-z_][A-Za-z0-9_]*)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource of a provider, as `FunctionProvider.resources` returns it; `@resource` makes one of a method.

    * `uri`: its URI; with variables (`notes://{id}`) it is a template, of all resources whose URI matches
    * `read`: returns the content for the variables, as `@resource` describes; `async def` or a plain `def`
    * `name`: a short name, by default the end of the URI
    * `title`, `description`: texts for people
    * `mime_type`: by default that of what `read` returns
    * `size`: the number of bytes, None if it is not known
    * `completions`: by variable, the values that clients may suggest

    A variable `{name}` is one segment of a path, `{+name}` any number of them. Raises `InvalidDefinition` for an
    invalid URI or variable.

    ```python
    from toolplug import Resource

    motto = Resource(uri="notes://motto", read=lambda variables, context: "Write it down.")
    ```
    """

    uri: str
    read: Callable[[Mapping[str, object], CallContext], object]
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None
    completions: Mapping[str, Completion] = field(default_factory=lambda: NO_COMPLETIONS)

    def __post_init__(self) -> None:
        check_uri(self.uri)
        check_completions(f"resource {self.uri!r}", self.completions, self.variables)

    @property
    def variables(self) -> list[str]:
        """The names of the variables in the URI; none of a resource that is no template."""
        return [_VARIABLE.fullmatch(part)[1] for part in _EXPRESSION.findall(self.uri)]  # type: ignore[index]

    @property
    def fields(self) -> dict[str, object]:
        """The resource, or template, as MCP lists it."""
        listed: dict[str, object] = {
            "uriTemplate" if self.variables else "uri": self.uri,
            "name": self.name or _last_part(self.uri),
        }
        texts = {"title": self.title, "description": self.description, "mimeType": self.mime_type}
        listed |= {key: cleaned_description(text) for key, text in texts.items() if text}
        if self.size is not None and not self.variables:
            listed["size"] = self.size
        return listed


def _last_part(uri: str) -> str:
    parts = urlsplit(uri)
    return next((part for part in reversed(f"{parts.netloc}{parts.path}".split("/")) if part), uri)


def check_uri(uri: str) -> None:
    """Raise `InvalidDefinition` unless this is the URI, or the URI template, of a resource."""
    # `replace`: a lone surrogate is caught below with its own text, not by the encoder.
    if not _SCHEME.match(uri) or len(uri.encode(errors="replace")) > MAX_URI_BYTES or re.search(r"\s", uri):
        raise InvalidDefinition(
            f"{uri[:200]!r} is no URI of a resource; write a scheme, a colon and at most {MAX_URI_BYTES} bytes in all "
            "without spaces, such as 'notes://today'"
        )
    if (hidden := hidden_character(uri)) is not None:
        raise InvalidDefinition(f"the URI {uri!r} has the invisible character {hidden}")
    names = [_VARIABLE.fullmatch(part) for part in _EXPRESSION.findall(uri)]
    if None in names or re.search("[{}]", _EXPRESSION.sub("", uri)):
        raise InvalidDefinition(f"the URI template {uri!r} has a variable that is neither {{name}} nor {{+name}}")
    if len({name[1] for name in names if name is not None}) < len(names):
        raise InvalidDefinition(f"the URI template {uri!r} has a variable twice")


_PAGE_ID = re.compile(r"[a-z][a-z0-9-]{0,39}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolePage:
    """A page of the console: a table of what a `GET` route of the plugin answers, as the hook `console_pages` gives it.

    * `id`: its place in the address of the console; a lower-case letter, then up to 39 of a-z 0-9 -
    * `title`, `text`: its name in the navigation, and a sentence about it
    * `path`: the route, without the `mount` of the entry; it answers a JSON object
    * `rows`: the field of the object that has the list of rows; `columns`: the fields of a row that are shown, in order
    * `scope`: what a visitor needs; without it the page is left out

    Raises `InvalidDefinition` for an invalid id or path, and without columns.

    ```python
    from toolplug import ConsolePage

    notes = ConsolePage(id="notes", title="Notes", path="/v1/notes", rows="notes", columns=("when", "text"))
    ```
    """

    id: str
    title: str
    path: str
    rows: str
    columns: tuple[str, ...]
    text: str = ""
    scope: str = "tools:call"

    def __post_init__(self) -> None:
        if not _PAGE_ID.fullmatch(self.id):
            raise InvalidDefinition(f"the id of a console page is like `call-log`, not {self.id!r}")
        if not self.path.startswith("/"):
            raise InvalidDefinition(f"console page {self.id!r}: the path begins with /, and is {self.path!r}")
        if not self.columns or isinstance(self.columns, str):
            raise InvalidDefinition(f"console page {self.id!r}: columns are one or more names of fields")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsetLink:
    """What the file says of a toolset with another source: `from: KIND:ADDRESS`, and its key.

    * `toolset`: the id of the toolset
    * `address`: what follows the kind and the colon
    * `api_key`: None if the file sets none
    * `host`: the id of this host, which the sources of other hosts use to detect loops

    ```python
    from contextlib import asynccontextmanager

    from toolplug import FunctionProvider, ToolsetLink

    class Shelves(FunctionProvider):
        "Toolsets of the file can say `from: shelf:ADDRESS`."

        def toolset_sources(self):
            return {"shelf": self.open_shelf}

        @asynccontextmanager
        async def open_shelf(self, link: ToolsetLink):
            self.log.info("toolset %s is at %s", link.toolset, link.address)
            yield ...  # a ToolsetSource
    ```
    """

    toolset: str
    address: str
    api_key: SecretStr | None = None
    host: str = ""


class ToolsetSource(Protocol):
    """An open source of the tools of one toolset.

    ```python
    import asyncio

    from toolplug import CallContext, ToolCall, ToolResult, ToolsetSource

    class Fixed(ToolsetSource):
        def tools(self):
            return [{"name": "ping", "description": "Answer.", "inputSchema": {"type": "object"}}]

        def hosts(self, tool):
            return ()

        def problem(self):
            return None

        async def execute(self, call, context):
            return ToolResult(output="pong")

        def on_change(self, changed):
            pass  # its tools never change

    assert asyncio.run(Fixed().execute(ToolCall("1", "ping"), CallContext())).output == "pong"
    ```
    """

    def tools(self) -> Sequence[Mapping[str, object]]:
        """Return the tools that are known now, without I/O, in listing order; each as MCP has it.

        The host cleans the definitions like those of an MCP server.
        """
        ...

    def hosts(self, tool: str) -> tuple[str, ...]:
        """Return the ids of the hosts between this one and a tool, the nearest first; empty if there is none."""
        ...

    def problem(self) -> str | None:
        """Return why its tools cannot be called now, None if they can; those that it lists are then stale."""
        ...

    async def execute(self, call: ToolCall, context: CallContext) -> ToolResult:
        """Run one call of a tool by the source's own name. Raises `ToolError` and `ToolUnavailable`."""
        ...

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` on the event loop each time after what `tools` or `hosts` returns has changed."""
        ...


OpenToolsetSource = Callable[[ToolsetLink], AbstractAsyncContextManager[ToolsetSource]]
"""Opens a source. A source that cannot be reached at first opens nevertheless, and lists its tools later."""
