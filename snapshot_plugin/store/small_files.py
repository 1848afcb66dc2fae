"""What a store keeps in small files, over any `FrameLog`: keys, and the lines of the operation log.

A store on a disk keeps its keys in a directory instead (`store/keyfiles.py`), and the command line keeps its
operation log beside it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from snapshot_plugin.errors import SessionLocked, SnapshotCorrupted, SnapshotError, StoreUnavailable
from snapshot_plugin.store.log import FileChanged, FrameLog, SmallFile

__all__ = ["KEYS", "OPERATIONS", "KeysFile", "SharedLines", "decoded_keys", "encoded_keys"]

KEYS, OPERATIONS = "keys.json", "operations.jsonl"
_KEYS_SECONDS = 60.0
_PAUSES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)


def encoded_keys(files: Mapping[str, bytes]) -> bytes:
    """The files of a keychain as one."""
    texts = {name: data.decode("utf-8", "surrogateescape") for name, data in files.items()}
    return json.dumps(texts, indent=1, sort_keys=True).encode() + b"\n"


def decoded_keys(data: bytes) -> dict[str, bytes]:
    """The files in what `encoded_keys` made; `SnapshotCorrupted` if it is damaged."""
    try:
        return {str(name): text.encode("utf-8", "surrogateescape") for name, text in json.loads(data).items()}
    except (ValueError, AttributeError):
        raise SnapshotCorrupted(f"{KEYS} is damaged", hint="restore it from a backup") from None


class KeysFile:
    """`KeyFiles` in one small file, so a change of several is one write."""

    def __init__(self, log: FrameLog, place: str) -> None:
        self._log, self._place = log, place
        self._files: dict[str, bytes] | None = None
        """As `names` saw them last; inside `changing`, as they will be."""
        self._is_changing = False
        self._looked: float | None = None
        self._stamp: object = None

    def _read(self) -> tuple[dict[str, bytes], str | None]:
        found = self._log.get(KEYS)
        return (decoded_keys(found.data), found.tag) if found else ({}, None)

    def names(self) -> list[str] | None:
        """See `KeyFiles`."""
        if self._files is None or not self._is_changing:
            self._files = self._read()[0]
        return list(self._files) or None

    def read(self, name: str) -> bytes | None:
        """See `KeyFiles`."""
        if self._files is None:
            self._files = self._read()[0]
        return self._files.get(name)

    def stamp(self, name: str) -> object:
        """See `KeyFiles`. A look may be a request, so there is one a minute; a look that fails shows no change."""
        _ = name
        if self._looked is None or time.monotonic() - self._looked >= _KEYS_SECONDS:
            with contextlib.suppress(SnapshotError):
                self._stamp = self._log.stamp(KEYS)
            self._looked = time.monotonic()
        return self._stamp

    def create(self, files: Mapping[str, bytes]) -> bool:
        """See `KeyFiles`."""
        return self._is_put(encoded_keys(files), None)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """See `KeyFiles`. No lock: if another process changes the keys meanwhile, our change fails as a whole."""
        before, tag = self._read()
        self._files, self._is_changing = dict(before), True
        try:
            yield
            if self._files != before:
                self._put(self._files, tag)
        finally:
            self._files, self._is_changing = None, False

    def write(self, name: str, data: bytes) -> None:
        """See `KeyFiles`."""
        self._files = {**(self._files or {}), name: data}

    def remove(self, name: str) -> None:
        """See `KeyFiles`."""
        self._files = {key: data for key, data in (self._files or {}).items() if key != name}

    def replace(self, files: Mapping[str, bytes]) -> None:
        """Make these, and no others, the files of the keychain."""
        before, tag = self._read()
        if before != files:
            self._put(files, tag)

    def _put(self, files: Mapping[str, bytes], tag: str | None) -> None:
        if not self._is_put(encoded_keys(files), tag):
            raise SessionLocked(
                f"another process is changing the keys of {self._place}", hint="try again in a moment"
            )

    def _is_put(self, data: bytes, tag: str | None) -> bool:
        try:
            self._log.put(KEYS, data, tag)
        except FileChanged:
            found = self._log.get(KEYS)
            return found is not None and found.data == data  # our own write with a lost answer
        return True


class SharedLines:
    """The lines of the operation log in one small file: ``asnap undo`` then works from every machine."""

    def __init__(self, log: FrameLog, place: str, prepare: Callable[[], None]) -> None:
        self._log, self._place, self._prepare = log, place, prepare

    def read_lines(self) -> list[bytes]:
        """All lines, oldest first."""
        self._prepare()
        return _lines(self._log.get(OPERATIONS))

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
            seen = self._log.get(OPERATIONS)
            if seen is not None and seen.data == data:  # it was written, and only the answer was lost
                return len(data)
            data = b"".join(line + b"\n" for line in change(_lines(seen)))
            try:
                self._log.put(OPERATIONS, data, seen.tag if seen else None)
            except FileChanged:
                time.sleep(pause)  # in a worker thread
            else:
                return len(data)
        raise StoreUnavailable(
            f"other machines keep writing down what they do to {self._place}", hint="try again in a moment"
        )


def _lines(seen: SmallFile | None) -> list[bytes]:
    return seen.data.split(b"\n")[:-1] if seen else []
