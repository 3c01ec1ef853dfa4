"""API keys: kept and compared as SHA-256, in a time that tells nothing about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from hmac import compare_digest

from toolplug.catalog.call import Principal
from toolplug.host.file.auth_settings import ApiKey
from toolplug.http.auth.credentials import bearer


class ApiKeys:
    """The keys of the configuration and their holders."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._holders = tuple((key.digest, _principal(key)) for key in keys)

    def holder(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """Who holds the key that the request carries; None for no key and for an unknown one."""
        for key in (bearer(headers), headers.get(b"x-api-key")):
            if key is not None:
                found = self._find(sha256(key).digest())
                if found is not None:
                    return found
        return None

    def _find(self, digest: bytes) -> Principal | None:
        """Compares with every key, also after a match."""
        found = None
        for known, principal in self._holders:
            if compare_digest(known, digest):
                found = principal
        return found


def _principal(key: ApiKey) -> Principal:
    return Principal(
        subject=key.subject,
        tenant=key.tenant,
        scopes=frozenset(key.scopes),
        agents=None if key.agents is None else frozenset(key.agents),
    )
