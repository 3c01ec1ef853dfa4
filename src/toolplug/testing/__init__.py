"""Testing tools for authors of providers and hosts."""

from toolplug.testing.exports import NAMES as __all__  # noqa: F401, N811  read by `import *`
from toolplug.testing.exports import list_names as __dir__  # noqa: F401  asked by `dir()` (PEP 562)
from toolplug.testing.exports import load as __getattr__  # noqa: F401  asked for each public name (PEP 562)
