"""The store contract as a pytest suite: what `snapshot_plugin.store.base` promises, sentence by sentence.

::

    class TestMyStore(StoreContract):
        def open(self, place, clock):
            return MyStore(place, clock=clock)

Each test runs on every event loop that anyio's ``anyio_backend`` fixture names: asyncio and trio by default.
"""

from __future__ import annotations

from snapshot_plugin.testing.contract.cancellation import Cancellation
from snapshot_plugin.testing.contract.closing import Closing
from snapshot_plugin.testing.contract.conflicts import Conflicts
from snapshot_plugin.testing.contract.crowds import Crowds
from snapshot_plugin.testing.contract.damage import Damage
from snapshot_plugin.testing.contract.forgetting import Forgetting
from snapshot_plugin.testing.contract.listing import Listing
from snapshot_plugin.testing.contract.parts import Parts
from snapshot_plugin.testing.contract.races import Races
from snapshot_plugin.testing.contract.removing import Removing
from snapshot_plugin.testing.contract.saving import Saving
from snapshot_plugin.testing.contract.threads import Threads
from snapshot_plugin.testing.contract.values import Values

__all__ = ["StoreContract"]


class StoreContract(
    Saving,
    Conflicts,
    Listing,
    Values,
    Removing,
    Forgetting,
    Damage,
    Cancellation,
    Crowds,
    Closing,
    Threads,
    Races,
    Parts,
):
    """Everything that a `SnapshotStore` promises. Subclass it, define `open`, and run pytest."""
