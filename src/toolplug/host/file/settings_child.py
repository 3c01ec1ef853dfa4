"""The settings of one installed provider type as JSON Schema, in a process of its own.

`python -m toolplug.host.file.settings_child TYPE` imports the package and writes one JSON object to stdout: `model`
(absent if the provider has none), `open` (whether other keys are accepted), `error` (why there is no answer). What the
package prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys

from pydantic.errors import PydanticUserError

from toolplug.errors import ProviderError
from toolplug.providers.entry_points import find_installed
from toolplug.providers.loading import load


def main(type_name: str) -> None:
    """Write the answer and exit at once, even if the package has started threads."""
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
        model = loaded.config
        if model is None:
            return {"open": loaded.open_settings}
        return {"model": model.model_json_schema(), "open": model.model_config.get("extra") in ("allow", "ignore")}
    except (ProviderError, PydanticUserError) as error:
        return {"error": str(error)}


if __name__ == "__main__":
    main(sys.argv[1])
