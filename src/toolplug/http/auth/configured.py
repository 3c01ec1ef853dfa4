"""From the `auth` section and the host's own authenticators to the chain that is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

from toolplug.host.settings import Auth, Jwt
from toolplug.http.auth.api_keys import ApiKeys
from toolplug.http.auth.authenticator import Authenticator
from toolplug.http.auth.chain import Chain

_TOKENS = "toolplug.http.auth.jwt"


def configured_chain(auth: Auth | None, given: Sequence[Authenticator]) -> Chain:
    """API keys, then tokens, then what the host gave. PyJWT is imported only where the section asks for tokens.

    Raises `ImportError` where it is missing.
    """
    if auth is None:
        return Chain(ApiKeys(()), given)
    tokens = () if auth.jwt is None else (_tokens(auth.jwt),)
    return Chain(ApiKeys(auth.api_keys), (*tokens, *given))


def _tokens(settings: Jwt) -> Authenticator:
    make = cast("Callable[[Jwt], Authenticator]", import_module(_TOKENS).Tokens)  # an extra is looked up by name
    return make(settings)
