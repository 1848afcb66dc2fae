"""Real object stores for the tests: SeaweedFS from PyPI (``s3://``), and Azurite from npm (``az://``)."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import itertools
import os
import random
import socket
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import obstore

from snapshot_plugin.codec.frame import read_header
from snapshot_plugin.codec.scan import scan
from snapshot_plugin.model.ids import dirname_of
from snapshot_plugin.store.ledger import Ledger

__all__ = ["BUCKET", "ObjectServer", "azurite", "seaweedfs", "spoil_newest", "spoilt"]

BUCKET = "bucket"
_WORKERS = 16
"""How many workers have ports of their own."""
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that every emulator of Azure has; it is public."""


class ObjectServer(NamedTuple):
    """A server with one empty bucket."""

    url: str
    environment: Mapping[str, str]
    """What tells a client where it is, and who may use it."""


@contextlib.contextmanager
def seaweedfs(directory: Path) -> Iterator[ObjectServer]:
    """SeaweedFS, as `pip install '.[test]'` brings it, with its files in *directory*.

    Services with a fixed port are off, so that several workers can each have a server.
    """
    port, *others = _free_ports(4)
    ports = [f"-{name}.port={other}" for name, other in zip(("master", "volume", "filer"), others, strict=True)]
    command = [
        str(Path(sysconfig.get_path("scripts")) / "weed"), f"-logdir={directory}", "server", "-s3",
        "-volume.max=20", "-master.volumeSizeLimitMB=64", "-master.telemetry=false", f"-dir={directory}",
        "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.port={port}", *ports,
    ]  # fmt: skip
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret",
    }  # fmt: skip
    with _running(command, port, lambda: _asked_for(port, f"/{BUCKET}", {})):
        yield ObjectServer(f"s3://{BUCKET}", environment)


@contextlib.contextmanager
def azurite(program: Path) -> Iterator[ObjectServer]:
    """Azurite's ``azurite-blob``, as ``npm install azurite`` brings it. It keeps everything in memory."""
    (port,) = _free_ports(1)
    command = [
        str(program), "--silent", "--skipApiVersionCheck", "--disableTelemetry", "--inMemoryPersistence",
        "--blobPort", str(port),
    ]  # fmt: skip
    environment = {
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
    }
    path = f"/{_ACCOUNT}/{BUCKET}?restype=container"
    with _running(command, port, lambda: _asked_for(port, path, _signed())):
        yield ObjectServer(f"az://{BUCKET}", environment)


@contextlib.contextmanager
def _running(command: Sequence[str], port: int, make_bucket: Callable[[], bool]) -> Iterator[None]:
    nowhere = subprocess.DEVNULL
    # SeaweedFS takes credentials in its environment for those it has to ask for.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with subprocess.Popen(command, stdout=nowhere, stderr=nowhere, env=environment) as server:
        try:
            deadline = time.monotonic() + 100
            while not make_bucket():
                if time.monotonic() > deadline or server.poll() is not None:
                    raise TimeoutError(f"{command[0]} did not start on port {port}")
                time.sleep(0.05)
            yield
        finally:
            server.kill()


def _asked_for(port: int, path: str, headers: Mapping[str, str]) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
        connection.request("PUT", path, headers=dict(headers))
        return connection.getresponse().status in (200, 201)
    return False


def _signed() -> dict[str, str]:
    """The headers of the request that makes the bucket."""
    now, version = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"), "2023-11-03"
    resource = f"/{_ACCOUNT}/{_ACCOUNT}/{BUCKET}\nrestype:container"
    text = "PUT" + 12 * "\n" + f"x-ms-date:{now}\nx-ms-version:{version}\n{resource}"
    signature = base64.b64encode(hmac.digest(base64.b64decode(_KEY), text.encode(), hashlib.sha256)).decode()
    authorization = f"SharedKey {_ACCOUNT}:{signature}"
    return {"x-ms-date": now, "x-ms-version": version, "Authorization": authorization, "Content-Length": "0"}


def _free_ports(count: int) -> list[int]:
    """Free ports that the system gives to no client, and no other worker chooses meanwhile.

    SeaweedFS also uses those 10,000 higher.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    candidates = random.sample(range(10_000 + worker, 20_000, _WORKERS), 100)
    found = list(itertools.islice(filter(_is_free, candidates), count))
    if len(found) < count:
        raise TimeoutError("no port is free")
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as free, socket.socket() as higher, contextlib.suppress(OSError):
        free.bind(("127.0.0.1", port))
        higher.bind(("127.0.0.1", port + 10_000))
        return True
    return False


def spoil_newest(objects: Any, session_id: str) -> None:
    """Change a byte of a session's newest frame, wherever it is, behind the store's back."""
    path = f"sessions/{dirname_of(session_id)}"
    ledger = Ledger.decoded(_stored(objects, path), session_id)
    last = ledger.parts[-1]
    if last.object:
        path = f"frames/{dirname_of(session_id)}/{last.object}"
        obstore.put(objects, path, spoilt(_stored(objects, path)))
    else:
        parts = (*ledger.parts[:-1], last._replace(data=spoilt(last.data)))
        obstore.put(objects, path, ledger._replace(parts=parts).encoded())


def _stored(objects: Any, path: str) -> bytes:
    return obstore.get(objects, path).bytes().to_bytes()


def spoilt(data: bytes) -> bytes:
    """*data* with a changed byte in its last frame."""
    *_, last = scan(data)
    _, body, _ = read_header(data, last.start)
    at = body + 8  # nothing that follows can be decompressed
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
