"""The host of the matrix is that of the tests of `/v1/responses`."""

from tests.responses.conftest import desk_package, one_stage, shared_stage

__all__ = ["desk_package", "one_stage", "shared_stage"]
