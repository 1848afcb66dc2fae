"""The operation log: what commands changed, and how each change is taken back.

One file of JSON lines per store, in the user's state directory. Each line is an operation with its **steps**, plain
data that says what to do to take it back:

- ``{"do": "delete", "session_id"}``: what was made (by import, fork, merge) goes to the trash;
- ``{"do": "undelete", "token"}``: what was deleted comes back;
- ``{"do": "label", "session_id", "title", "tags", "pinned", "note"}``: names as they were; only those given change;
- ``{"do": "restore", "session_id", "token"}``: dropped snapshots come back from the copy in the trash;
- ``{"do": "drop", "session_id", "seqs"}``: snapshots are dropped (again), with a copy in the trash;
- ``{"do": "revert", "session_id", "seq"}``: the session is as it was in that snapshot.

An undo is an operation too, so it can be taken back. For an encrypted store each line is sealed, for names and
notes are content. A line that a crash tore, or that cannot be opened, is passed over: the log is no data.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from pydantic import ValidationError

from snapshot_plugin.codec.keys import NONCE_BYTES, Random
from snapshot_plugin.errors import SnapshotError, StoreUnavailable
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.value import JsonObject, Timestamp, Value
from snapshot_plugin.store.files import disk_errors, make_private_dir, replace_file, sync_all, sync_dir, write_all
from snapshot_plugin.store.lock import locked

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys

__all__ = ["MAX_BYTES", "Operation", "OperationLog", "log_path", "newest_to_undo"]

MAX_BYTES = 4 << 20
"""Over this size the older half of the log goes."""

_PLACE = b"asnap operations"
_LOCK_TIMEOUT = 10.0
_UNWRITTEN = "undo does not know of it; what was forgotten comes back by the ids that asnap purge -n shows"


def log_path(state: Path, store: str) -> Path:
    """Where the operations on *store* are written down; its id or URL may hold anything, a file name may not."""
    return state / "operations" / f"{hashlib.sha256(store.encode()).hexdigest()[:32]}.jsonl"


class Operation(Value):
    """Something a command did. `steps` take it back; `undoes` names the operation that this one took back."""

    id: str
    at: Timestamp
    kind: str
    summary: str
    steps: tuple[JsonObject, ...] = ()
    undoes: str | None = None
    undone: bool = False
    """Whether it has been taken back; told by the operations after it, never stored."""


class OperationLog:
    """The operations on one store. Any number of processes may use it at once.

    Args:
        path: the file; it and its directory are made, private, with the first operation.
        keys: what seals each line; None for a store that is not encrypted.
    """

    def __init__(
        self,
        path: Path,
        *,
        keys: SessionKeys | None = None,
        clock: Clock = utc_now,
        random: Random = os.urandom,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.path = path
        self._keys = keys
        self._clock = clock
        self._random = random
        self._max_bytes = max_bytes

    async def record(
        self, *, kind: str, summary: str, steps: Sequence[Mapping[str, Any]], undoes: str | None = None
    ) -> Operation:
        """Write down what was done; durable on return.

        Raises:
            StoreUnavailable: the disk refused. What was done stays done; it can only not be undone.
        """
        done = Operation(
            id=new_id(), at=self._clock(), kind=kind, summary=summary, steps=tuple(map(dict, steps)), undoes=undoes
        )
        try:
            await anyio.to_thread.run_sync(self._append, done)
        except StoreUnavailable as error:
            raise StoreUnavailable(f"{summary}: that is done, but {error.message}", hint=_UNWRITTEN) from error
        return done

    async def read(self) -> tuple[Operation, ...]:
        """Every operation that is still known, newest first."""
        lines = await anyio.to_thread.run_sync(self._lines)
        return _told(tuple(found for line in lines if (found := self._decoded(line))))[::-1]

    async def forget(self, gone: Callable[[Operation], bool]) -> int:
        """Drop the operations for which *gone* holds, for good. Returns how many."""
        return await anyio.to_thread.run_sync(self._forget, gone)

    async def seal(self) -> None:
        """Seal the lines that were written before the store was encrypted."""
        if self._keys is not None and self.path.exists():
            await anyio.to_thread.run_sync(self._seal)

    def _seal(self) -> None:
        in_the_clear = OperationLog(self.path)
        with self._writing():
            lines = [
                self._encoded(found) if (found := in_the_clear._decoded(line)) else line for line in self._lines()
            ]
            replace_file(self.path, b"".join(line + b"\n" for line in lines))

    # Writing ---------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Keep other writers out."""
        with disk_errors("writing down what was done, for undo,"):
            make_private_dir(self.path.parent)
            guard = self.path.with_name(self.path.name + ".lock")
            with locked(guard, session_id="(operation log)", timeout=_LOCK_TIMEOUT):
                yield

    def _append(self, done: Operation) -> None:
        line = self._encoded(done) + b"\n"
        with self._writing():
            fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                size = os.fstat(fd).st_size
                torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
                write_all(fd, b"\n" + line if torn else line)
                sync_all(fd)
            finally:
                os.close(fd)
            if not size:
                sync_dir(self.path.parent)
            if size + len(line) > self._max_bytes:
                self._shorten()

    def _forget(self, gone: Callable[[Operation], bool]) -> int:
        if not self.path.exists():
            return 0
        with self._writing():
            lines = self._lines()
            kept = [line for line in lines if not ((known := self._decoded(line)) and gone(known))]
            if len(kept) < len(lines):
                replace_file(self.path, b"".join(line + b"\n" for line in kept))
            return len(lines) - len(kept)

    def _shorten(self) -> None:
        kept: list[bytes] = []
        room = self._max_bytes // 2
        for line in reversed(self._lines()):
            room -= len(line) + 1
            if kept and room < 0:
                break
            kept.append(line)
        replace_file(self.path, b"".join(line + b"\n" for line in reversed(kept)))

    def _lines(self) -> list[bytes]:
        with disk_errors("reading what was done, for undo,"):
            try:
                return self.path.read_bytes().split(b"\n")[:-1]  # what does not end in a line end is torn
            except FileNotFoundError:
                return []

    # Lines -----------------------------------------------------------------------------------------------

    def _encoded(self, done: Operation) -> bytes:
        line = json.dumps(done.raw(), separators=(",", ":")).encode()
        if self._keys is None:
            return line
        nonce, kid = self._random(NONCE_BYTES), self._keys.primary.encode()
        return base64.b64encode(bytes([len(kid)]) + kid + nonce + self._keys.seal(nonce, line, _PLACE))

    def _decoded(self, line: bytes) -> Operation | None:
        try:
            return Operation.model_validate_json(self._opened(line, self._keys) if self._keys else line)
        except (ValueError, ValidationError, SnapshotError):
            return None

    @staticmethod
    def _opened(line: bytes, keys: SessionKeys) -> bytes:
        sealed = base64.b64decode(line, validate=True)
        nonce = 1 + sealed[0] if sealed else 1
        body = nonce + NONCE_BYTES
        return keys.open(sealed[1:nonce].decode(errors="replace"), sealed[nonce:body], sealed[body:], _PLACE)


def _told(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """*operations*, oldest first, each saying whether it is undone. Undoing an undo makes it done again."""
    places = {each.id: place for place, each in enumerate(operations)}
    undone: dict[str, bool] = {}
    for place, each in enumerate(operations):
        before, target, is_undone = place, each.undoes, True
        while target is not None and places.get(target, place) < before:  # an undo only knows what came before it
            undone[target] = is_undone
            before = places[target]
            target, is_undone = operations[before].undoes, not is_undone
    return tuple(each.evolve(undone=undone.get(each.id, False)) for each in operations)


def newest_to_undo(operations: Sequence[Operation]) -> Operation | None:
    """Of *operations*, newest first, the one that a plain ``undo`` takes back: the newest that still stands."""
    return next((each for each in operations if not each.undone and each.undoes is None), None)
