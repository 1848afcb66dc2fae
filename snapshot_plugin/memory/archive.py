"""The memory of one project, synchronously. One lock guards it, so any thread may call; each call is short."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from snapshot_plugin.memory.evict import trimmed
from snapshot_plugin.memory.files import MemoryFiles, encoded
from snapshot_plugin.memory.limits import Limits
from snapshot_plugin.memory.names import BASELINES, ERROR_HISTORY, NOISE, TIMINGS, Name
from snapshot_plugin.memory.privacy import without_secrets
from snapshot_plugin.memory.project import DIRECTORY
from snapshot_plugin.memory.reading import as_document, read_document
from snapshot_plugin.memory.records import ApiSchema, ErrorHistory, NoiseConfig, Timings
from snapshot_plugin.memory.register import ProjectRegister
from snapshot_plugin.memory.sessions import Sessions
from snapshot_plugin.memory.shapes import with_shapes
from snapshot_plugin.memory.shelf import Payload, Shelf
from snapshot_plugin.memory.standing import Standing
from snapshot_plugin.errors import (
    Damaged,
    InvalidInput,
    LimitExceeded,
    MemoryReadOnly,
    NotFound,
    SnapshotCorrupted,
    StoreUnavailable,
)
from snapshot_plugin.model.frozen import freeze
from snapshot_plugin.model.value import Value

__all__ = ["Archive", "Saved"]

DocumentT = TypeVar("DocumentT", ErrorHistory, ApiSchema, Timings, NoiseConfig)


class Saved(Value):
    """The receipt of a save: it is on disk.

    `evicted` names entries that had to go for it, `trimmed` counts entries inside the document that had to, and
    `redacted` counts, by kind, what was taken out: secrets, and the values of responses in a baseline.
    """

    namespace: str
    key: str
    bytes: int
    evicted: tuple[str, ...] = ()
    trimmed: int = 0
    redacted: dict[str, int] = Field(default_factory=dict)


class Archive:
    """Entries by namespace and key. `begin` first, `end` last."""

    def __init__(
        self, project: Path, *, limits: Limits, register: ProjectRegister, clock: Callable[[], datetime]
    ) -> None:
        self.project = project
        self.limits = limits
        self.clock = clock
        self.lock = threading.RLock()
        self.standing = Standing()
        self.noise = NoiseConfig()
        """The rules that are in effect."""
        self._files = MemoryFiles(project / DIRECTORY)
        self.shelf = Shelf(self._files, limits)
        self.sessions = Sessions(project, self._files, self.standing, clock=clock)
        self._register = register

    # Life --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Open the memory: as its writer, or else as a reader, or else without a disk."""
        with self.lock:
            try:
                self.become_writer()
            except (MemoryReadOnly, StoreUnavailable):
                self.sessions.look()
                self.shelf.used = dict(self.sessions.meta.used)
                self.tidy()
            else:
                self._trim(ERROR_HISTORY)
                self._trim(TIMINGS)
            self.apply_noise()

    def become_writer(self) -> None:
        """Make sure that this process may write, and catch up with what happened while it could not.

        Raises:
            MemoryReadOnly: another process writes.
            StoreUnavailable: the disk refuses.
        """
        if not self.sessions.become_writer():
            return
        self.shelf.used = {**self.sessions.meta.used, **self.shelf.used}
        try:
            self.shelf.retry()
        except StoreUnavailable as error:
            self.standing.refused(error)
            raise
        self.tidy()

    def end(self) -> None:
        """Note the end of the session, and let the next one write."""
        with self.lock:
            if self.sessions.writes:
                try:
                    self.sessions.note(last_session=self.clock())
                except StoreUnavailable as error:
                    self.standing.refused(error)
                self.sessions.end()

    def tidy(self) -> None:
        """Look at what there is; as the writer, let go of what is too old, and tell other projects our size."""
        self.shelf.elsewhere = self._register.others(self.project)
        try:
            self.shelf.look(self.clock())
            if self.sessions.writes:
                self.shelf.drop(self.shelf.overdue(self.clock()))
                self._register.note(self.project, self.shelf.total)
        except StoreUnavailable as error:
            self.standing.refused(error)

    def _trim(self, name: Name) -> None:
        if name not in self.shelf:
            return
        try:
            raw = self.load(name)
        except (NotFound, Damaged):
            return
        kept, gone = trimmed(name, raw, self.limits, self.clock())
        if gone:
            self.add(name, kept)

    # Entries -----------------------------------------------------------------------------------------------

    def save(self, name: Name, data: Any) -> Saved:
        """Store an entry; on disk when it returns. See `ProjectMemory.save`."""
        kept, gone = trimmed(name, freeze(data, "data"), self.limits, self.clock())
        payload, redacted = self.payload(name, kept)
        with self.lock:
            try:
                evicted = self._put(payload)
            finally:  # also where it is kept in memory only
                self._changed(name)
        return Saved(
            namespace=name.namespace,
            key=name.key,
            bytes=len(payload.data),
            evicted=tuple(map(str, evicted)),
            trimmed=gone,
            redacted=redacted,
        )

    def payload(self, name: Name, data: Any) -> tuple[Payload, dict[str, int]]:
        """*data* ready to be written, and what was taken out of it."""
        try:
            clean, redacted = without_secrets(freeze(data, "data"))
            if name.namespace == BASELINES:
                clean, responses = with_shapes(clean)
                redacted |= {"response": responses} if responses else {}
            content, size = encoded(clean)
        except RecursionError:
            raise InvalidInput(f"{name} is nested too deeply", hint="flatten it") from None
        return Payload(name, content, size), redacted

    def _put(self, payload: Payload) -> list[Name]:
        try:
            self.become_writer()
        except StoreUnavailable as error:
            self.shelf.keep_in_memory(payload, self.clock())
            raise _kept_in_memory(payload.name, error) from error
        try:
            return self.shelf.put(payload, self.clock())
        except StoreUnavailable as error:
            self.standing.refused(error)
            raise _kept_in_memory(payload.name, error) from error
        finally:
            self.shelf.used[str(payload.name)] = self.clock()

    def load(self, name: Name) -> Any:
        """An entry's data. See `ProjectMemory.load`."""
        with self.lock:
            try:
                data = self.shelf.read(name)
            except SnapshotCorrupted as error:
                where = self._keep_aside(name, error)
                raise SnapshotCorrupted(f"{name} is damaged{where}", hint="save it again") from error
            if name.namespace == BASELINES:
                self.shelf.used[str(name)] = self.clock()
            return data

    def _keep_aside(self, name: Name, error: SnapshotCorrupted) -> str:
        """Move a damaged file out of the way, if we are the writer; report it either way."""
        where = ""
        if self.sessions.writes:
            try:
                where = f"; it is kept as {DIRECTORY}/{self._files.set_aside(name.file)}"
            except StoreUnavailable as refusal:
                self.standing.refused(refusal)
        self.standing.report(f"{error.message}{where}")
        return where

    def delete(self, name: Name) -> None:
        """Remove an entry. See `ProjectMemory.delete`."""
        with self.lock:
            try:
                self.become_writer()
            except StoreUnavailable as error:
                self.shelf.delete_in_memory(name)
                raise _deleted_in_memory(name, error) from error
            try:
                self.shelf.delete(name)
            except StoreUnavailable as error:
                self.standing.refused(error)
                raise _deleted_in_memory(name, error) from error
            self.shelf.used.pop(str(name), None)
            self._changed(name)

    def clear(self) -> None:
        """Forget the whole project. See `ProjectMemory.clear`."""
        with self.lock:
            self.become_writer()
            self.shelf.clear()
            self.noise = NoiseConfig()
            self.standing.forget_reports()
            self.sessions.start_over()

    def entries(self) -> dict[str, list[str]]:
        """Every namespace with its keys, in order."""
        with self.lock:
            found: dict[str, list[str]] = {}
            for name in sorted(self.shelf.look(self.clock())):
                found.setdefault(name.namespace, []).append(name.key)
            return found

    def _changed(self, name: Name) -> None:
        if name.namespace == NOISE:
            self.apply_noise()

    # Documents ---------------------------------------------------------------------------------------------

    def document(self, kind: type[DocumentT], name: Name) -> DocumentT:
        """A document of a known namespace; an empty one where there is none, or a damaged one."""
        return read_document(kind, self._raw_or_nothing(name), seen_at=self.clock())

    def all_of(self, kind: type[DocumentT], namespace: str) -> list[DocumentT]:
        """Everything a namespace holds as documents of *kind*, also single entries under keys of their own."""
        names = sorted(name for name in self.shelf.names if name.namespace == namespace)
        raws = [(name, self._raw_or_nothing(name)) for name in names]
        return [
            read_document(kind, as_document(kind, name.key, raw), seen_at=self.shelf.saved_at(name, self.clock()))
            for name, raw in raws
            if raw != {}
        ]

    def apply_noise(self) -> None:
        """Put the stored noise rules into effect."""
        rules = [rule for config in self.all_of(NoiseConfig, NOISE) for rule in config.rules]
        self.noise = NoiseConfig(rules=tuple(rules))

    def add(self, name: Name, document: Any) -> bool:
        """Store a document that was added to; it holds no secrets. False: there is no room, which is reported.

        Where the disk refuses it is kept in memory.
        """
        try:
            self.shelf.put(Payload(name, *encoded(document)), self.clock())
        except LimitExceeded as error:
            self.standing.report(f"what was seen could not be stored: {error.message}")
            return False
        except StoreUnavailable as error:
            self.standing.refused(error)
        return True

    def _raw_or_nothing(self, name: Name) -> Any:
        try:
            return self.load(name)
        except (NotFound, Damaged):
            return {}


def _kept_in_memory(name: Name, error: StoreUnavailable) -> StoreUnavailable:
    return StoreUnavailable(
        f"{name} is kept in memory only and will be lost with this process: {error.message}", hint=error.hint
    )


def _deleted_in_memory(name: Name, error: StoreUnavailable) -> StoreUnavailable:
    return StoreUnavailable(f"{name} is deleted in memory only: {error.message}", hint=error.hint)
