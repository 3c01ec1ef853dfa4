"""The settings of one installed provider type as JSON Schema, in a process of its own.

`python -m toolplug.host.file.settings_child TYPE` imports the package and writes one JSON object to stdout: `model`
(absent if the provider has none), `open` (whether other keys are accepted), `sections` (those that its parts add to the
file, by name), `error` (why there is no answer). What the
package prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys

from pydantic.errors import PydanticUserError

from toolplug.errors import ProviderError
from toolplug.host.file.part_sections import plugin_parts
from toolplug.packages.entry_points import find_installed
from toolplug.packages.loading import ProviderType, load


def main(type_name: str) -> None:
    """Write the answer and exit at once, even if the package has started threads."""
    # Before the package is imported: what it prints, by `print` or to the descriptor, must not get into the answer.
    answer = os.dup(1)
    os.dup2(2, 1)
    os.write(answer, json.dumps(settings_of(type_name)).encode())
    os.close(answer)
    os._exit(0)


def settings_of(type_name: str) -> dict[str, object]:
    """Return the answer about the keys of the type's entry that are not the host's."""
    packages = find_installed().types.get(type_name, ())
    if len(packages) != 1:
        return {"error": f"{len(packages)} packages declare it"}
    try:
        loaded = load(packages[0])
        model, sections = loaded.config, _sections_of(loaded)
        if model is None:
            return {"open": loaded.open_settings, "sections": sections}
        is_open = model.model_config.get("extra") in ("allow", "ignore")
        return {"model": model.model_json_schema(), "open": is_open, "sections": sections}
    except (ProviderError, PydanticUserError) as error:
        return {"error": str(error)}


def _sections_of(loaded: ProviderType) -> dict[str, object]:
    """Return the schemas of the sections that the parts of a plugin add, by name; none of a part that is not valid."""
    try:
        parts = plugin_parts(loaded)
    except ProviderError:
        return {}
    return {part.name: part.settings.model_json_schema() for part in parts if part.settings is not None}


if __name__ == "__main__":
    main(sys.argv[1])
