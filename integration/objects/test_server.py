"""The store contract against an S3 server that is not ours: SeaweedFS, moto, or what ``ASNAP_S3_URL`` names."""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError

from snapshot_plugin.model.ids import new_id
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.bucket import Bucket
from snapshot_plugin.store.ledger import Ledger
from snapshot_plugin.store.objects import ObjectLog
from snapshot_plugin.store.s3 import ObjectStore, bucket_at
from snapshot_plugin.testing import StoreContract

Clock = Callable[[], datetime]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The service that is named, or else SeaweedFS, or moto, whichever is installed."""
    if given := os.environ.get("ASNAP_S3_URL"):
        yield given
        return
    port = _free()
    weed = Path(sysconfig.get_path("scripts")) / "weed"
    moto = [sys.executable, "-m", "moto.server", "-p", str(port)]
    line = _seaweed(weed, port, tmp_path_factory.mktemp("weed")) if weed.exists() else moto
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for_bucket(port)
            os.environ |= {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret",
            }  # fmt: skip
            yield "s3://bucket/tests"
        finally:
            server.kill()


def _seaweed(weed: Path, port: int, directory: Path) -> list[str]:
    ports = [f"-{name}.port={_free()}" for name in ("master", "volume", "filer")]
    places = [f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.port={port}", *ports]
    return [str(weed), "server", "-s3", "-volume.max=20", "-master.volumeSizeLimitMB=64", *places]


def _free() -> int:
    """A free port below 50,000: SeaweedFS also uses the one 10,000 higher."""
    for port in random.sample(range(20_000, 50_000), 100):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise TimeoutError("no port is free")


def _wait_for_bucket(port: int) -> None:
    for _ in range(600):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        with contextlib.suppress(OSError), contextlib.closing(connection):
            connection.request("PUT", "/bucket")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise TimeoutError("the server did not start")


def test_the_server_itself_honours_conditions(url: str) -> None:
    """Asked without our code, as far as a signed request can be made without a library."""
    store = bucket_at(f"{url}/{new_id()}")._store  # noqa: SLF001 — the client itself
    first = obstore.put(store, "probe", b"1", mode="create")["e_tag"]
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "probe", b"2", mode="create")
    with pytest.raises(PreconditionError):
        obstore.put(store, "probe", b"2", mode={"e_tag": '"0123"'})
    obstore.put(store, "probe", b"2", mode={"e_tag": first})
    with pytest.raises(PreconditionError):
        obstore.put(store, "probe", b"3", mode={"e_tag": first})
    assert obstore.get(store, "probe").bytes().to_bytes() == b"2"


def test_of_eight_writers_at_once_one_makes_an_object(url: str) -> None:
    """As a store asks before it is made."""
    for _ in range(20):
        ObjectLog(bucket_at(f"{url}/{new_id()}")).race()


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
        store, path = place._store, f"sessions/{session_id}"  # noqa: SLF001 — behind the store's back
        ledger = Ledger.decoded(obstore.get(store, path).bytes().to_bytes(), session_id)
        last = ledger.parts[-1]
        spoilt = last.data[:-10] + bytes([last.data[-10] ^ 0x40]) + last.data[-9:]
        obstore.put(store, path, ledger._replace(parts=(*ledger.parts[:-1], last._replace(data=spoilt))).encoded())
