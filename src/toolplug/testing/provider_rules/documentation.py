"""Rules for what people and models read: parameters, routes, settings, and the README of the distribution."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from toolplug.catalog.exact_json import as_object
from toolplug.providers.authoring import RouteMark, marked_methods
from toolplug.providers.provider import config_model
from toolplug.testing.broken_rule import BrokenRule
from toolplug.testing.provider_rules.subject import Started


def documentation_rules(run: Started, readme: Path) -> list[BrokenRule]:
    """Check that every parameter, route and setting is described, and that the README names every setting."""
    return [*_parameters(run), *_routes(run), *_settings(run), *_in_readme(run, readme)]


def _parameters(run: Started) -> Iterator[BrokenRule]:
    for definition in run.registry.catalog.definitions():
        schema = definition.parameters.value
        for name in _find_undescribed(schema, as_object(schema.get("$defs"))):
            fix = "describe it under 'Args:' of the docstring, or with Field(description=…)"
            where = f"parameter {name!r} of tool {definition.name!r}"
            yield BrokenRule("descriptions", where, "has no description", fix)


def _find_undescribed(schema: Mapping[str, object], models: Mapping[str, object]) -> list[str]:
    """Return the properties without a description, which a model that one refers to may have as well."""
    properties = {name: as_object(each) for name, each in as_object(schema.get("properties")).items()}
    return [
        name
        for name, each in properties.items()
        if not any(str(found.get("description", "")).strip() for found in (each, _find_referred(each, models)))
    ]


def _find_referred(schema: Mapping[str, object], models: Mapping[str, object]) -> Mapping[str, object]:
    return as_object(models.get(str(schema.get("$ref")).removeprefix("#/$defs/")))


def _routes(run: Started) -> Iterator[BrokenRule]:
    provider = run.generation.provider
    handlers = {
        f"route {mark.method} {mark.path}": getattr(type(provider), attribute)
        for attribute, _, mark in marked_methods(type(provider), RouteMark)
    }
    handlers |= {f"route {each.path}": each.endpoint for each in provider.routes()}
    for where, handler in handlers.items():
        if not (inspect.getdoc(handler) or "").strip():
            yield BrokenRule("descriptions", where, "has no description", "write a docstring for its handler")


def _settings(run: Started) -> Iterator[BrokenRule]:
    model = _model(run)
    if model is None:
        return
    schema = model.model_json_schema()
    nested = as_object(schema.get("$defs"))
    for title, each in {model.__qualname__: schema, **nested}.items():
        for name in _find_undescribed(as_object(each), nested):
            fix = "write Field(description=…), which `toolplug providers` and the reference show"
            yield BrokenRule("descriptions", f"field {name!r} of {title}", "has no description", fix)


def _model(run: Started) -> type[BaseModel] | None:
    return config_model(type(run.generation.provider))


def _in_readme(run: Started, readme: Path) -> Iterator[BrokenRule]:
    try:
        text = readme.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        yield BrokenRule("readme", str(readme), f"cannot be read: {error}", "give the path of the README in readme=")
        return
    model = _model(run)
    for name in () if model is None else model.model_fields:
        if not re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text):
            fix = "list it with its default and meaning"
            yield BrokenRule("readme", readme.name, f"does not name the setting {name!r}", fix)
