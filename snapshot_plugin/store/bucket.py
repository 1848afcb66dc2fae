"""One place in an object store, as five verbs. Every failure is an error of this package.

Writing is always conditional: an object is made only where there is none, and changed only from the version that
the writer has seen. There is no other way to write, so nobody can overwrite what he does not know.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import obstore
from obstore import exceptions as refusals

from snapshot_plugin.errors import StoreForbidden, StoreNotFound, StoreUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["Bucket", "Moved", "Stored"]

_LONGEST = 300


class Moved(Exception):
    """The object is not what the writer believes. Nothing was written; or it was, and just the answer got lost."""


class Stored(NamedTuple):
    """An object's bytes, and the tag of just this version of it."""

    data: bytes
    tag: str


class Bucket:
    """A bucket, or what is under one prefix of it. Any number of threads may use it."""

    def __init__(self, store: ObjectStore, *, name: str) -> None:
        self._store, self.name = store, name

    def get(self, path: str) -> Stored | None:
        """An object as it is now; None if there is none."""
        with self._asking(f"reading {path}"):
            try:
                found = obstore.get(self._store, path)
                tag = found.meta["e_tag"]
                return Stored(found.bytes().to_bytes(), tag or "")
            except FileNotFoundError as error:
                self._must_be_there(error)
                return None

    def end_of(self, path: str, size: int) -> bytes | None:
        """The last *size* bytes of an object, or all if it has fewer; None if there is none."""
        with self._asking(f"reading {path}"):
            try:
                return obstore.get(self._store, path, options={"range": {"suffix": size}}).bytes().to_bytes()
            except FileNotFoundError:
                return None

    def put(self, path: str, data: bytes, *, tag: str | None) -> str:
        """Make an object (*tag* None), or change the version of it that has *tag*. Durable on return.

        Raises:
            Moved: there is one already, or it is not that version any more.
        """
        with self._asking(f"writing {path}"):
            try:
                mode = "create" if tag is None else {"e_tag": tag}
                # One request or nothing: the parts of a multipart upload would not be conditional.
                written = obstore.put(self._store, path, data, mode=mode, use_multipart=False)  # type: ignore[arg-type]
            except (refusals.AlreadyExistsError, refusals.PreconditionError) as error:
                raise Moved(path) from error
            except FileNotFoundError as error:
                self._must_be_there(error)
                raise Moved(path) from error  # Amazon says so of a version that is gone
            return written["e_tag"] or ""

    def names(self, path: str) -> list[str]:
        """What follows *path* and a slash in the name of each object under it."""
        with self._asking(f"listing {path}"):
            found = [meta["path"] for page in obstore.list(self._store, path) for meta in page]
        return [name.removeprefix(f"{path}/") for name in found]

    def delete(self, paths: Sequence[str]) -> None:
        """Remove objects. Those that are not there do not matter."""
        if paths:
            with self._asking("removing objects"), contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store, list(paths))

    def _must_be_there(self, error: Exception) -> None:
        if "NoSuchBucket" in str(error):
            raise StoreNotFound(
                f"there is no bucket for {self.name}", hint="create the bucket, or check its name and AWS_REGION"
            ) from error

    @contextlib.contextmanager
    def _asking(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (refusals.PermissionDeniedError, refusals.UnauthenticatedError) as error:
            raise StoreForbidden(f"{self.name}: {doing} is not allowed: {_reason(error)}") from error
        except refusals.BaseError as error:
            self._must_be_there(error)
            raise StoreUnavailable(
                f"{self.name}: {doing} failed: {_reason(error)}",
                hint="check the network, AWS_ENDPOINT_URL and the credentials in the environment, then try again",
            ) from error


def _reason(error: Exception) -> str:
    first = str(error).partition("\n\nDebug source")[0]
    return " ".join(first.split())[:_LONGEST]
