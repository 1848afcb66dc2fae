"""A disk that keeps only what it was made to keep. It promises what POSIX promises and no more.

What a file holds is safe once the file was synced, and the entry of a file once its directory was. At a power cut
each sector of each write that was not synced is kept, lost or turned into garbage; a change of a directory that was
not synced is kept or lost, but none is kept without the earlier ones of the same directory.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["SECTOR", "Change", "Directory", "File", "Node", "Tree"]

SECTOR = 512


@dataclass(eq=False)
class File:
    """What a file holds now, and what the disk surely holds of it."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)
    """Writes (offset, data) and new lengths since the last sync, in order."""

    def write(self, at: int, data: bytes) -> None:
        """Put *data* at an offset; a gap before it is filled with zeros."""
        self.content.extend(bytes(max(0, at - len(self.content))))
        self.content[at : at + len(data)] = data
        self.pending.append((at, data))

    def cut(self, length: int) -> None:
        """Make it that long."""
        _cut(self.content, length)
        self.pending.append(length)

    def sync(self) -> None:
        """Make all of it safe."""
        self.durable, self.pending = bytes(self.content), []

    def after_cut(self, chance: random.Random, *, spread: bool) -> bytes:
        """What the disk holds of it after a power cut. *spread*: garbage fills whole sectors."""
        out = bytearray(self.durable)
        for change in self.pending:
            if isinstance(change, tuple):
                _write_some(out, *change, chance, spread=spread)
            elif chance.random() < 0.5:
                _cut(out, change)
        return bytes(out)


def _cut(content: bytearray, length: int) -> None:
    content[length:] = bytes(max(0, length - len(content)))


def _write_some(out: bytearray, at: int, data: bytes, chance: random.Random, *, spread: bool) -> None:
    if not data:
        return
    for sector in range(at // SECTOR, (at + len(data) - 1) // SECTOR + 1):
        start, end = max(at, sector * SECTOR), min(at + len(data), (sector + 1) * SECTOR)
        fate = chance.choice(("keep", "drop", "garble"))
        if fate == "drop":
            continue
        new = data[start - at : end - at]
        if fate == "garble":
            if spread:
                start, end = sector * SECTOR, max(end, min(len(out), (sector + 1) * SECTOR))
            new = chance.randbytes(end - start)
        out.extend(bytes(max(0, start - len(out))))
        out[start:end] = new


@dataclass(eq=False)
class Directory:
    """The entries there are now, and those the disk surely has."""

    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)


Node = File | Directory


@dataclass(frozen=True, eq=False)
class Change:
    """Entries that came and went together, as a rename has it."""

    gone: tuple[tuple[Directory, str], ...] = ()
    new: tuple[tuple[Directory, str, Node], ...] = ()

    @property
    def touches(self) -> frozenset[int]:
        """The directories it is about."""
        return frozenset(id(directory) for directory, *_ in (*self.gone, *self.new))

    def happen(self) -> None:
        """Change what is there now."""
        for directory, name in self.gone:
            directory.entries.pop(name, None)
        for directory, name, node in self.new:
            directory.entries[name] = node

    def last(self) -> None:
        """Change what the disk surely has."""
        for directory, name in self.gone:
            directory.durable.pop(name, None)
        for directory, name, node in self.new:
            directory.durable[name] = node


class Tree:
    """Files and directories below one place."""

    def __init__(self) -> None:
        self.top = Directory()
        self._pending: list[Change] = []

    @classmethod
    def of(cls, place: Path) -> Tree:
        """What is at *place*, all of it safe."""
        tree = cls()
        tree.top = _safe(place)
        return tree

    def at(self, parts: Iterable[str]) -> Node | None:
        """What is there now under that name."""
        node: Node | None = self.top
        for part in parts:
            node = node.entries.get(part) if isinstance(node, Directory) else None
        return node

    def change(self, change: Change) -> None:
        """Entries come and go."""
        change.happen()
        self._pending.append(change)

    def sync(self, directory: Directory) -> None:
        """Make the entries of a directory safe, and with them what had to come before."""
        needed: set[int] = {id(directory)}
        kept: list[Change] = []
        for change in reversed(self._pending):
            if change.touches & needed:
                needed |= change.touches
                kept.append(change)
        for change in reversed(kept):
            change.last()
        self._pending = [change for change in self._pending if change not in kept]

    def after_cut(self, place: Path, chance: random.Random, *, spread: bool) -> None:
        """Write down at *place*, a new directory, what the disk may hold after a power cut."""
        lost: set[int] = set()
        for change in self._pending:
            if change.touches & lost or chance.random() < 0.5:
                lost |= change.touches
            else:
                change.last()
        self._pending = []
        _write_down(self.top, place, chance, spread=spread)


def _safe(place: Path) -> Directory:
    entries: dict[str, Node] = {}
    for path in sorted(place.iterdir()):
        data = b"" if path.is_dir() else path.read_bytes()
        entries[path.name] = _safe(path) if path.is_dir() else File(bytearray(data), data)
    return Directory(entries, dict(entries))


def _write_down(directory: Directory, place: Path, chance: random.Random, *, spread: bool) -> None:
    place.mkdir(mode=0o700)
    for name, node in directory.durable.items():
        if isinstance(node, Directory):
            _write_down(node, place / name, chance, spread=spread)
        else:
            (place / name).write_bytes(node.after_cut(chance, spread=spread))
