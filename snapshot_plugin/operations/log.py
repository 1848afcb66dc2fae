"""The operation log: what commands changed, and how each change is undone.

JSON lines: with the store where it can keep them (a database), else in the user's state directory. Each line is an
operation with its **steps**, plain data that describes how to undo it:

- ``{"do": "delete", "session_id", "seq"}``: a session made by import, fork or merge goes to the trash, if *seq* is
still its newest snapshot;
- ``{"do": "undelete", "token"}``: a deleted session is restored;
- ``{"do": "label", "session_id", "title", "tags", "pinned", "note"}``: labels are set back; only those given
change;
- ``{"do": "restore", "session_id", "token"}``: dropped snapshots are restored from the copy in the trash;
- ``{"do": "drop", "session_id", "seqs"}``: snapshots are dropped (again), with a copy in the trash;
- ``{"do": "revert", "session_id", "seq"}``: the session is reverted to that snapshot.

An undo is an operation too, so it can be undone. For an encrypted store each line is sealed, because names and
notes are content. Unreadable lines are skipped; the log is best-effort.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import anyio.to_thread
from pydantic import ValidationError

from snapshot_plugin.codec.keys import NONCE_BYTES, Random
from snapshot_plugin.errors import SnapshotError, StoreUnavailable
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.value import JsonObject, Timestamp, Value
from snapshot_plugin.system.files import (
    disk_errors,
    locked,
    make_private_dir,
    replace_file,
    sync_all,
    sync_dir,
    write_all,
)

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys
    from snapshot_plugin.store.base import SnapshotStore

__all__ = [
    "MAX_BYTES",
    "LineFile",
    "Operation",
    "OperationLines",
    "OperationLog",
    "deletion",
    "log_path",
    "newest_to_undo",
]

MAX_BYTES = 4 << 20
"""Above this size, the older half of the log is dropped."""

_PLACE = b"asnap operations"
_LOCK_TIMEOUT = 10.0
_UNWRITTEN = "undo does not know of it; restore what was forgotten by the ids that asnap purge -n lists"


async def deletion(store: SnapshotStore, session_id: str) -> dict[str, Any]:
    """The step that moves a session to the trash, unless it is changed after this call."""
    tip = await store.tip(session_id)
    return {"do": "delete", "session_id": session_id, "seq": tip.seq if tip else 0}


def log_path(state: Path, store: str) -> Path:
    """Return the log file for *store*. Its id or URL may hold any character; the file name does not."""
    return state / "operations" / f"{hashlib.sha256(store.encode()).hexdigest()[:32]}.jsonl"


class Operation(Value):
    """What a command did. `steps` undo it; `undoes` names the operation that this one has undone."""

    id: str
    at: Timestamp
    kind: str
    summary: str
    steps: tuple[JsonObject, ...] = ()
    undoes: str | None = None
    undone: bool = False
    """Whether it has been undone; derived from later operations, never stored."""


class OperationLog:
    """The operations on one store. Any number of processes may use it at once.

    Args:
        place: the file, or what keeps the lines elsewhere.
        keys: what seals each line; None for a store that is not encrypted.
    """

    def __init__(
        self,
        place: Path | OperationLines,
        *,
        keys: SessionKeys | None = None,
        clock: Clock = utc_now,
        random: Random = os.urandom,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._lines = LineFile(place) if isinstance(place, Path) else place
        self._keys = keys
        self._clock = clock
        self._random = random
        self._max_bytes = max_bytes

    async def record(
        self, *, kind: str, summary: str, steps: Sequence[Mapping[str, Any]], undoes: str | None = None
    ) -> Operation:
        """Log an operation; durable on return.

        Raises:
            StoreUnavailable: a disk error. The operation stays in effect, but cannot be undone.
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
        lines = await anyio.to_thread.run_sync(self._lines.read_lines)
        return _told(tuple(found for line in lines if (found := self._decoded(line))))[::-1]

    async def forget(self, gone: Callable[[Operation], bool]) -> int:
        """Permanently drop the operations for which *gone* returns true. Returns how many."""
        return await self.rewrite(lambda known: None if gone(known) else known)

    async def rewrite(self, edit: Callable[[Operation], Operation | None]) -> int:
        """Replace each operation by what *edit* returns, or drop it for None. Returns how many changed."""
        changed = 0

        def edited(lines: list[bytes]) -> Iterator[bytes]:
            nonlocal changed
            for line in lines:
                known = self._decoded(line)
                after = edit(known) if known else known
                changed += after is not known
                if after is known:
                    yield line
                elif after is not None:
                    yield self._encoded(after)

        await anyio.to_thread.run_sync(self._lines.change_lines, lambda lines: list(edited(lines)))
        return changed

    async def seal(self) -> None:
        """Seal the lines that were written before the store was encrypted."""
        in_the_clear = OperationLog(self._lines)

        def sealed(lines: list[bytes]) -> list[bytes]:
            return [self._encoded(found) if (found := in_the_clear._decoded(line)) else line for line in lines]

        if self._keys is not None:
            await anyio.to_thread.run_sync(self._lines.change_lines, sealed)

    def _append(self, done: Operation) -> None:
        if self._lines.append_line(self._encoded(done)) > self._max_bytes:
            self._lines.change_lines(self._shortened)

    def _shortened(self, lines: list[bytes]) -> list[bytes]:
        kept: list[bytes] = []
        room = self._max_bytes // 2
        for line in reversed(lines):
            room -= len(line) + 1
            if kept and room < 0:
                break
            kept.append(line)
        return kept[::-1]

    # Lines --------------------------------------------------------------------------------------------------------

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
    """Return *operations*, oldest first, each with whether it is undone. Undoing an undo redoes the operation."""
    places = {each.id: place for place, each in enumerate(operations)}
    undone: dict[str, bool] = {}
    for place, each in enumerate(operations):
        before, target, is_undone = place, each.undoes, True
        while (
            target is not None and places.get(target, place) < before
        ):  # an undo refers only to earlier operations
            undone[target] = is_undone
            before = places[target]
            target, is_undone = operations[before].undoes, not is_undone
    return tuple(each.evolve(undone=undone.get(each.id, False)) for each in operations)


def newest_to_undo(operations: Sequence[Operation]) -> Operation | None:
    """The operation that a plain ``undo`` reverts: the newest of *operations* that is not undone."""
    return next((each for each in operations if not each.undone and each.undoes is None), None)


# Where the lines are --------------------------------------------------------------------------------------


@runtime_checkable
class OperationLines(Protocol):
    """Lines in order. Any number of processes may use them at once."""

    def read_lines(self) -> list[bytes]:
        """All lines, oldest first."""

    def append_line(self, line: bytes) -> int:
        """Add a line; durable on return. Returns how many bytes there are."""

    def change_lines(self, change: Callable[[list[bytes]], Sequence[bytes]]) -> None:
        """Replace the lines by what *change* returns, while holding the lock."""


class LineFile:
    """Lines in a file. It and its directory are made, private, with the first line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_lines(self) -> list[bytes]:
        """See `OperationLines`."""
        with disk_errors("reading what was done, for undo,"):
            try:
                return self.path.read_bytes().split(b"\n")[:-1]  # what does not end in a line end is torn
            except FileNotFoundError:
                return []

    def append_line(self, line: bytes) -> int:
        """See `OperationLines`."""
        with self._writing():
            fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                size = os.fstat(fd).st_size
                torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
                write_all(fd, (b"\n" if torn else b"") + line + b"\n")
                sync_all(fd)
            finally:
                os.close(fd)
            if not size:
                sync_dir(self.path.parent)
        return size + len(line) + 1

    def change_lines(self, change: Callable[[list[bytes]], Sequence[bytes]]) -> None:
        """See `OperationLines`."""
        if not self.path.exists():
            return
        with self._writing():
            before = self.read_lines()
            after = list(change(before))
            if after != before:
                replace_file(self.path, b"".join(line + b"\n" for line in after))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Keep other writers out."""
        with disk_errors("writing down what was done, for undo,"):
            make_private_dir(self.path.parent)
            guard = self.path.with_name(self.path.name + ".lock")
            with locked(guard, session_id="(operation log)", timeout=_LOCK_TIMEOUT):
                yield
