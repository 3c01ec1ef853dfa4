"""Testing tools for authors of providers and hosts."""

from toolplug.testing.exports import NAMES as __all__  # noqa: F401, N811  read by `import *`
from toolplug.testing.exports import load as __getattr__  # noqa: F401  asked for each public name (PEP 562)
