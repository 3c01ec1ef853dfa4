"""Tools as Python functions: one stub for each, with the types of its schemas as the checker reads them."""

from __future__ import annotations

import builtins
import json
import keyword
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import cast
from unicodedata import normalize

from toolplug import ToolDefinition
from toolplug_code_mode.limits import MAX_LITERALS, MAX_STUB_DEPTH, MAX_STUB_NODES, MAX_STUB_TEXT

HEAD = "from collections.abc import Mapping, Sequence\nfrom typing import Any, Literal, NotRequired, TypedDict\n"
"""What all stubs need; once, before them."""

EXPORTED_BY_HEAD = ["Any", "Literal", "Mapping", "NotRequired", "Sequence", "TypedDict"]

_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_TAKEN = frozenset({*dir(builtins), *keyword.kwlist, *EXPORTED_BY_HEAD, "__all__"})
"""Names that a script needs for something else."""

_Schema = Mapping[str, object]


def function_names(wires: Iterable[str]) -> dict[str, str]:
    """Return the names of functions with the wire name of each: that name, where Python allows it as it is."""
    names: dict[str, str] = {}
    # Those that need no change come first, so that no other tool takes a name from them.
    for wire in sorted(wires, key=lambda wire: (_python_name(wire) != wire, wire)):
        name = _python_name(wire)
        while name in names:
            name += "_"
        names[name] = wire
    return names


def _python_name(wire: str) -> str:
    name = wire.replace("-", "_")
    name = name if name.isidentifier() else f"_{name}"
    return f"{name}_" if name in _TAKEN else name


def stub_of(name: str, definition: ToolDefinition) -> str:
    """Return the function of a tool, after the types of its output."""
    output = None if definition.output_schema is None else definition.output_schema.text
    return _stub(name, definition.description, definition.parameters.text, output)


# By the texts: tools are listed anew at each reload and for each caller, with the same schemas.
@lru_cache(maxsize=10_000)
def _stub(name: str, description: str, parameters: bytes, output: bytes | None) -> str:
    given = cast("dict[str, object]", json.loads(parameters))
    result, declared = "Any", ()
    if output is not None:
        types = _Types(name, cast("dict[str, object]", json.loads(output)))
        result = types.of_output(types.root, 0)
        declared = tuple(types.declared)
    inputs = _Types(name, given)
    signature = f"async def {name}({_parameters(given, inputs)}) -> {result}:"
    return "\n".join([*declared, signature, f'    """{_docstring(description, given)}"""'])


def _parameters(schema: _Schema, types: _Types) -> str:
    properties, required = _mapping(schema.get("properties")), _names(schema.get("required"))
    named = {name: each for name, each in properties.items() if _is_name(name)}
    parts = [f"{name}: {types.of_input(each, 0)}{'' if name in required else ' = ...'}" for name, each in named.items()]
    # What Python cannot name is passed as `**{"from": 1}`.
    others = len(named) < len(properties) or schema.get("additionalProperties", True) is not False
    more = [f"**{'_' * (1 + max(map(len, named), default=0))}: Any"] if others else []
    return ", ".join([*(["*"] if parts else []), *parts, *more])


def _is_name(text: str) -> bool:
    # Python reads a name in its NFKC form, which is another property.
    return text.isidentifier() and not keyword.iskeyword(text) and normalize("NFKC", text) == text


def _docstring(description: str, schema: _Schema) -> str:
    about = [description.strip().partition("\n\n")[0]]
    for name, each in _mapping(schema.get("properties")).items():
        said = _mapping(each).get("description")
        about += [f"{name}: {' '.join(said.split())}"] if isinstance(said, str) else []
    text = "\n".join(about)[:MAX_STUB_TEXT]
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\n    ")


class _Types:
    """Writes the types of one schema; objects of an output become declared classes of their own."""

    def __init__(self, name: str, root: _Schema) -> None:
        self.root = root
        self.declared: list[str] = []
        self._name = name
        self._read = 0
        self._classes = 0

    def of_input(self, schema: object, depth: int) -> str:
        """Return the type of what a function takes: wide, as the tool itself checks its arguments."""
        return self._type(schema, depth, output=False)

    def of_output(self, schema: object, depth: int) -> str:
        """Return the type of what a function returns."""
        return self._type(schema, depth, output=True)

    def _type(self, given: object, depth: int, *, output: bool) -> str:
        self._read += 1
        schema = self._resolve(given)
        if not schema or depth > MAX_STUB_DEPTH or self._read > MAX_STUB_NODES:
            return "Any"
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list):
            return _literals(cast("list[object]", values))
        for key in ("anyOf", "oneOf"):
            if isinstance(choices := schema.get(key), list):
                return self._union([self._type(each, depth, output=output) for each in cast("list[object]", choices)])
        kind = schema.get("type")
        if isinstance(kind, list):
            kinds = cast("list[object]", kind)
            return self._union([self._type({**schema, "type": each}, depth, output=output) for each in kinds])
        if kind == "array":
            item = self._type(schema.get("items", True), depth + 1, output=output)
            return f"{'list' if output else 'Sequence'}[{item}]"
        if kind == "object":
            return self._object(schema, depth, output=output)
        return _SCALARS.get(str(kind), "Any")

    def _union(self, types: Sequence[str]) -> str:
        different = [*dict.fromkeys(types)]
        return "Any" if "Any" in different or not different else " | ".join(different)

    def _object(self, schema: _Schema, depth: int, *, output: bool) -> str:
        properties, more = _mapping(schema.get("properties")), schema.get("additionalProperties")
        if output and properties and more in (None, False):
            return self._class(properties, _names(schema.get("required")), depth)
        named = properties or not isinstance(more, Mapping)
        value = "Any" if named else self._type(cast("object", more), depth + 1, output=output)
        return f"{'dict' if output else 'Mapping'}[str, {value}]"

    def _class(self, properties: _Schema, required: frozenset[str], depth: int) -> str:
        self._classes += 1
        # The number comes before the name: no name of a function can make two of them equal.
        name = f"Result{'' if self._classes == 1 else self._classes}_{self._name}"
        types = {key: self._type(each, depth + 1, output=True) for key, each in properties.items()}
        types = {key: each if key in required else f"NotRequired[{each}]" for key, each in types.items()}
        if all(map(_is_name, types)):
            fields = [f"    {key}: {each}" for key, each in types.items()]
            self.declared.append("\n".join([f"class {name}(TypedDict):", *fields]))
        else:
            fields = [f"{key!r}: {each}" for key, each in types.items()]
            self.declared.append(f"{name} = TypedDict({name!r}, {{{', '.join(fields)}}})")
        return name

    def _resolve(self, given: object) -> _Schema:
        """Return the schema that a reference or a lone `allOf` stands for; empty for one that says nothing."""
        schema = _mapping(given)
        for _ in range(MAX_STUB_DEPTH):
            target, parts = schema.get("$ref"), schema.get("allOf")
            if isinstance(target, str):
                schema = self._target(target)
            elif isinstance(parts, list) and len(cast("list[object]", parts)) == 1:
                schema = _mapping(cast("list[object]", parts)[0])
            else:
                return schema
        return {}

    def _target(self, reference: str) -> _Schema:
        node: object = self.root if reference.startswith("#") else {}
        for part in filter(None, reference.removeprefix("#").split("/")):
            node = _mapping(node).get(part.replace("~1", "/").replace("~0", "~"))
        return _mapping(node)


def _literals(values: Sequence[object]) -> str:
    if 0 < len(values) <= MAX_LITERALS and all(value is None or isinstance(value, str | int) for value in values):
        return f"Literal[{', '.join(map(ascii, values))}]"
    kinds = {type(value).__name__ for value in values}
    return kinds.pop() if len(kinds) == 1 and kinds <= {"str", "int", "float", "bool"} else "Any"


def _mapping(value: object) -> _Schema:
    return cast("_Schema", value) if isinstance(value, Mapping) else {}


def _names(value: object) -> frozenset[str]:
    return frozenset(map(str, cast("list[object]", value))) if isinstance(value, list) else frozenset()
