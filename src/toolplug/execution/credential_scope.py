"""Which of the people behind one subject a call is of: who brings other credentials never gets what is kept for it.

An application may have one API key for all its users, and pass on the credentials of each. So all that is kept for a
principal, or found by it, is kept for this scope of its too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from toolplug.signatures.values import canonical

ScopeOf = Callable[[Mapping[str, str]], Awaitable[str]]
"""Returns the scope of the credentials that a caller brings, empty for none. Raises `StoreError`."""
Digest = Callable[[bytes], Awaitable[str]]
"""Returns a digest that only who has the host's key can compare with guesses. Raises `StoreError`."""


def make_scope_of(digest: Digest) -> ScopeOf:
    """Return what makes scopes with this digest."""

    async def scope_of(credentials: Mapping[str, str]) -> str:
        return await digest(canonical(dict(credentials))) if credentials else ""

    return scope_of


async def no_scope(credentials: Mapping[str, str]) -> str:
    """Return nothing: outside of a host there is no key, and one caller."""
    return ""
