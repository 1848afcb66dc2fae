"""The store in a bucket of Amazon's, Google's or Microsoft's: snapshots that several machines use.

Needs ``pip install 'snapshot-plugin[s3]'``. Credentials come from the environment alone (`open_url`).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from snapshot_plugin.codec.sources import KeySource
from snapshot_plugin.errors import (
    InvalidInput,
    SessionLocked,
    SnapshotError,
    StoreForbidden,
    StoreNotFound,
)
from snapshot_plugin.extras import needs_extra
from snapshot_plugin.store import rewrite
from snapshot_plugin.store.base import Capabilities
from snapshot_plugin.store.engine import StoreLimits
from snapshot_plugin.store.keyed import KeyedStore
from snapshot_plugin.store.marker import MARKER

with needs_extra("s3", "object stores need the library obstore"):
    from obstore.store import AzureStore, GCSStore, S3Store

    from snapshot_plugin.store.bucket import Bucket
    from snapshot_plugin.store.objects import LEDGER_BYTES, ObjectLog

T = TypeVar("T")

__all__ = ["ObjectStore", "bucket_at", "open_url"]

_PAUSES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
RETRIES = 8
"""How often a failed request is retried, with growing pauses: about half a minute in total."""
_PATIENCE = timedelta(minutes=1)
"""Seconds after which a request is no longer retried."""
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(milliseconds=200), timedelta(seconds=10)
_SLOWEST = timedelta(minutes=2)
"""The timeout of one request: enough for a large snapshot over a slow line."""


class ObjectStore(KeyedStore):
    """Snapshots in a bucket. The arguments and errors are those of `FilesystemStore`, with a bucket for the path.

    Any number of machines may work on it. A live session (its spool, its lease) stays on the machine where it runs.
    """

    capabilities = Capabilities(several_machines=True)
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
        self._bucket = bucket
        self._merging: set[str] = set()
        self._objects = ObjectLog(bucket, ledger_bytes=ledger_bytes)
        super().__init__(
            self._objects,
            name=bucket.name,
            key=key,
            create=create,
            background=background,
            limits=limits,
            clock=clock,
        )

    def prepared(self, work: Callable[[], T], session_id: str | None = None) -> T:
        """Other writers are not locked out during the work; if one was faster, the work is repeated."""
        for pause in _PAUSES:
            try:
                return super().prepared(work, session_id)
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
                rewrite.compact_idle(self.frames, session_id, self.session_keys(session_id), newest_too=False)
        finally:
            self._merging.discard(session_id)

    def missing(self) -> StoreNotFound:
        """See `KeyedStore`."""
        return StoreNotFound.empty(self._bucket.name, check="the URL if you expected one")

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
