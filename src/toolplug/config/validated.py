"""A section as a model has it, or everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from toolplug.config.problems import problems_of
from toolplug.config.section import Section
from toolplug.errors import ConfigError

_Model = TypeVar("_Model", bound=BaseModel)


def validated(section: Section, model: type[_Model], also_known: Collection[str] = ()) -> _Model:
    """The section as its model has it; raises `ConfigError` with what the model and the section itself say.

    Keys that the model does not know are refused unless it says otherwise itself; `also_known` are keys beside its own,
    among which the nearest of an unknown one is looked for, too.
    """
    try:
        valid = model.model_validate(
            section.value,
            extra=None if "extra" in model.model_config else "forbid",
            context={"config_dir": section.document.folder},
        )
    except ValidationError as error:
        found = problems_of(error, section=section, model=model, also_known=also_known)
        raise ConfigError([*section.problems, *found]) from None
    if section.problems:
        raise ConfigError(section.problems)
    return valid
