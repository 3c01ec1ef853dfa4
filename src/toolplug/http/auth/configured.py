"""From the `auth` section and the host's own authenticators to the gatekeeper that is asked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

from toolplug.host.file.auth_settings import Auth, Jwt
from toolplug.http.auth.api_keys import ApiKeys
from toolplug.http.auth.authenticator import Authenticator
from toolplug.http.auth.chain import Chain, Gatekeeper, OpenDoor, ShutDoor

_LOG = logging.getLogger("toolplug.http")

_TOKENS = "toolplug.http.auth.jwt"


def configured_gatekeeper(auth: Auth | None, given: Sequence[Authenticator]) -> Gatekeeper:
    """API keys, then tokens, then what the host gave; without any of them the door is open.

    PyJWT is imported only where the section asks for tokens. Where their key cannot be read the door stays shut.
    """
    if auth is None:
        return Chain(ApiKeys(()), given) if given else OpenDoor()
    try:
        tokens = () if auth.jwt is None else (_tokens(auth.jwt),)
    except ValueError as error:
        _LOG.error("%s; nobody is let in", error)
        return ShutDoor()
    return Chain(ApiKeys(auth.api_keys), (*tokens, *given))


def _tokens(settings: Jwt) -> Authenticator:
    make = cast("Callable[[Jwt], Authenticator]", import_module(_TOKENS).Tokens)  # an extra is looked up by name
    return make(settings)
