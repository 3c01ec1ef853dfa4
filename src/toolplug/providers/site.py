"""What a provider is given to live with: its key, a directory, a store, and services of its host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from toolplug.catalog.call import Principal
from toolplug.execution.egress import PUBLIC_ONLY, Egress
from toolplug.stores.store import Record

S = TypeVar("S")


class Services(Protocol):
    """What a host offers beside the store, by class: `site.service(SavedToolsets)`."""

    def __call__(self, kind: type[S], /) -> S:
        """The host's one instance, for calls and requests; raises `LookupError` where the host does not offer it."""
        ...


def no_services(kind: type[S], /) -> S:
    """A registry without a host offers nothing."""
    raise LookupError(f"this provider needs a host that offers {kind.__name__}; a registry without a host has none")


EgressRules = Callable[[], Egress]


def public_only() -> Egress:
    """Return the rules of a registry without a host: public addresses only."""
    return PUBLIC_ONLY


class ProviderStore(Protocol):
    """The records of one provider and one tenant: no key of it can address another's.

    The methods are those of `toolplug.stores.store.Store`, with its errors, and without events.
    """

    async def read(self, key: str) -> Record | None:
        """Return the live record, or `None`."""
        ...

    async def commit(
        self, key: str, value: bytes | None, *, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        """Write the record (`None` deletes it) and return its new revision."""
        ...

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        """Return the keys of live records that begin with `prefix` and come after `after`, in code-point order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderContext:
    """Given to `start`; lives as long as the provider.

    `state_dir` exists and is this provider's alone, for all tenants. `store` opens the records of the principal's
    tenant; it is cheap, and the result may be kept. `config_dir` is where relative paths of settings start: the folder
    of the configuration file; a validator of the provider's Config finds it as `info.context["config_dir"]`. `service`
    gives what the host offers, to be used by calls and requests: while providers start it may not be ready. `egress` is
    the operator's `egress.allow`, for `checked_transport`; public addresses only, without a host.
    """

    key: str
    state_dir: Path
    store: Callable[[Principal], ProviderStore]
    config_dir: Path = Path()
    service: Services = no_services
    egress: Egress = PUBLIC_ONLY
