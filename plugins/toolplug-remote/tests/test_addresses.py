"""An address after `host:` that is no URL of a host is a problem of the configuration, before anything is started."""

from __future__ import annotations

import pytest

from toolplug.errors import ConfigError
from toolplug.host.file.configuration import read_configuration
from toolplug.packages.entry_points import find_installed

pytestmark = pytest.mark.requirement("I17-5-check")


def read(address: str) -> None:
    read_configuration({"toolsets": {"far": {"prefix": "far", "from": f"host:{address}"}}}, {}, find_installed())


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("tools.example.org", "followed by an http or https URL"),
        ("ftp://tools.example.org", "followed by an http or https URL"),
        ("https://user:secret@tools.example.org", "without credentials"),
        ("https://tools.example.org/#part", "without credentials and fragment"),
        ("https://tools.example.org:port", "followed by a URL"),
        ("https://tools.example.org?agents=a", "one parameter, agent"),
        ("https://tools.example.org?agent=a&agent=b", "one parameter, agent"),
    ],
)
def test_an_address_that_is_no_url_of_a_host_is_a_problem(address: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(address)
    (problem,) = caught.value.problems
    assert problem.path == "toolsets.far.from"
    assert said in problem.message
    assert "secret" not in str(problem)


@pytest.mark.parametrize("address", ["http://127.0.0.1:8080", "https://tools.example.org/below?agent=researcher"])
def test_a_url_with_or_without_an_agent_is_accepted(address: str) -> None:
    read(address)
