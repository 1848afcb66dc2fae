"""The store in a bucket of Amazon's, Google's or Microsoft's: snapshots that several machines use.

Needs ``pip install 'snapshot-plugin[s3]'``. Credentials come from the environment alone (`open_url`).
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from snapshot_plugin.codec.sources import KeySource
from snapshot_plugin.errors import (
    InvalidInput,
    SessionLocked,
    SnapshotCorrupted,
    SnapshotError,
    StoreForbidden,
    StoreNotFound,
    StoreUnavailable,
)
from snapshot_plugin.extras import needs_extra
from snapshot_plugin.store import rewrite
from snapshot_plugin.store.base import Capabilities
from snapshot_plugin.store.engine import StoreLimits
from snapshot_plugin.store.keyed import KeyedStore
from snapshot_plugin.store.marker import MARKER, parse_marker, without_marker

with needs_extra("s3", "object stores need the library obstore"):
    from obstore.store import AzureStore, GCSStore, S3Store

    from snapshot_plugin.store.bucket import Bucket, ObjectMoved, Stored
    from snapshot_plugin.store.objects import LEDGER_BYTES, ObjectLog

T = TypeVar("T")

__all__ = ["KeyObject", "ObjectStore", "bucket_at", "open_url"]

_KEYS = "keys.json"
_KEYS_SECONDS = 60.0
_OPERATIONS = "operations.jsonl"
_PAUSES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
RETRIES = 8
"""How often a failed request is retried, with growing pauses: about half a minute in total."""
_PATIENCE = timedelta(minutes=1)
"""Seconds after which a request is no longer retried."""
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(milliseconds=200), timedelta(seconds=10)
_SLOWEST = timedelta(minutes=2)
"""The timeout of one request: enough for a large snapshot over a slow line."""


class KeyObject:
    """`KeyFiles` in one object. What is written takes the place of the version that was read last."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._seen: Stored | None = None
        self._looked: float | None = None
        self._tag: object = None

    def names(self) -> list[str] | None:
        """See `KeyFiles`."""
        self._seen = self._bucket.get(_KEYS)
        return list(self._files()) if self._seen else None

    def read(self, name: str) -> bytes | None:
        """See `KeyFiles`."""
        text = self._files().get(name)
        return None if text is None else text.encode()

    def stamp(self, name: str) -> object:
        """See `KeyFiles`. A look is a request, so there is one a minute; while that fails, nothing has changed."""
        _ = name
        if self._looked is None or time.monotonic() - self._looked >= _KEYS_SECONDS:
            with contextlib.suppress(SnapshotError):
                found = self._bucket.get(_KEYS)
                self._tag = found.tag if found else None
            self._looked = time.monotonic()
        return self._tag

    def create(self, files: Mapping[str, bytes]) -> bool:
        """See `KeyFiles`."""
        try:
            return self._put(None, {name: data.decode() for name, data in files.items()})
        except SessionLocked:
            return False

    def changing(self) -> AbstractContextManager[None]:
        """See `KeyFiles`. No lock: if another process changes the keys meanwhile, our change fails."""
        return contextlib.nullcontext()

    def write(self, name: str, data: bytes) -> None:
        """See `KeyFiles`."""
        self._put(self._seen, {**self._files(), name: data.decode()})

    def replace(self, files: Mapping[str, bytes]) -> None:
        """Replace the files that were read last by exactly these."""
        self._put(self._seen, {name: data.decode() for name, data in files.items()})

    def remove(self, name: str) -> None:
        """See `KeyFiles`."""
        self._put(self._seen, {key: text for key, text in self._files().items() if key != name})

    def _put(self, seen: Stored | None, files: dict[str, str]) -> bool:
        data = json.dumps(files, indent=1, sort_keys=True).encode() + b"\n"
        try:
            self._seen = Stored(data, self._bucket.put(_KEYS, data, tag=seen.tag if seen else None))
        except ObjectMoved:
            self._seen = self._bucket.get(_KEYS)
            if self._seen is None or self._seen.data != data:  # not our own write with a lost answer
                raise SessionLocked(
                    f"another process is changing the keys of {self._bucket.name}", hint="try again in a moment"
                ) from None
        return True

    def _files(self) -> dict[str, str]:
        try:
            files = json.loads(self._seen.data if self._seen else b"{}")
            return {str(name): str(text) for name, text in files.items()}
        except (ValueError, AttributeError):
            raise SnapshotCorrupted(
                f"{_KEYS} of {self._bucket.name} is damaged", hint="restore it from a backup"
            ) from None


class LineObject:
    """Lines in one object, for the operation log: ``asnap undo`` then works from every machine."""

    def __init__(self, bucket: Bucket, prepare: Callable[[], None]) -> None:
        self._bucket, self._prepare = bucket, prepare

    def read_lines(self) -> list[bytes]:
        """All lines, oldest first."""
        self._prepare()
        return _lines(self._bucket.get(_OPERATIONS))

    def append_line(self, line: bytes) -> int:
        """Add a line; durable on return. Returns how many bytes there are."""
        return self._changed(lambda lines: [*lines, line])

    def change_lines(self, change: Callable[[list[bytes]], Sequence[bytes]]) -> None:
        """Replace the lines by what *change* returns for them; called again if another writer was faster."""
        self._changed(change)

    def _changed(self, change: Callable[[list[bytes]], Sequence[bytes]]) -> int:
        self._prepare()
        data: bytes | None = None
        for pause in _PAUSES:
            seen = self._bucket.get(_OPERATIONS)
            if seen is not None and seen.data == data:  # it was written, and only the answer was lost
                return len(data)
            data = b"".join(line + b"\n" for line in change(_lines(seen)))
            try:
                self._bucket.put(_OPERATIONS, data, tag=seen.tag if seen else None)
            except ObjectMoved:
                time.sleep(pause)  # in a worker thread
            else:
                return len(data)
        raise StoreUnavailable(
            f"other machines keep writing down what they do to {self._bucket.name}", hint="try again in a moment"
        )


def _lines(seen: Stored | None) -> list[bytes]:
    return seen.data.split(b"\n")[:-1] if seen else []


class ObjectStore(KeyedStore):
    """Snapshots in a bucket. The arguments and errors are those of `FilesystemStore`, with a bucket for the path.

    Any number of machines may work on it. A live session (its spool, its lease) stays on the machine where it runs.
    """

    capabilities = Capabilities(several_machines=True, encryption=True)
    effort = "sent"

    def __init__(
        self,
        bucket: Bucket,
        key: str | KeySource | None = None,
        *,
        create: bool = True,
        background: bool = True,
        limits: StoreLimits | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        ledger_bytes: int = LEDGER_BYTES,
    ) -> None:
        self._bucket, self._create = bucket, create
        self._copied_marker: bytes | None = None
        self._merging: set[str] = set()
        self._objects = ObjectLog(bucket, ledger_bytes=ledger_bytes)
        self.operation_lines = LineObject(bucket, self.prepare)
        """What commands did to the store, for undo."""
        super().__init__(
            self._objects, name=bucket.name, key=key, background=background, limits=limits, clock=clock
        )

    def prepared(self, work: Callable[..., T], args: tuple[Any, ...]) -> T:
        """Other writers are not locked out during the work; if one was faster, the work is repeated."""
        for pause in _PAUSES:
            try:
                return super().prepared(work, args)
            except (SessionLocked, FileNotFoundError):
                time.sleep(pause)  # in a worker thread, never on the event loop
        raise SessionLocked(f"other writers are busy in {self._bucket.name}", hint="try again in a moment")

    def segment_finished(self, session_id: str) -> None:
        """See `LogStore`. A session that is queued already is not queued again."""
        if session_id not in self._merging:
            self._merging.add(session_id)
            super().segment_finished(session_id)

    def _compact_quietly(self, session_id: str) -> None:
        """Merge the objects that saves left into one."""
        quietly = contextlib.suppress(SnapshotError, OSError)  # best effort: the frames are safe as they are
        try:
            with quietly, self._objects.trusting_memory():
                rewrite.settle(self.frames, session_id, self.session_keys(session_id), newest_too=False)
        finally:
            self._merging.discard(session_id)

    def _marker(self) -> dict[str, Any]:
        marker = self._bucket.get(MARKER) or self._made()
        return parse_marker(marker.data, self._bucket.name)

    def _made(self) -> Stored:
        if not self._create:
            raise StoreNotFound.empty(self._bucket.name, check="the URL if you expected one")
        is_new = not self._has_keys() and not self._bucket.names("sessions")
        if is_new:
            self._objects.race()
            with contextlib.suppress(ObjectMoved):  # of several machines that try at once, one makes it
                self._bucket.put(MARKER, self._new_marker(), tag=None)
        made = self._bucket.get(MARKER)
        if made is None and is_new:  # the service refused all concurrent attempts: try again
            raise SessionLocked(f"other machines are making the store {self._bucket.name}", hint="try again")
        if made is None:
            raise without_marker(self._bucket.name)
        return made

    def examine(self) -> list[tuple[str, str]]:
        """The findings of ``asnap doctor`` about this place: a level and a text each.

        Raises:
            InvalidInput: the service cannot keep writers apart.
        """
        began = time.monotonic()
        self._bucket.get(MARKER)
        found = [("ok", f"{self._bucket.name} answers in {(time.monotonic() - began) * 1000:.0f} ms")]
        try:
            self._objects.make_sure_that_conditions_count()
        except StoreForbidden:
            return [*found, ("hint", "these credentials may only read")]
        return [*found, ("ok", "the service keeps writers apart: one of eight made an object")]

    # As an archive ----------------------------------------------------------------------------------------

    def become_archive(self, about: Mapping[str, Any]) -> None:
        """Create the store if it is missing, with the id in the marker *about* of the archived store."""
        self._copied_marker = json.dumps(dict(about), sort_keys=True).encode() + b"\n"
        if self._bucket.get(MARKER) is None:
            self._made()

    def take_keys(self, files: Mapping[str, bytes]) -> None:
        """Replace the key files by those of the store that is archived here."""
        keys = KeyObject(self._bucket)
        present = {name: keys.read(name) for name in keys.names() or []}
        if not present:
            keys.create(files)
        elif present != files:
            keys.replace(files)

    def put_note(self, path: str, data: bytes) -> None:
        """Write a small object; an existing one is replaced."""
        with contextlib.suppress(ObjectMoved):  # another process has just written a newer one
            present = self._bucket.get(path)
            self._bucket.put(path, data, tag=present.tag if present else None)

    def notes(self, path: str) -> dict[str, bytes]:
        """The small objects under *path*."""
        found = {name: self._bucket.get(f"{path}/{name}") for name in self._bucket.names(path)}
        return {name: note.data for name, note in found.items() if note}

    def _new_marker(self) -> bytes:
        return self._copied_marker or super()._new_marker()

    def _key_files(self) -> KeyObject:
        return KeyObject(self._bucket)

    def _has_keys(self) -> bool:
        return self._bucket.get(_KEYS) is not None


class _Service(NamedTuple):
    """A kind of object store: its client, what configures it, and the variable that allows HTTP without TLS."""

    client: Any
    variables: str
    allow_http: str
    counts_versions: bool = False
    """Conditions name the number of a version (Google), not its tag."""


_SERVICES = {
    "s3": _Service(S3Store, "AWS_…", "AWS_ALLOW_HTTP"),
    "gs": _Service(GCSStore, "GOOGLE_…", "GOOGLE_ALLOW_HTTP", counts_versions=True),
    "az": _Service(AzureStore, "AZURE_STORAGE_…", "AZURE_ALLOW_HTTP"),
}


def open_url(
    url: str, *, key: str | KeySource | None = None, create: bool = True, background: bool = True
) -> ObjectStore:
    """``s3://bucket/prefix``, ``gs://bucket/prefix`` or ``az://container/prefix``.

    The account and the service come from the environment: ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``,
    ``AWS_REGION``, ``AWS_ENDPOINT_URL``; ``GOOGLE_SERVICE_ACCOUNT``; ``AZURE_STORAGE_ACCOUNT_NAME``,
    ``AZURE_STORAGE_ACCOUNT_KEY``; and so on. A URL with credentials in it is refused: URLs end up in logs.
    """
    return ObjectStore(bucket_at(url), key, create=create, background=background)


def bucket_at(url: str) -> Bucket:
    """The place that a URL names."""
    parts = urlsplit(url)
    service = _SERVICES[parts.scheme]
    prefix = unquote(parts.path).strip("/")
    odd = parts.query or parts.fragment or "\0" in prefix or {".", ".."} & set(prefix.split("/")) or "//" in prefix
    if not parts.hostname or parts.netloc != parts.hostname or odd:
        raise InvalidInput(
            "the URL does not name a place in a bucket",
            hint=f"write {parts.scheme}://bucket/prefix; credentials and endpoint come from the environment "
            f"({service.variables})",
        )
    is_http_allowed = os.environ.get(service.allow_http, "").lower() == "true"
    store = service.client(
        parts.netloc,
        prefix=prefix or None,
        client_options={"timeout": _SLOWEST, "allow_http": is_http_allowed},
        retry_config={
            "max_retries": RETRIES,
            "retry_timeout": _PATIENCE,
            "backoff": {"init_backoff": _FIRST_PAUSE, "max_backoff": _LONGEST_PAUSE, "base": 2},
        },
    )
    return Bucket(
        store,
        name=f"{parts.scheme}://{parts.netloc}/{prefix}",
        variables=service.variables,
        counts_versions=service.counts_versions,
    )
