"""What a host gives its registry: memory, lanes, places to keep things, and the tool that reads kept results."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from toolplug.execution.approvals import Approvals
from toolplug.execution.artifacts import Artifacts, read_result
from toolplug.execution.lanes import Lanes
from toolplug.execution.ledger import Ledger
from toolplug.execution.replay import Replays
from toolplug.host.file.configuration import Configuration
from toolplug.providers.planning import Surroundings
from toolplug.providers.registry import Setup
from toolplug.providers.site import Services
from toolplug.providers.sites import TemporaryRoot, stored_sites
from toolplug.stores.open import store_folder
from toolplug.stores.store import Store


def registry_setup(
    configuration: Configuration,
    store: Store,
    approvals: Approvals,
    ledger: Ledger,
    services: Services,
    session_ttl: Callable[[], float],
) -> Setup:
    """The setup of one entered host. Providers keep files beside the store's own, or for its life where it has none.

    `session_ttl()` is how long sessions live now: as long a result that was too long is kept (CONTRACT.md section 3).
    """
    settings = configuration.settings
    lanes = Lanes()
    artifacts = Artifacts(store, session_ttl)
    around = Surroundings(ledger=ledger, lanes=lanes, replay=Replays(store), artifacts=artifacts, approvals=approvals)
    folder = store_folder(settings.store, folder=configuration.folder)
    root = TemporaryRoot() if folder is None else folder.absolute
    return Setup(
        around=around,
        lanes=lanes,
        site_for=stored_sites(lambda: store, root, configuration.folder, services),
        namespace=settings.metrics.namespace,
        tail=cache(lambda: read_result(artifacts, ledger, lanes)),
        resources=(root,) if isinstance(root, TemporaryRoot) else (),
    )
