"""Provider packages for the tests of parts, as those of the host have them."""

from tests.host.conftest import config, package

__all__ = ["config", "package"]
