"""The values of a configuration with their origins, without secrets, and the differences between two configurations.

A value that refers to the environment is given as it is written: `${NAME}`. What comes from the environment or from a
secret file is never given.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeGuard, get_origin

import orjson
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from toolplug.config.document import Document, has_reference
from toolplug.config.masking import MASK, holds_credentials, looks_secret, without_credentials, without_secrets
from toolplug.config.problems import Shapes, is_secret, shapes_at, shapes_of
from toolplug.config.units import DEFAULT_ORIGIN
from toolplug.config.yaml_tree import KeyPath, ListNode, MappingNode, Node, ScalarNode, Value, shown_path, value_of
from toolplug.execution.resolved_limits import MostSpecific
from toolplug.host.file.configuration import Configuration
from toolplug.host.file.provider_entries import SECTION as PROVIDERS
from toolplug.host.file.settings import ProviderSettings, changed_sections
from toolplug.host.file.tool_servers import SECTION as SERVERS

ValueSource = Literal["file", "environment", "secret file", "default", "code", "runtime"]

MAX_TEXT = 2_000
"""Characters of one value."""

_DIGEST = 16
"""Hexadecimal digits."""
_FILE_SUFFIX = "_file"
# `$${NAME}` is the text `${NAME}`, no reference. One with a default is none here: its default may be a secret.
_REFERENCE = re.compile(r"(?<!\$)\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_NO_TEXTS = (bool, int, float, type(None))
_SECRET_KEYS = frozenset(("sha256",))
"""Keys with digests of secrets, from which a short secret could be found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredValue:
    """One value. `text` is what may be shown of it, `origin` its `file:line` or what else has set it.

    `written` is what the file has, to compare values with. It may be a secret and is not shown.
    """

    path: str
    text: str
    source: ValueSource
    origin: str
    secret: bool = False
    written: Value = field(default=None, repr=False)

    @property
    def is_configured(self) -> bool:
        """Whether the value is in a file, not a default."""
        return self.source in ("file", "environment", "secret file")


class ValueChange(NamedTuple):
    """A value that is in one of two configurations only, or differs. `before` and `after` are texts to be shown."""

    path: str
    kind: Literal["added", "removed", "changed"]
    before: str
    after: str
    origin: str


def configured_values(configuration: Configuration) -> Iterator[ConfiguredValue]:
    """Yield every value: providers, MCP servers, then the other sections; of each those of the file come first.

    Defaults that set nothing (null, an empty list) are left out. Of a disabled provider only the file is known.
    """
    entries = configuration.providers
    document = entries.document
    for key in document.keys((PROVIDERS,)):
        yield from _of_provider(configuration, key)
    for key, coded in entries.coded.items():
        origin = "the host's own code"
        yield ConfiguredValue(path=f"{PROVIDERS}.{key}", text=coded.entry.type, source="code", origin=origin)
    for name, file in configuration.servers.documents.items():
        path = (SERVERS, name)
        yield from _of_node(file, path, (configuration.servers.model,))
        if name in configuration.servers.servers:
            yield from _defaults(file, path, configuration.servers.model.model_construct())
    model = type(configuration.settings)
    for name in model.section_names():
        shapes = shapes_at((model,), name)
        if name in document.root.entries:
            yield from _of_node(document, (name,), shapes)
        yield from _default(document, (name,), getattr(configuration.settings, name), model.model_fields[name])


def value_changes(before: Configuration, after: Configuration) -> tuple[ValueChange, ...]:
    """Return the differences, in the order of the new configuration, then what it has no longer.

    Where a file or variable has changed that a value refers to, the nearest known path is `changed`.
    """
    old, new = _by_path(before), _by_path(after)
    found = [change for path, value in new.items() if (change := _change(old.get(path), value)) is not None]
    found += [
        ValueChange(path, "removed", value.text, new[path].text if path in new else "", value.origin)
        for path, value in old.items()
        if value.is_configured and (path not in new or not new[path].is_configured)
    ]
    changed = {item.path for item in found}
    for path in _unequal(before, after):
        if not any(each == path or each.startswith((f"{path}.", f"{path}[")) for each in changed):
            found.append(ValueChange(path, "changed", MASK, MASK, "a variable or a secret file that it refers to"))
    return tuple(found)


def configuration_digest(configuration: Configuration, key: bytes) -> str:
    """Return a digest of the values that the file sets, as they are written, in their order.

    Files of equal digests configure the same, but for what comes from the environment and from secret files. Without
    the `key` no secret can be found from it.
    """
    digest = hmac.new(key, digestmod="sha256")
    for value in configured_values(configuration):
        if value.is_configured:
            digest.update(f"{value.path}={value.written!r}\n".encode())
    return digest.hexdigest()[:_DIGEST]


def _by_path(configuration: Configuration) -> dict[str, ConfiguredValue]:
    return {value.path: value for value in configured_values(configuration)}


def _change(old: ConfiguredValue | None, new: ConfiguredValue) -> ValueChange | None:
    if not new.is_configured:
        return None
    if old is None or not old.is_configured:
        return ValueChange(new.path, "added", "" if old is None else old.text, new.text, new.origin)
    # `1 == True == 1.0` in Python, but not in a configuration.
    if old.written == new.written and type(old.written) is type(new.written):
        return None
    return ValueChange(new.path, "changed", old.text, new.text, new.origin)


def _unequal(before: Configuration, after: Configuration) -> Iterator[str]:
    """Yield the path of each section and of each provider's entry that differs once references are replaced."""
    for name in changed_sections(before.settings, after.settings):
        # One that only a plugin's part of the other configuration has differs in its defaults alone.
        if hasattr(before.settings, name) and hasattr(after.settings, name):
            yield name
    old = before.providers.wanted
    for key, item in after.providers.wanted.items():
        if key in old and old[key].entry.settings != item.entry.settings:
            yield shown_path((PROVIDERS, key))


def _of_provider(configuration: Configuration, key: str) -> Iterator[ConfiguredValue]:
    entries = configuration.providers
    document, path = entries.document, (PROVIDERS, key)
    loaded = entries.loaded.get(key)
    config = None if loaded is None else loaded.type.config
    own: Shapes = () if config is None else (config,)
    node = document.node(path)
    if not isinstance(node, MappingNode):
        return
    nested = "settings" in node.entries
    for name, entry in node.entries.items():
        if name == "settings":
            yield from _values(document, entry.node, (*path, name), own)
        else:
            yield from _member(document, entry.node, (*path, name), (ProviderSettings, *own))
    wanted = entries.wanted.get(key)
    if loaded is None or wanted is None:
        return
    yield from _defaults(document, path, ProviderSettings.model_construct())
    if isinstance(wanted.entry.settings, BaseModel):
        yield from _defaults(document, (*path, "settings") if nested else path, wanted.entry.settings)


def _of_node(document: Document, path: KeyPath, shapes: Shapes) -> Iterator[ConfiguredValue]:
    return _values(document, document.node(path), path, shapes)


def _values(document: Document, node: Node, path: KeyPath, shapes: Shapes) -> Iterator[ConfiguredValue]:
    """Yield the values below a node of the file; a list without mappings is one value."""
    if isinstance(node, MappingNode) and node.entries:
        for key, entry in node.entries.items():
            yield from _member(document, entry.node, (*path, key), shapes)
    elif isinstance(node, ListNode) and any(not isinstance(item, ScalarNode) for item in node.items):
        for index, item in enumerate(node.items):
            yield from _values(document, item, (*path, index), shapes_at(shapes, index))
    else:
        yield _value(document, node, path, shapes)


def _member(document: Document, node: Node, path: KeyPath, shapes: Shapes) -> Iterator[ConfiguredValue]:
    """Yield the values below one key of a mapping of these shapes."""
    key = str(path[-1])
    named, inner = key.removesuffix(_FILE_SUFFIX), shapes_at(shapes, key)
    if named != key and not inner and is_secret(shapes_at(shapes, named)):
        yield _value(document, node, path, (str,), source="secret file")
    else:
        yield from _values(document, node, path, inner)


def _value(
    document: Document, node: Node, path: KeyPath, shapes: Shapes, source: ValueSource = "file"
) -> ConfiguredValue:
    written = value_of(node)
    items = written if isinstance(written, list) else [written]
    if any(isinstance(item, str) and has_reference(item) for item in items):
        source = "environment"
    secret = source != "secret file" and _is_secret(path, written, shapes)
    return ConfiguredValue(
        path=shown_path(path),
        text=_mask(written) if secret else _show(path, written),
        source=source,
        origin=document.place(path),
        secret=secret,
        written=written,
    )


def _is_secret(path: KeyPath, written: object, shapes: Shapes) -> bool:
    inner = (*shapes, *shapes_at(shapes, 0))
    if is_secret(inner) or path[-1] in _SECRET_KEYS:
        return True
    return looks_secret(path) and bool(written) and not (shapes and all(map(_is_no_text, shapes)))


def _is_no_text(shape: object) -> bool:
    """Return whether a value of this type is a number, a choice or a mapping with known keys, whatever its key is."""
    is_model = isinstance(shape, type) and issubclass(shape, BaseModel)
    return shape in _NO_TEXTS or is_model or get_origin(shape) is Literal


def _mask(written: Value) -> str:
    """Return the mask, or the text if it is one reference without a default: `${NAME}`."""
    return written if isinstance(written, str) and _REFERENCE.fullmatch(written) else MASK


def _show(path: KeyPath, value: object) -> str:
    """Return a value as text, cut, with passwords in addresses and secret arguments masked."""
    if isinstance(value, str):
        text = value
        if "://" in text and (path != ("store",) or holds_credentials(text)):
            text = without_credentials(text)
    elif _is_texts(value):
        text = orjson.dumps(list(without_secrets(value))).decode()
    else:
        text = orjson.dumps(to_jsonable_python(value, fallback=repr, serialize_unknown=True)).decode()
        # Durations are floats: `30` in the file must not become `30.0`.
        text = text.removesuffix(".0") if isinstance(value, float) else text
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _is_texts(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in _items(value))


def _items(value: Any) -> Iterable[object]:
    return value


def _defaults(document: Document, path: KeyPath, model: BaseModel) -> Iterator[ConfiguredValue]:
    """Yield the values of a model that the file does not have."""
    for name, info in type(model).model_fields.items():
        yield from _default(document, (*path, info.alias or name), getattr(model, name, None), info)


def _default(document: Document, path: KeyPath, value: object, info: FieldInfo) -> Iterator[ConfiguredValue]:
    if isinstance(value, BaseModel):
        yield from _defaults(document, path, value)
    elif _has(document, path):
        pairs: Iterable[tuple[Any, object]] = ()
        if isinstance(value, Mapping):
            pairs = _items(value.items())  # type: ignore[assignment]
        elif isinstance(value, tuple):
            pairs = enumerate(_items(value))
        for key, item in pairs:
            if isinstance(item, BaseModel) and _has(document, (*path, key)):
                yield from _defaults(document, (*path, key), item)
    else:
        widest = [item.default for item in info.metadata if isinstance(item, MostSpecific)] if len(path) == 2 else []
        value = next(iter(widest), None) if value is None else value
        if value is not None and value not in ({}, [], (), ""):
            shapes = shapes_of(info.annotation)
            hidden = is_secret((type(value),)) or _is_secret(path, value, shapes)
            text = MASK if hidden else _show(path, value)
            yield ConfiguredValue(
                path=shown_path(path), text=text, source="default", origin=DEFAULT_ORIGIN, secret=hidden
            )


def _has(document: Document, path: KeyPath) -> bool:
    """Return whether the file has the value, or names a file for it."""
    *parents, last = path
    paths = (path, (*parents, f"{last}{_FILE_SUFFIX}")) if isinstance(last, str) else (path,)
    return any(document.origin_of(each) != DEFAULT_ORIGIN for each in paths)
