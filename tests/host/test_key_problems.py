"""Keys with scopes that nothing asks for, with unknown agents, and with holders that nobody can tell apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.host.conftest import Package

from toolplug import FunctionProvider, open_host, route
from toolplug.errors import ConfigError
from toolplug.host.file.configuration import read_configuration
from toolplug.packages.entry_points import find_installed

pytestmark = pytest.mark.requirement("C-2-key-names")

Write = Callable[[str], Path]
NOTES = """
    from toolplug import BoundRoute, FunctionProvider, route

    class Notes(FunctionProvider):
        @route("GET", "/v1/notes", scope="notes:read")
        async def listed(self, request):
            return []

    def made(key, config):
        return Notes()

    class Bound(FunctionProvider):
        def routes(self):
            return [BoundRoute("GET", "/v1/bound", self.listed, scope="bound:read")]

        async def listed(self, request):
            return []
"""


@pytest.fixture(autouse=True)
def notes(package: Package) -> None:
    package(
        "toolplug-notes",
        {"notes": "keyed_notes:Notes", "made": "keyed_notes:made", "bound": "keyed_notes:Bound"},
        keyed_notes=NOTES,
    )
    package("toolplug-broken", {"broken": "keyed_broken:Broken"}, keyed_broken="raise RuntimeError")


def problems(path: Path) -> list[str]:
    try:
        read_configuration(path, {}, find_installed())
    except ConfigError as error:
        return [str(problem).removeprefix(str(path.parent) + "/") for problem in error.problems]
    return []


def with_key(providers: str, **members: str) -> str:
    key = ", ".join(f"{name}: {value}" for name, value in {"key": "k", "subject": "ann", **members}.items())
    return f"""\
auth:
  api_keys:
    - {{{key}}}
providers: {providers}
agents: {{researcher: {{}}, writer: {{}}}}
"""


def test_unknown_scopes_and_agents_are_errors_with_the_nearest_name(config: Write) -> None:
    scopes = "[tools:read, tool:call, notes:reed, operater]"
    text = with_key("{notes: {enabled: true}}", scopes=scopes, agents="[reseacher, writer]")
    unknown = "neither the host nor a route of an enabled provider asks for the scope"
    assert problems(config(text)) == [
        f"providers.yaml:3:51: auth.api_keys[0].scopes[1]: {unknown} 'tool:call' (nearest: 'tools:call')",
        f"providers.yaml:3:62: auth.api_keys[0].scopes[2]: {unknown} 'notes:reed' (nearest: 'notes:read')",
        f"providers.yaml:3:74: auth.api_keys[0].scopes[3]: {unknown} 'operater' (nearest: 'operator')",
        "providers.yaml:3:94: auth.api_keys[0].agents[0]: there is no agent 'reseacher' under agents "
        "(nearest: 'researcher')",
    ]


@pytest.mark.parametrize(
    ("providers", "known"),
    [
        ("{notes: {enabled: true}}", True),
        ("{notes: {enabled: false}}", False),
        ("{}", False),
        ("{made: {enabled: true}}", True),
        ("{broken: {enabled: true, required: false}}", True),
    ],
    ids=["enabled", "disabled", "none", "only a start can tell", "it does not load"],
)
def test_the_scope_of_a_route_is_known_while_its_provider_is_enabled(
    config: Write, providers: str, known: bool
) -> None:
    assert (problems(config(with_key(providers, scopes="['notes:read']"))) == []) is known


def test_the_scope_of_a_bound_route_may_be_given_and_others_are_still_checked(config: Write) -> None:
    scopes = "['bound:read', 'tools:raed', 'operater']"
    found = problems(config(with_key("{bound: {enabled: true}}", scopes=scopes)))
    assert [problem.partition("scopes[")[2][0] for problem in found] == ["1", "2"]


@pytest.mark.parametrize("name", ["''", "' '", "'ann '", '"a\\0n"', '"a\\u202en"', '"\\u3164"', "a" * 257])
def test_a_holder_whose_name_nobody_can_tell_from_another_is_an_error(config: Write, name: str) -> None:
    for field in ("subject", "tenant"):
        found = problems(config(with_key("{}", **{field: name})))
        assert len(found) == 1, found
        assert f"auth.api_keys[0].{field}" in found[0]


class Coded(FunctionProvider):
    """A provider of the host's own code."""

    @route("GET", "/v1/coded", scope="coded:read")
    async def read(self, request: object) -> dict[str, object]:
        """Read."""
        return {}


@pytest.mark.mcp
@pytest.mark.anyio
async def test_what_the_hosts_code_adds_counts() -> None:
    key = {"key": "k", "subject": "ann", "scopes": ["coded:read"], "agents": ["bot"]}
    given = {"store": "memory://", "auth": {"api_keys": [key]}}
    host = open_host(given, environ={}, providers={"coded": Coded()})
    host.register_mcp_toolset("far", "far", {"url": "http://127.0.0.1:9/mcp"}, allow_for=["bot"])
    async with host:
        assert host.settings.auth is not None
    with pytest.raises(ConfigError, match="coded:read"):
        async with open_host(given, environ={}):
            raise AssertionError("it must not start")


def test_a_newcomers_shapes_of_a_file_are_told_the_right_one(config: Write) -> None:
    assert problems(config("providers: [notes]")) == [
        "providers.yaml:1:12: providers: should be a mapping from provider key to settings (write each without a dash,"
        " as NAME: {…})"
    ]
    assert problems(config("store: state.db")) == [
        "providers.yaml:1:8: store: a URL without a scheme; known: memory://, sqlite:///./state.db,"
        " sqlite:////var/lib/state.db"
    ]
