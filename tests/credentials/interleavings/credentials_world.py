"""Users who connect, call and disconnect at two hosts at once, and what must be true of each call.

A round is one interleaving: some of these things at once, in an order that the seed decides, and then some time passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from tests.credentials.interleavings.hosts import (
    EXCHANGING,
    GRAPH,
    SERVERS,
    SIGNING_IN,
    ProcessDied,
    SimulatedHost,
)
from tests.credentials.interleavings.issuer import (
    ISSUER,
    SLACK_S,
    THINKS_S,
    Exchanged,
    Family,
    Issuer,
    User,
    make_jwt,
)
from tests.virtual_time import VirtualLoop, virtual_clock

from toolplug.catalog.call import SIGN_IN_NEEDED, CallContext, Credentials, Principal
from toolplug.errors import StoreError, ToolUnavailable
from toolplug.parts.credentials.exchange import ExchangedTokens
from toolplug.parts.credentials.issuers import SignInFailed
from toolplug.parts.credentials.oauth import CACHED_S, OAuthCredentials
from toolplug.parts.credentials.records import AskedSignIn, BegunSignIn, TokenRecords, UserTokens, user_key
from toolplug.stores.memory import MemoryStore
from toolplug.stores.store import name_digest

USERS = (User("ada", "t1"), User("ben", "t1"), User("ada", "t2"))
CLIENTS = ("app", "brief")
TRIES = 3
"""Credentials of one call, as `UserConnections.ask_as` has it."""
PAUSES_S = (0.0, 0.5, 3.0, 20.0, 70.0, 400.0)
FAILING = 0.12
STORE_FAILING = 0.004
DEADLY = 0.04


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the hosts are made of; a seeded bug comes in here."""

    oauth: type[OAuthCredentials] = OAuthCredentials
    exchanged: type[ExchangedTokens] = ExchangedTokens


@dataclass(eq=False)
class Seat:
    """What is true of one user at one server.

    `family` is that of the last sign-in, None where that is not certain; `gone_at` is since when there certainly is
    none.
    """

    family: Family | None = None
    connecting: int = 0
    disconnecting: int = 0
    connects: int = 0
    disconnects: int = 0
    gone_at: float | None = float("-inf")


@dataclass(eq=False)
class KeptExchange:
    """What the store has of a user's exchanged tokens; None where that is not certain.

    `forgot_at` and `gone_at` are the begin and the end of the last disconnect that has succeeded.
    """

    exchanged: Exchanged | None = None
    running: int = 0
    turns: int = 0
    forgot_at: float = float("-inf")
    gone_at: float = float("-inf")


@dataclass(eq=False)
class CredentialsWorld:
    """Two hosts, their users and the issuer; `violations` is what must not have happened."""

    seed: int
    parts: Parts = field(default_factory=Parts)
    violations: list[str] = field(default_factory=list[str])
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    deaths: int = 0

    def run(self, rounds: int) -> None:
        """Make so many interleavings."""
        self._numbers = Random(self.seed)
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(self._run(rounds))

    async def _run(self, rounds: int) -> None:
        self.issuer = Issuer(self._numbers, self.violations.append, FAILING)
        self._seats = {(user, server): Seat() for user in USERS for server in SERVERS}
        self._keys = {
            user_key(owner, Principal(user.subject, user.tenant)): (user, owner.key)
            for user in USERS
            for owner in SERVERS.values()
        }
        self._kept: dict[User, KeptExchange] = {}
        self._ended: list[Family] = []
        async with MemoryStore(clock=virtual_clock) as self._store:
            self._hosts = [self._start(), self._start()]
            for _ in range(rounds):
                await self._round()
                self._hosts = [self._start() if host.dead else host for host in self._hosts]
                await asyncio.sleep(self._numbers.choice(PAUSES_S))
                self._check_ended()
                await self._check_kept()
                if self.violations:
                    return

    def _check_ended(self) -> None:
        """Note the sign-ins that were ended, and whose tokens still hold though nothing was lost."""
        for family in [each for each in self._ended if not each.asking]:
            self._ended.remove(family)
            if family.is_good and not (family.revoked or family.lost):
                self.violations.append(f"{family.user} is disconnected from {family.server}, and its tokens hold there")

    async def _check_kept(self) -> None:
        """Note the exchanged tokens in the store that had been asked for before their user disconnected."""
        records = TokenRecords(self._store, self._hosts[0].sealing)
        for user in {each._replace(client="") for each in self._kept}:
            for key in await records.list_exchanged(user_key(GRAPH, Principal(user.subject, user.tenant))):
                kept = await records.read(key, GRAPH)
                access = "" if kept is None or kept.tokens is None else kept.tokens.access
                given = self.issuer.exchanged.get(access)
                if given is not None and given.sent_at < self._kept[given.user].forgot_at:
                    self.violations.append(f"{user} is disconnected from graph, and a token of before is kept")

    def _start(self) -> SimulatedHost:
        return SimulatedHost(
            self._store,
            self.issuer,
            self._numbers,
            self.parts.oauth,
            self.parts.exchanged,
            failing=STORE_FAILING,
            spoil=self._spoil,
            on_death=self._die,
        )

    async def _round(self) -> None:
        numbers = self._numbers
        about = numbers.sample(USERS, 1 + (numbers.random() < 0.4))
        server = numbers.choice(tuple(SERVERS))
        for host in self._hosts:
            host.deadly = DEADLY if numbers.random() < 0.1 else 0.0
        acting: list[Awaitable[None]] = []
        for _ in range(numbers.randint(2, 5)):
            user, host = numbers.choice(about), numbers.choice(self._hosts)
            acting.append(self._unless_dead(self._choose(), host, user, server))
        await asyncio.gather(*acting)

    def _choose(self) -> Callable[[SimulatedHost, User, str], Awaitable[None]]:
        ways = (self._call, self._exchange, self._connect, self._disconnect, self._expire, self._forget)
        return self._numbers.choices(ways, (50, 24, 14, 5, 8, 8))[0]

    async def _unless_dead(
        self, act: Callable[[SimulatedHost, User, str], Awaitable[None]], host: SimulatedHost, user: User, server: str
    ) -> None:
        with suppress(ProcessDied):
            await host.pause()
            await act(host, user, server)

    async def _call(self, host: SimulatedHost, user: User, server: str) -> None:
        seat, owner = self._seats[user, server], SERVERS[server]
        began, family, gone_at = virtual_clock(), seat.family, seat.gone_at
        refused = ""
        for _ in range(TRIES):
            try:
                context = CallContext(Principal(user.subject, user.tenant))
                access = await host.service.credential(owner, SIGNING_IN, context, "https://host.example", refused)
            except ToolUnavailable as error:
                self._count(error.code)
                if error.code == SIGN_IN_NEEDED and family is not None and family is seat.family and family.is_good:
                    self.violations.append(f"{user} has to sign in to {server} again for nothing")
                return
            except StoreError:
                self._count("store")
                return
            self._check_owner(user, server, access)
            if gone_at is not None and gone_at == seat.gone_at and began - gone_at > CACHED_S + SLACK_S:
                self.violations.append(f"{user} is disconnected from {server}, and its call has a token")
            await host.pause()
            if self.issuer.takes(access):
                self._count("as itself")
                return
            refused = access
        self._count("refused")
        if family is not None and family is seat.family and family.is_good:
            self.violations.append(f"{user} is given no token that {server} takes")

    def _check_owner(self, user: User, server: str, access: str) -> None:
        given = self.issuer.family_of(access)
        if given is None or (given.user, given.server) != (user, server):
            whose = None if given is None else (given.user, given.server)
            self.violations.append(f"a call of {user} at {server} has the token of {whose}")

    async def _exchange(self, host: SimulatedHost, user: User, server: str) -> None:
        """Call with a JWT, and note the token if no other call can have replaced it in the store."""
        user = user._replace(client=self._numbers.choice(CLIENTS))
        kept = self._kept.setdefault(user, KeptExchange())
        alone, turn, given, began = not kept.running, kept.turns + 1, None, virtual_clock()
        kept.running += 1
        kept.turns += 1
        try:
            given = await self._call_with_jwt(host, user, kept)
        except (ToolUnavailable, StoreError) as error:
            self._count(getattr(error, "code", "store"))
        finally:
            kept.running -= 1
            if given is not kept.exchanged:
                sure = given is not None and alone and turn == kept.turns and given.asked_at >= began
                kept.exchanged = given if sure else None

    async def _call_with_jwt(self, host: SimulatedHost, user: User, kept: KeptExchange) -> Exchanged | None:
        """Return the token: it is of this user, not of a JWT that had ended before the call, and new if need be."""
        began, ends_at = virtual_clock(), virtual_clock() + self._numbers.choice((1.0, 30.0, 500.0))
        who = Principal(user.subject, user.tenant, credential=user.client)
        refused, before, forgot_at, gone_at = "", kept.exchanged, kept.forgot_at, kept.gone_at
        for _ in range(TRIES):
            sent = Credentials()
            sent.request = {b"authorization": b"Bearer " + make_jwt(user, ends_at).encode()}
            access = await host.service.credential(GRAPH, EXCHANGING, CallContext(who, credentials=sent), "", refused)
            given = self.issuer.exchanged.get(access)
            if given is None or given.user != user:
                self.violations.append(f"a call of {user} at graph has the token of {given and given.user}")
                return None
            if given.jwt_ends_at <= began:
                self.violations.append(f"a call of {user} has a token of a JWT that had ended before")
            if given.sent_at < forgot_at and began - gone_at > CACHED_S + SLACK_S:
                self.violations.append(f"{user} is disconnected from graph, and its call has a token of before")
            holds = before is not None and min(before.ends_at, before.jwt_ends_at) > virtual_clock() + SLACK_S
            if holds and before is kept.exchanged and given.asked_at > began:
                self.violations.append(f"the JWT of {user} was exchanged though there was a token")
            await host.pause()
            if self.issuer.takes(access):
                self._count("exchanged")
                return given
            refused = access
        self._count("refused")
        return None

    async def _connect(self, host: SimulatedHost, user: User, server: str) -> None:
        """Sign in by a link, which a second browser presses at the other host as well: one of them has it."""
        seat, owner, sign_ins = self._seats[user, server], SERVERS[server], host.service.oauth.sign_ins
        changes = -1 if seat.connecting or seat.disconnecting else seat.connects + seat.disconnects + 1
        seat.connecting += 1
        seat.connects += 1
        seat.family = seat.gone_at = None  # until it is known which
        try:
            who = Principal(user.subject, user.tenant)
            link = (await sign_ins.link(owner, who, "https://host.example")).url.rpartition("/")[2]
            other = self._numbers.choice(self._hosts)
            pressed = await asyncio.gather(sign_ins.press(link), self._press_at(other, link))
            asked = [each for each in pressed if each is not None]
            if len(asked) > 1:
                self.violations.append(f"a link of {user} was used twice")
            if asked and asked[0].principal != who:
                self.violations.append(f"a link of {user} is for {asked[0].principal}")
            if asked:
                family = await self._finish(host, user, asked[0])
                # A disconnect that has begun meanwhile may come after it.
                alone = changes == seat.connects + seat.disconnects and not seat.disconnecting
                seat.family = family if alone else None
        except StoreError:
            self._count("store")
        except SignInFailed:
            self._count("not connected")
        finally:
            seat.connecting -= 1

    async def _press_at(self, host: SimulatedHost, link: str) -> AskedSignIn | None:
        try:
            return await host.service.oauth.sign_ins.press(link)
        except (ProcessDied, StoreError):
            return None

    async def _finish(self, host: SimulatedHost, user: User, asked: AskedSignIn) -> Family | None:
        oauth, code = host.service.oauth, self.issuer.sign_in(user, asked.key)
        family, state, browser = self.issuer.codes[code], f"state-{code}", f"browser-{code}"
        start = UserTokens(
            access="",
            client_id="us",
            token_endpoint=f"{ISSUER}/token",
            revocation_endpoint=f"{ISSUER}/revoke",
        )
        metadata = (
            f'{{"issuer":"{ISSUER}","authorization_endpoint":"{ISSUER}/auth","token_endpoint":"{ISSUER}/token",'
            '"response_types_supported":["code"]}'
        )
        begun = BegunSignIn(
            asked=asked,
            start=start,
            issuer=ISSUER,
            metadata=metadata,
            scope="read",
            verifier="v",
            browser=name_digest(browser),
        )
        await oauth.sign_ins.begin(state, begun)
        if await oauth.sign_ins.take_state(state, "another browser") is not None:
            self.violations.append("a state was taken by a browser that has not pressed")
        kept = await oauth.sign_ins.take_state(state, browser)
        if kept is None:
            return None
        assert SIGNING_IN.oauth is not None
        await oauth.finish(kept, SIGNING_IN.oauth, code, None)
        self._count("connected")
        return family

    async def _disconnect(self, host: SimulatedHost, user: User, server: str) -> None:
        seat = self._seats[user, server]
        alone, connects, family = not seat.connecting and not seat.disconnecting, seat.connects, seat.family
        seat.family = seat.gone_at = None
        seat.disconnecting += 1
        try:
            with suppress(StoreError):
                await host.service.disconnect(SERVERS[server], SIGNING_IN, Principal(user.subject, user.tenant))
                self._count("disconnected")
                if alone and connects == seat.connects:
                    seat.gone_at = virtual_clock()
                    self._ended += [] if family is None else [family]
        finally:
            seat.family = None
            seat.disconnecting -= 1
            seat.disconnects += 1

    async def _forget(self, host: SimulatedHost, user: User, server: str) -> None:
        """Forget the tokens for which JWTs of a user were exchanged."""
        kept = [self._kept.setdefault(user._replace(client=client), KeptExchange()) for client in CLIENTS]
        for each in kept:
            each.running += 1
            each.turns += 1
            each.exchanged = None
        await asyncio.sleep(self._numbers.random() * THINKS_S)  # it may come at any time of an exchange
        began = virtual_clock()
        try:
            with suppress(StoreError):
                await host.service.disconnect(GRAPH, EXCHANGING, Principal(user.subject, user.tenant))
                for each in kept:
                    each.forgot_at, each.gone_at = began, virtual_clock()
        finally:
            for each in kept:
                each.running -= 1
                each.exchanged = None

    async def _expire(self, host: SimulatedHost, user: User, server: str) -> None:
        self.issuer.expire(user, server)

    def _spoil(self, key: str) -> None:
        """Note that a change of a record may not have arrived."""
        if (place := self._keys.get(key)) is not None:
            for family in self.issuer.families:
                family.spoiled = family.spoiled or (family.user, family.server) == place

    def _die(self, host: SimulatedHost) -> None:
        """Note whose tokens a killed process was renewing: they may have to sign in, once."""
        self.deaths += 1
        for user in host.renewing:
            self._spoil(user)

    def _count(self, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
