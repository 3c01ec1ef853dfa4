"""A real OpenID provider at which people sign in, and two MCP servers that take its tokens, each in its own way."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any

import httpx2
from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.dependencies import get_access_token as token_of_fastmcp
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl
from tests.http.served import serving_apart
from tests.node.installed import PACKAGES, installed, node

PROGRAM = PACKAGES / "oidc" / "people.mjs"
CLIENT = {"client_id": "resource-server", "client_secret": "secret-of-the-resource-server-3b1f"}
OPERATOR = {"client_id": "operator", "client_secret": "secret-of-the-operator-77ac"}


class People:
    """The running issuer; `told` is what it has said of its tokens."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.url = url
        self.told: list[dict[str, Any]] = []
        assert process.stdout is not None
        while not process.stdout.readline().startswith('{"kind":"ready"'):
            assert process.poll() is None
        self._lines = process.stdout
        self._reader = Thread(target=self._read)
        self._reader.start()

    def of(self, kind: str) -> Sequence[Any]:
        """What it has said of one kind, in order."""
        return [each["value"] for each in self.told if each["kind"] == kind]

    def secrets(self) -> set[str]:
        """Every token and client secret that it has given."""
        fields = ("access_token", "refresh_token", "id_token", "client_secret", "registration_access_token")
        answers = [*self.of("given"), *self.of("registered")]
        return {answer[field] for answer in answers for field in fields if answer.get(field)}

    def operator_token(self, resource: str) -> str:
        """A token with which the tools of a server can be listed."""
        form = {"grant_type": "client_credentials", "scope": "read", "resource": resource}
        answer = httpx2.post(f"{self.url}/token", data=form, auth=(OPERATOR["client_id"], OPERATOR["client_secret"]))
        return str(answer.json()["access_token"])

    def join(self) -> None:
        """Wait for the end of its output."""
        self._reader.join()

    def _read(self) -> None:
        for line in self._lines:
            if line.startswith("{"):  # other lines are notices of the package
                self.told.append(json.loads(line))


@contextmanager
def people(port: int, *, jwt: Sequence[str], life_s: int, clients: Sequence[Mapping[str, Any]]) -> Iterator[People]:
    """Run the issuer at a port. `jwt` are the resources that get JWTs, `life_s` is the life of access tokens."""
    place = installed("oidc")
    (place / PROGRAM.name).write_bytes(PROGRAM.read_bytes())  # packages are looked for beside the program
    machine = {"grant_types": ["client_credentials"], "redirect_uris": [], "response_types": []}
    all_clients = [{**CLIENT, **machine}, {**OPERATOR, **machine}, *clients]
    given = json.dumps({"jwt": [*jwt], "life_s": life_s, "clients": all_clients})
    command = [str(node()), PROGRAM.name, str(port), given]
    process = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with process:
        issuer = People(process, f"http://127.0.0.1:{port}")
        try:
            yield issuer
        finally:
            process.terminate()
            issuer.join()


class Introspection:
    """Asks the issuer whose an opaque token is (RFC 7662), as the example server of the SDK does."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return whose the token is, and for which server; None for one that does not hold."""
        async with httpx2.AsyncClient() as http:
            auth = (CLIENT["client_id"], CLIENT["client_secret"])
            answer = await http.post(f"{self._issuer}/token/introspection", data={"token": token}, auth=auth)
        found = answer.json()
        if not found["active"]:
            return None
        return AccessToken(
            token=token,
            client_id=found["client_id"],
            scopes=found["scope"].split(),
            resource=found["aud"],
            subject=found.get("sub"),
        )


@contextmanager
def serving_sdk(issuer: str, port: int) -> Iterator[None]:
    """Serve a server of the SDK with an introspecting verifier."""
    resource = f"http://127.0.0.1:{port}/mcp"
    settings = AuthSettings(
        issuer_url=AnyHttpUrl(issuer),
        resource_server_url=AnyHttpUrl(resource),
        required_scopes=["read"],
        validate_token_resource=True,
    )
    server = MCPServer("jira", auth=settings, token_verifier=Introspection(issuer))

    @server.tool()
    async def whoami() -> str:
        """Say whose token it is."""
        token = get_access_token()
        return "nobody" if token is None else str(token.subject)

    with serving_apart(server.streamable_http_app(), port=port):
        yield


@contextmanager
def serving_fastmcp(issuer: str, port: int) -> Iterator[None]:
    """Serve a server of FastMCP that verifies JWTs by the keys of the issuer."""
    base = f"http://127.0.0.1:{port}"
    verifier = JWTVerifier(jwks_uri=f"{issuer}/jwks", issuer=issuer, audience=f"{base}/mcp", required_scopes=["read"])
    auth = RemoteAuthProvider(verifier, authorization_servers=[AnyHttpUrl(issuer)], base_url=base)
    server: FastMCP[Any] = FastMCP("wiki", auth=auth)

    @server.tool()
    async def whoami() -> str:
        """Say whose token it is."""
        token = token_of_fastmcp()
        return "nobody" if token is None else str(token.claims["sub"])

    with serving_apart(server.http_app(path="/mcp"), port=port):
        yield
