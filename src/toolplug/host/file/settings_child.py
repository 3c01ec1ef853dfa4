"""The settings of one installed provider type as JSON Schema, taken in a process of its own.

`python -m toolplug.host.file.settings_child TYPE` imports the package and writes one JSON object to stdout: `model`
(absent where there is none), `open` (are other keys taken), `error` (why there is no answer). What the package prints
goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys

from pydantic.errors import PydanticUserError

from toolplug.errors import ProviderError
from toolplug.providers.entry_points import installed
from toolplug.providers.loading import load


def main(type_name: str) -> None:
    """Answer, and end at once: whatever threads the package has begun."""
    answer = os.dup(1)
    os.dup2(2, 1)
    os.write(answer, json.dumps(settings_of(type_name)).encode())
    os.close(answer)
    os._exit(0)


def settings_of(type_name: str) -> dict[str, object]:
    """What the type's entry may hold beside the host's own keys."""
    packages = installed().types.get(type_name, ())
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
