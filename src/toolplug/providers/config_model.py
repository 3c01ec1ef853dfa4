"""The `Config` of a provider class: which model it is, and what a provider gets of it."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

from toolplug.errors import InvalidDefinition


def config_model(kind: object) -> type[BaseModel] | None:
    """The `Config` of a provider class, or of a function that makes providers; None where it has none.

    Raises `InvalidDefinition` for one that is no pydantic model.
    """
    model = getattr(kind, "Config", None)
    if model is None or (isinstance(model, type) and issubclass(model, BaseModel)):
        return model
    raise InvalidDefinition(f"Config of {kind!r} is no pydantic model; write `class Config(BaseModel)`")


def given_config(kind: type, config: object) -> object:
    """The config as it is; a mapping is read by the class's `Config`, extra keys forbidden unless it says otherwise."""
    model = config_model(kind)
    if model is None or not isinstance(config, Mapping):
        return config
    return model.model_validate(config, extra=None if "extra" in model.model_config else "forbid")


def default_config(provider: object) -> object:
    """What `config` is where nobody gave one: `Config()`, or None without a `Config`.

    Raises `InvalidDefinition` where the model asks for more.
    """
    kind = type(provider)
    model = config_model(kind)
    try:
        return None if model is None else model()
    except ValidationError as error:
        asked = ", ".join(str(item["loc"][0]) for item in error.errors() if item["loc"])
        raise InvalidDefinition(f"{kind.__qualname__} needs a config: give {asked} of its Config") from None
