"""One place in an object store, with five operations. Every failure is raised as an error of this package.

Writing is always conditional: an object is made only where there is none, and changed only from the version that
the writer has seen. There is no other way to write, so no writer can overwrite a version it has not seen.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import obstore
from obstore import exceptions as refusals

from snapshot_plugin.errors import InvalidInput, StoreForbidden, StoreNotFound, StoreUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["Bucket", "ObjectMoved", "Stored", "many_at_once"]

T = TypeVar("T")
_AT_ONCE = 16
_LONGEST = 300
_REFUSED = (
    "ExpiredToken", "InvalidToken", "TokenRefreshRequired", "RequestExpired", "AccessDenied",
    "AuthenticationFailed", "AuthorizationFailure",
)  # fmt: skip
"""Codes of credentials that are refused with another status than 403: sending the request again does not help."""


class ObjectMoved(Exception):
    """The object has changed since the writer read it. Nothing was written, or it was and the response was lost."""


class Stored(NamedTuple):
    """An object's bytes, and the tag of just this version of it."""

    data: bytes
    tag: str
    listed_tag: str = ""
    """The tag that a listing shows for this version; empty if it shows none."""


class Bucket:
    """A bucket, or one prefix of it. Thread-safe."""

    def __init__(
        self, store: ObjectStore, *, name: str, variables: str = "AWS_…", counts_versions: bool = False
    ) -> None:
        self._store, self.name, self._variables = store, name, variables
        self._counts_versions = counts_versions
        self.bare_tags = False
        """Whether the service wants tags without their quotation marks, against the standard."""
        self.is_conditional = self.is_atomic = False
        """Whether a test showed that the service honours conditions and lets exactly one of several writers win."""

    @property
    def lists_tags(self) -> bool:
        """Whether a listing shows the same tag for a version as `put` returns."""
        return not self._counts_versions

    @property
    def wrong_tag(self) -> str:
        """A tag that no version has."""
        return "1" if self._counts_versions else '"another-version"'

    def get(self, path: str) -> Stored | None:
        """The current object; None if there is none."""
        with self._asking(f"reading {path}"):
            try:
                found = obstore.get(self._store, path)
                meta = found.meta
                return Stored(self._ours(found.bytes().to_bytes()), self._tag_of(meta), meta["e_tag"] or "")
            except FileNotFoundError as error:
                self._must_be_there(error)
                return None

    def from_offset(self, path: str, offset: int) -> bytes | None:
        """An object's bytes from *offset* on; None if there is none. Azure cannot be asked for the last ones."""
        with self._asking(f"reading {path}"):
            try:
                return obstore.get(self._store, path, options={"range": {"offset": offset}}).bytes().to_bytes()
            except FileNotFoundError:
                return None

    def put(self, path: str, data: bytes, *, tag: str | None) -> str:
        """Make an object (*tag* None), or change the version of it that has *tag*. Durable on return.

        Raises:
            ObjectMoved: there is one already, or it is not that version any more.
        """
        with self._asking(f"writing {path}"):
            try:
                mode = "create" if tag is None else self._version(tag)
                # One request or nothing: the parts of a multipart upload would not be conditional.
                written = obstore.put(self._store, path, data, mode=mode, use_multipart=False)  # type: ignore[arg-type]
            except (refusals.AlreadyExistsError, refusals.PreconditionError) as error:
                raise ObjectMoved(path) from error
            except FileNotFoundError as error:
                self._must_be_there(error)
                raise ObjectMoved(path) from error  # Amazon's answer for a version that no longer exists
            return self._tag_of(written)

    def _tag_of(self, about: Mapping[str, Any]) -> str:
        return about["version" if self._counts_versions else "e_tag"] or ""

    def _version(self, tag: str) -> dict[str, str]:
        if self._counts_versions:
            return {"version": tag}
        return {"e_tag": tag.strip('"') if self.bare_tags else tag}

    def names(self, path: str) -> list[str]:
        """What follows *path* and a slash in the name of each object under it."""
        return list(self.tags(path))

    def tags(self, path: str) -> dict[str, str]:
        """The same, each with `Stored.listed_tag`."""
        with self._asking(f"listing {path}"):
            found = {meta["path"]: meta["e_tag"] or "" for page in obstore.list(self._store, path) for meta in page}
        return {name.removeprefix(f"{path}/"): tag for name, tag in found.items()}

    def delete(self, paths: Sequence[str]) -> None:
        """Remove objects; missing ones are ignored."""
        if paths:
            with self._asking("removing objects"), contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store, list(paths))

    def _ours(self, data: bytes) -> bytes:
        """*data*, unless it is a web page, which no object of ours is."""
        if data[:64].lstrip().lower().startswith((b"<!doctype html", b"<html")):
            raise StoreUnavailable(
                f"{self.name}: a web page came instead of the object",
                hint=f"this network may ask you to log in first; check that and {self._variables}, then try again",
            )
        return data

    def _must_be_there(self, error: Exception) -> None:
        if any(code in str(error) for code in ("NoSuchBucket", "ContainerNotFound")):
            raise StoreNotFound(
                f"there is no bucket for {self.name}",
                hint=f"create the bucket, or check its name and {self._variables}",
            ) from error

    @contextlib.contextmanager
    def _asking(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (refusals.PermissionDeniedError, refusals.UnauthenticatedError) as error:
            raise StoreForbidden(f"{self.name}: {doing} is not allowed: {_reason(error)}") from error
        except refusals.BaseError as error:
            self._must_be_there(error)
            if any(code in str(error) for code in _REFUSED):
                raise StoreForbidden(f"{self.name}: {doing} is not allowed: {_reason(error)}") from error
            if "NotImplemented" in str(error):
                raise InvalidInput(
                    f"{self.name} cannot hold snapshots: {doing} failed: {_reason(error)}",
                    hint="use a service that honours If-None-Match and If-Match when an object is put",
                ) from error
            raise StoreUnavailable(
                f"{self.name}: {doing} failed: {_reason(error)}",
                hint=f"check the network and {self._variables} in the environment, then try again",
            ) from error


def _reason(error: Exception) -> str:
    """The service's error code and message, without the XML around them."""
    first = " ".join(str(error).partition("\n\nDebug source")[0].split())
    told = [match[1] for name in ("Code", "Message") if (match := re.search(f"<{name}>([^<]+)</{name}>", first))]
    status = re.search(r"status code: ([^:<]+)", first)
    if told or status:
        return ": ".join([*([status[1].strip()] if status else []), *told])[:_LONGEST]
    return re.sub(r"<[^>]*>", " ", first)[:_LONGEST]


def many_at_once(work: Callable[[str], T], names: Sequence[str]) -> list[T]:
    """The results of *work* for each name. Calls run concurrently, because each waits for the network."""
    with ThreadPoolExecutor(_AT_ONCE, "asnap-objects") as threads:
        return list(threads.map(work, names))
