"""Python functions as tools that an application lends, and the capabilities that it declares."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.alias_generators import to_camel

from toolplug.catalog.call import CallContext
from toolplug.catalog.definition import ToolDefinition, ToolHints
from toolplug.catalog.render import tool_annotations
from toolplug.errors import InvalidArguments, InvalidDefinition
from toolplug.signatures.annotations import Names, names_around
from toolplug.signatures.signature import read_function

CapabilityType = Literal["data_analysis", "visualization", "messaging", "storage", "computation"]
CapabilityLevel = Literal["basic", "advanced", "enterprise"]
"""In rising order."""


class _Sent(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    def wire(self) -> dict[str, JsonValue]:
        """Return the tool as it is sent in a registration."""
        return self.model_dump(mode="json", by_alias=True)


class Capability(_Sent):
    """A capability of the application; `resources` are its own JSON values, which the host stores unchanged.

    ```python
    from toolplug.client import Application, Capability

    application = Application(
        "http://127.0.0.1:8080",
        plugin_type="codap",
        capabilities=[Capability(type="data_analysis", level="advanced")],
    )
    ```
    """

    type: CapabilityType
    level: CapabilityLevel = "basic"
    resources: tuple[JsonValue, ...] = ()


class Environment(_Sent):
    """Where the application runs, for the session's metadata.

    ```python
    from toolplug.client import Application, Environment

    application = Application(
        "http://127.0.0.1:8080",
        plugin_type="codap",
        environment=Environment(version="3.1", features=("tables", "graphs")),
    )
    ```
    """

    version: str = ""
    features: tuple[str, ...] = ()
    limitations: tuple[str, ...] = ()
    context_info: dict[str, JsonValue] = {}


Function = Callable[..., object]
Definition = Mapping[str, object]
"""A tool as requests and events write it: `name`, `description`, `inputSchema` and what else it has."""


class Requirement(NamedTuple):
    """A capability that the application must have declared, at this level or higher.

    ```python
    from toolplug.client import Application, Requirement

    application = Application("http://127.0.0.1:8080", plugin_type="codap")

    @application.tool(requires=[Requirement("data_analysis", "advanced")])
    def fit(points: list[float]) -> float:
        "Return the mean of the points."
        return sum(points) / len(points)
    ```
    """

    type: CapabilityType
    level: CapabilityLevel


class Tool:
    """A function or bound method as a tool for a model; immutable.

    Its parameters become the schema and its docstring the descriptions, as for the tools of providers; a parameter
    annotated `CallContext` receives the context. `name`: replaces the function's name. `description`: replaces the
    docstring's text. `read_only`, `idempotent`, `destructive`: hints about its effects. `requires`: capabilities
    without which the host refuses it. `around`: the names that annotations may use besides those of the function's
    module, by default those of the caller. Raises `InvalidDefinition`, naming the function.

    ```python
    from toolplug.client import Tool

    def select(row: int) -> str:
        "Select a row of the table."
        return f"row {row}"

    lent = Tool(select, name="select_row", idempotent=True)
    assert lent.definition["inputSchema"]["required"] == ["row"]
    ```
    """

    __slots__ = ("_parameters", "_signature", "blocking", "definition", "function", "name")

    def __init__(
        self,
        function: Function,
        *,
        name: str | None = None,
        description: str | None = None,
        read_only: bool | None = None,
        idempotent: bool | None = None,
        destructive: bool | None = None,
        requires: Sequence[CapabilityType | Requirement] = (),
        around: Names | None = None,
    ) -> None:
        if not (inspect.isfunction(function) or inspect.ismethod(function)):
            raise InvalidDefinition(f"{function!r} is no function; lend a function, or a method of an object")
        place = function.__qualname__
        names = names_around(sys._getframe(1)) if around is None else around  # pyright: ignore[reportPrivateUsage]
        signature = read_function(function, place, names)
        try:
            listed = ToolDefinition(
                name=function.__name__ if name is None else name,
                description=signature.summary if description is None else description,
                parameters=signature.parameters,
                output_schema=signature.output,
                hints=ToolHints(read_only, idempotent, destructive),
            )
        except InvalidDefinition as error:
            raise InvalidDefinition(f"{place}: {error}") from None
        self.function: Function = function
        self.name: str = listed.name
        self.definition: Definition = _definition(listed, requires)
        # A decorator with `functools.wraps` may be a plain function that returns the coroutine of the one inside.
        self.blocking: bool = not inspect.iscoroutinefunction(inspect.unwrap(function))
        self._parameters = listed.parameters
        self._signature = signature

    def taken(self, arguments: Mapping[str, object], context: CallContext) -> dict[str, object]:
        """Convert the arguments for the function, by parameter. Raises `InvalidArguments`."""
        refusals = self._parameters.refusals(arguments)
        if refusals:
            raise InvalidArguments(refusals)
        convert, wanted = self._signature.convert, self._signature.context
        given = dict(arguments if convert is None else convert(arguments))
        if wanted is not None:
            given[wanted] = context
        return given

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"


def _definition(listed: ToolDefinition, requires: Sequence[CapabilityType | Requirement]) -> Definition:
    definition: dict[str, object] = {
        "name": listed.name,
        "description": listed.description,
        "inputSchema": listed.parameters.value,
    }
    if listed.output_schema is not None and listed.output_schema.value.get("type") == "object":  # MCP's rule for tools
        definition["outputSchema"] = listed.output_schema.value
    if hints := tool_annotations(listed.hints):
        definition["annotations"] = hints
    if requires:
        definition["requires"] = [item if isinstance(item, str) else item._asdict() for item in requires]
    return definition
