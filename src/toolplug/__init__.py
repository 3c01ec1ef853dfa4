"""A plugin framework for the tools that language models call."""

from toolplug.exports import NAMES as __all__  # noqa: F401, N811  read by `import *`
from toolplug.exports import list_names as __dir__  # noqa: F401  asked by `dir()` (PEP 562)
from toolplug.exports import load as __getattr__  # noqa: F401  asked for each public name (PEP 562)
