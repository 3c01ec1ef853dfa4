"""An issuer in memory, behind the product's HTTP client: it rotates refresh tokens, fails, and judges its callers."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple
from urllib.parse import parse_qsl

import httpx2
from tests.virtual_time import virtual_clock

from toolplug.parts.credentials.exchange import GRANT
from toolplug.parts.credentials.oauth import ASK_S, EARLY_S, JUST_S

ISSUER = "https://issuer.example"
SLACK_S = 10.0
"""What lies between two looks at one thing, of the issuer and of a host: a few trips."""
THINKS_S = 2.0
"""What an exchange may take at the issuer."""
FAULTS = ("down", "lost", "slow", "refused", "garbled")
_CODE = "code-of-"


class User(NamedTuple):
    """A user of a tenant, and by which client and scopes it comes."""

    subject: str
    tenant: str
    client: str = ""


@dataclass(eq=False)
class Family:
    """All that comes of one sign-in. `lost`: an answer did not arrive. `spoiled`: it may cost a sign-in."""

    user: User
    server: str
    number: int
    life_s: float | None
    refreshes: bool = True
    access: str = ""
    refresh: str = ""
    expires_at: float = 0.0
    renewed_at: float = 0.0
    refused: bool = False
    revoked: bool = False
    lost: bool = False
    spoiled: bool = False
    asking: int = 0
    used: set[str] = field(default_factory=set[str])

    @property
    def is_good(self) -> bool:
        """Whether its user need not sign in: nothing was lost, and it is renewed or has not ended."""
        return not self.spoiled and (self.refreshes or virtual_clock() < self.expires_at)

    def rotate(self) -> None:
        """Give new tokens."""
        self.used.add(self.refresh)
        number = len(self.used)
        self.access, self.refresh = f"access-{self.number}-{number}", f"refresh-{self.number}-{number}"
        self.refused = False
        self.renewed_at = virtual_clock()
        self.expires_at = virtual_clock() + (self.life_s or 1e9)


class Exchanged(NamedTuple):
    """A token for a JWT: when both end, when a host asked for it, and when it was made."""

    user: User
    access: str
    ends_at: float
    jwt_ends_at: float
    sent_at: float
    asked_at: float


class Issuer:
    """The issuer of all servers. `report` is told of what must not happen, `failing` is the part of faulty answers."""

    def __init__(self, numbers: Random, report: Callable[[str], None], failing: float) -> None:
        self._numbers = numbers
        self._report = report
        self._failing = failing
        self.families: list[Family] = []
        self.codes: dict[str, Family] = {}
        self.refreshes = 0
        self.exchanges: list[User] = []
        self.exchanged: dict[str, Exchanged] = {}
        self.exchanging: dict[User, int] = {}
        self._by_access: dict[str, Family] = {}
        self._by_refresh: dict[str, Family] = {}

    def sign_in(self, user: User, server: str) -> str:
        """Return the code of a sign-in."""
        life_s = self._numbers.choice([15.0, 40.0, 90.0, 600.0, 3600.0, None])
        family = Family(user, server, len(self.families), life_s, refreshes=self._numbers.random() < 0.9)
        self.families.append(family)
        code = f"{_CODE}{family.number}"
        self.codes[code] = family
        return code

    def give(self, family: Family) -> tuple[str, str]:
        """Return new tokens of a sign-in, as an answer has them."""
        family.rotate()
        self._tokens(family)
        return family.access, family.refresh

    def family_of(self, access: str) -> Family | None:
        """Return of which sign-in a token is."""
        return self._by_access.get(access)

    def takes(self, access: str) -> bool:
        """Return whether a server takes the token now; one that it does not take is refused to whoever shows it."""
        family = self._by_access.get(access)
        if family is None:
            given = self.exchanged.get(access)
            return given is not None and virtual_clock() < given.ends_at
        holds = not family.revoked and family.access == access and virtual_clock() < family.expires_at
        if not holds and family.access == access:
            family.refused = True
        return holds

    def expire(self, user: User, server: str) -> None:
        """End the access tokens of a user before their time."""
        for family in self.families:
            if (family.user, family.server) == (user, server) and not family.revoked:
                family.expires_at = min(family.expires_at, virtual_clock())
                if virtual_clock() - family.renewed_at < JUST_S + ASK_S + SLACK_S and len(family.used) > 1:
                    family.spoiled = True  # refused so soon after its renewal: its user has to sign in

    async def answer(self, request: httpx2.Request, sent_at: float) -> httpx2.Response:
        """Answer a request that a host has sent at this time, or fail."""
        form = dict(parse_qsl((await request.aread()).decode()))
        if request.url.path == "/revoke":
            family = self._by_refresh.get(form["token"]) or self._by_access.get(form["token"])
            # One that ends only what holds: a former token revokes nothing (RFC 7009, section 2.2).
            if family is not None and form["token"] in {family.refresh, family.access}:
                family.revoked = True
            return httpx2.Response(200)
        fault = self._numbers.choice(FAULTS) if self._numbers.random() < self._failing else ""
        match form["grant_type"]:
            case "authorization_code":
                family = self.codes.pop(form["code"])
                family.rotate()
                return self._tokens(family)
            case "refresh_token":
                return await self._refresh(form["refresh_token"], fault)
            case _:
                assert form["grant_type"] == GRANT
                return await self._exchange(form, fault, sent_at)

    async def _refresh(self, shown: str, fault: str) -> httpx2.Response:
        family = self._by_refresh[shown]
        if family.asking:
            self._report(f"{family.user}: two renewals at once")
        family.asking += 1
        try:
            return await self._rotate(family, shown, fault)
        finally:
            family.asking -= 1

    async def _rotate(self, family: Family, shown: str, fault: str) -> httpx2.Response:
        if fault == "down":
            return httpx2.Response(503)
        if family.revoked:
            return httpx2.Response(400, json={"error": "invalid_grant"})
        if shown in family.used:
            if not family.lost:
                self._report(f"{family.user}: a used refresh token was shown again")
            family.revoked = family.spoiled = True
            return httpx2.Response(400, json={"error": "invalid_grant"})
        if not family.refused and family.expires_at - virtual_clock() > EARLY_S + SLACK_S:
            self._report(f"{family.user}: a token was renewed that nobody has refused")
        if fault == "refused":
            family.spoiled = True
            return httpx2.Response(400, json={"error": "invalid_grant"})
        self.refreshes += 1
        family.rotate()
        answer = self._tokens(family)
        if fault:
            family.lost = family.spoiled = True
        await self._lose(fault)
        return answer if fault != "garbled" else httpx2.Response(200, text="<html>")

    async def _exchange(self, form: Mapping[str, str], fault: str, sent_at: float) -> httpx2.Response:
        user, jwt_ends_at = read_jwt(form["subject_token"])
        place = user  # of all hosts
        if self.exchanging.get(place):
            self._report(f"{user}: two exchanges at once")
        self.exchanging[place] = 1
        try:
            if fault == "down":
                return httpx2.Response(503)
            if fault == "refused":
                return httpx2.Response(400, json={"error": "invalid_request"})
            await asyncio.sleep(self._numbers.choice((0.0, THINKS_S)))  # and its user may disconnect
            self.exchanges.append(user)
            life_s = self._numbers.choice([20.0, 300.0, 3600.0])
            access = f"exchanged-{len(self.exchanges)}"
            given = Exchanged(user, access, virtual_clock() + life_s, jwt_ends_at, sent_at, virtual_clock())
            self.exchanged[access] = given
            await self._lose(fault)
            answer = {"access_token": access, "token_type": "Bearer", "expires_in": life_s}
            return httpx2.Response(200, json=answer) if fault != "garbled" else httpx2.Response(200, text="<html>")
        finally:
            self.exchanging[place] = 0

    async def _lose(self, fault: str) -> None:
        if fault == "lost":
            raise httpx2.ReadError("the answer is lost")
        if fault == "slow":
            await asyncio.sleep(ASK_S + SLACK_S)

    def _tokens(self, family: Family) -> httpx2.Response:
        self._by_access[family.access] = family
        answer: dict[str, object] = {"access_token": family.access, "token_type": "Bearer"}
        if family.life_s is not None:
            answer["expires_in"] = int(family.life_s)
        if family.refreshes:
            self._by_refresh[family.refresh] = family
            answer["refresh_token"] = family.refresh
        return httpx2.Response(200, json=answer)


def make_jwt(user: User, ends_at: float) -> str:
    """Return the JWT by which a user was let in; its signature was verified then."""
    claims = {"iss": ISSUER, "sub": user.subject, "tenant": user.tenant, "azp": user.client, "exp": ends_at}
    parts = (b"{}", json.dumps(claims).encode(), b"s")
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def read_jwt(text: str) -> tuple[User, float]:
    """Return whose a JWT is, and when it ends."""
    payload = text.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return User(claims["sub"], claims["tenant"], claims["azp"]), claims["exp"]
