"""The context of a provider: its key, directory, store, and the services of its host."""

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
    """Returns a service of the host by its class: `site.service(SavedToolsets)`."""

    def __call__(self, kind: type[S], /) -> S:
        """Return the host's instance, for calls and requests. Raises `LookupError` if the host has none."""
        ...


def no_services(kind: type[S], /) -> S:
    """Raise `LookupError`: a registry without a host has no services."""
    raise LookupError(f"this provider needs a host that offers {kind.__name__}; a registry without a host has none")


EgressRules = Callable[[], Egress]


def public_only() -> Egress:
    """Return the rules of a registry without a host: public addresses only."""
    return PUBLIC_ONLY


class ProviderStore(Protocol):
    """The records of one provider and one tenant; its keys cannot address other records.

    The methods are those of `toolplug.stores.store.Store`, with its errors, and without events.
    """

    async def read(self, key: str) -> Record | None:
        """Return the record, or `None`."""
        ...

    async def commit(
        self, key: str, value: bytes | None, *, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        """Write the record (`None` deletes it) and return its new revision."""
        ...

    async def keys(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[str]:
        """Return the keys that begin with `prefix` and follow `after`, in code-point order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderContext:
    """The argument of `start`, valid as long as the provider.

    `state_dir` is an existing directory of this provider, for all tenants. `store` returns the records of the
    principal's tenant; it is cheap, and the result may be kept. `config_dir` is the base of relative paths in settings:
    the folder of the configuration file; a validator of the provider's Config finds it as `info.context["config_dir"]`.
    `service` returns services of the host, for use in calls and requests: they may not be ready while providers start.
    `egress` is the operator's `egress.allow`, for `checked_transport`; without a host it allows public addresses only.
    """

    key: str
    state_dir: Path
    store: Callable[[Principal], ProviderStore]
    config_dir: Path = Path()
    service: Services = no_services
    egress: Egress = PUBLIC_ONLY
