"""The store contract on SeaweedFS (``s3://``) and Azurite (``az://``), or what ``ASNAP_OBJECTS_URL`` names."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError

from snapshot_plugin.model.ids import new_id
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.bucket import Bucket
from snapshot_plugin.store.objects import ObjectLog
from snapshot_plugin.store.s3 import ObjectStore, bucket_at
from snapshot_plugin.testing import StoreContract
from tests.object_servers import azurite, seaweedfs, spoil_newest

Clock = Callable[[], datetime]


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


GIVEN = os.environ.get("ASNAP_OBJECTS_URL")


@pytest.fixture(scope="session", params=["given"] if GIVEN else ["seaweedfs", "azurite"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The service that is named, or else each server in turn."""
    if GIVEN:
        yield GIVEN
        return
    with (
        tempfile.TemporaryDirectory(prefix="asnap-weed-") as directory,
        seaweedfs(Path(directory)) if request.param == "seaweedfs" else azurite(_azurite()) as server,
    ):
        os.environ |= server.environment
        yield server.url


def _azurite() -> Path:
    program = os.environ.get("ASNAP_AZURITE") or shutil.which("azurite-blob")
    assert program, "install Azurite: npm install azurite; then name azurite-blob in ASNAP_AZURITE"
    return Path(program)


def test_the_server_itself_honours_conditions(url: str) -> None:
    """Asked without our code: if it did not, the other tests would prove nothing."""
    store = bucket_at(f"{url}/{new_id()}")._store  # noqa: SLF001 — the client itself
    made = obstore.put(store, "probe", b"1", mode="create")
    first = {name: value for name, value in made.items() if value is not None}
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "probe", b"2", mode="create")
    obstore.put(store, "probe", b"2", mode=first)  # type: ignore[arg-type] # a version, as it was told
    with pytest.raises(PreconditionError):
        obstore.put(store, "probe", b"3", mode=first)  # type: ignore[arg-type] # as above
    assert obstore.get(store, "probe").bytes().to_bytes() == b"2"


def test_of_eight_writers_at_once_one_makes_an_object(url: str) -> None:
    """As a store asks before its first write."""
    for _ in range(20):
        bucket = bucket_at(f"{url}/{new_id()}")
        ObjectLog(bucket).race()
        assert bucket.is_atomic


class TestObjectStoreOnAServerThatIsNotOurs(StoreContract):
    """See `StoreContract`."""

    @pytest.fixture
    def place(self, url: str) -> Bucket:
        """A place of its own."""
        return bucket_at(f"{url}/{new_id()}")

    def open(self, place: Bucket, clock: Clock) -> SnapshotStore:
        """See `StoreContract`."""
        return ObjectStore(place, clock=clock)

    def damage_newest(self, place: Bucket, session_id: str) -> None:
        """See `StoreContract`."""
        spoil_newest(place._store, session_id)  # noqa: SLF001 — behind the store's back
