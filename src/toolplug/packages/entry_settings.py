"""The provider's own settings in an entry, checked by its Config model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice

from toolplug.config.document import Section
from toolplug.config.masking import mask_secrets
from toolplug.config.problems import Shapes, key_hint, read_secret_files, secrets_of, validate_section
from toolplug.config.yaml_tree import MAX_PROBLEMS, Value
from toolplug.errors import ConfigError, Problem
from toolplug.packages.loading import ProviderType
from toolplug.providers.entry import ProviderEntry


def configure_entry(
    entry: ProviderEntry, own: Section, loaded: ProviderType, host_keys: Mapping[str, Shapes], problems: list[Problem]
) -> ProviderEntry:
    """Return the entry with the provider's own settings, checked by its Config model if it has one.

    `host_keys` are the host's keys at the same place of the file, to suggest where one of them is misspelt.
    """
    model = loaded.config
    if model is None:
        problems.extend(own.problems)
        problems.extend(islice(_wrong_without_model(own, loaded, host_keys), MAX_PROBLEMS))
        return replace(entry, settings=mapping_of(own.value))
    own = read_secret_files(own, model)
    secrets = secrets_of(own, model)
    try:
        config = validate_section(own, model, host_keys)
    except ConfigError as error:
        problems.extend(error.problems)
        return entry
    except (Exception, SystemExit) as error:  # noqa: BLE001  a validator is the package's own code
        said = mask(secrets, f"{type(error).__name__}: {error}")
        message = f"the Config of {loaded.installed.package} raised {said}; only a ValueError says what is wrong"
        hint = f"change the settings, or update {loaded.installed.distribution}"
        problems.append(entry.problem("config_invalid", message, hint))
        return entry
    return replace(entry, settings=config, masked=partial(mask, secrets))


def _wrong_without_model(own: Section, loaded: ProviderType, host_keys: Mapping[str, Shapes]) -> Iterator[Problem]:
    """Yield a problem for each setting of a provider without a Config model; `host_keys` are the host's keys."""
    if not isinstance(own.value, dict):
        yield own.problem(own.path, code="wrong_value", message="should be a mapping of settings")
    elif not loaded.open_settings:
        for name in own.value:
            message = f"unknown key {name!r}; {loaded.installed.package} takes no settings"
            hint = key_hint(name, host_keys)
            yield own.problem((*own.path, name), code="unknown_key", message=message, hint=hint, at_key=True)


def mask(secrets: frozenset[str], text: str) -> str:
    """Return the text without these secrets."""
    return mask_secrets(text, secrets)


def mapping_of(value: Value) -> dict[str, Value]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}
