"""Coverage-guided fuzzing of the configuration reader: `python tests/fuzz/fuzz_yaml.py -atheris_runs=20000`.

Whatever the bytes are, they become a document of bounded depth and weight or a ConfigError with problems.
"""

from __future__ import annotations

import resource
import sys
import tempfile

import atheris

with atheris.instrument_imports(include=["toolplug.config", "yaml"]):
    from toolplug.config.document import expand, parse_document
    from toolplug.config.yaml_tree import MAX_DEPTH, MAX_EXPANDED_BYTES
    from toolplug.errors import ConfigError

# Bytes alone are rarely YAML: each input is read as it is, and once more with every byte standing for a token.
TOKENS = (
    *(
        "\n",
        "\n  ",
        "\n    ",
        " ",
        ": ",
        "- ",
        ", ",
        "[",
        "]",
        "{",
        "}",
        "? ",
        "<<: ",
        "*a",
        "*b",
        "&a ",
        "&b ",
        "!!str ",
    ),
    *(
        "!!int ",
        "!x ",
        "'",
        '"',
        "|\n",
        ">-\n",
        "#",
        "%",
        "---",
        "...",
        "\t",
        "\\u00e9",
        "$",
        "${URL}",
        "${URL:-",
        "$${",
    ),
    *("a", "b", "1", "010", "1e3", ".inf", "true", "null", "~", "\ufeff", "é", "\x85", "\x00", "\r"),
)
SEEDS = (
    b"providers:\n  web: {enabled: true, url: '${URL:-http://h}'}\n",
    b"a: &a [x]\nb: &b [*a, *a]\nc:\n  <<: {x: 1}\n",
    b"%YAML 1.2\n--- # c\na: !!int '3'\nb: |-\n  text\n? c\n: \"\\u00e9\"\n",
)

MAX_MEMORY_BYTES = 512 * 1024 * 1024
"""Of this process; a document that needs more fails with a MemoryError. It replaces `-rss_limit_mb`, which looks at the
peak of the process: that begins with the peak of the process that started this one."""


def read_any_bytes(data: bytes) -> None:
    """Fail on any exception but ConfigError, and on a document over its limits."""
    read(data)
    read("".join(TOKENS[byte % len(TOKENS)] for byte in data).encode())


def read(data: bytes) -> None:
    try:
        document = parse_document(data, file="fuzz.yaml")
    except ConfigError as error:
        if not error.problems:
            raise AssertionError("refused without a problem") from error
        return
    assert document.root.depth <= MAX_DEPTH
    assert document.root.weight <= MAX_EXPANDED_BYTES
    expanded = expand(document, (), {"URL": "http://h"})
    assert isinstance(expanded.value, dict)
    assert expanded.value.keys() == document.value.keys()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    for seed in SEEDS:
        read_any_bytes(seed)
    defaults = ["-rss_limit_mb=0", f"-artifact_prefix={tempfile.gettempdir()}/fuzz-yaml-"]
    atheris.Setup([sys.argv[0], *defaults, *sys.argv[1:]], read_any_bytes)
    atheris.Fuzz()
