"""Changes to a memory, and applying them: the only place that decides what a change does.

A `MemoryChange` is plain data, so it can be applied by another process, or later. A `Batch` applies changes on top
of what is on disk and writes the result; without `commit` it is a view of how the memory would be.
"""

from __future__ import annotations

import json
from collections.abc import Container
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from pydantic import Field

from snapshot_plugin.errors import Damaged, InvalidInput, LimitExceeded, NotFound, SnapshotError, StoreUnavailable
from snapshot_plugin.memory.documents import MemoryDocument, is_resolved, matching_rule
from snapshot_plugin.memory.files import (
    API_SCHEMA,
    BASELINES,
    ERRORS,
    NOISE,
    PERFORMANCE,
    MemoryEntry,
    MemoryFiles,
    Name,
    Scan,
    encoded,
)  # fmt: skip
from snapshot_plugin.memory.kinds import KINDS, Entry, moment_in
from snapshot_plugin.memory.limits import MemoryLimits
from snapshot_plugin.memory.shapes import with_shapes
from snapshot_plugin.memory.understand import understand
from snapshot_plugin.model.value import Value

__all__ = ["META", "Batch", "MemoryChange", "Outcome", "Persistence", "Saved"]

META: Final = ("meta.json",)
Persistence = Literal["disk", "memory", "read-only"]
"""Whether saves last: on disk; only in this process; kept until the process that writes can be reached."""


class MemoryChange(NamedTuple):
    """Something to be done to a memory. `session` and `at` say which session asked for it, and when."""

    op: Literal["begin", "end", "save", "set", "resolve", "delete", "clear", "touch"]
    namespace: str = ""
    key: str = ""
    data: Any = None
    session: int = 0
    at: str = ""

    @property
    def name(self) -> Name:
        """The entry it is about."""
        return Name(self.namespace, self.key)

    def is_among(self, namespaces: Container[str]) -> bool:
        """Whether it changes one of *namespaces*; the times of endpoints come with the endpoints."""
        return self.namespace in namespaces or (self.namespace == API_SCHEMA and PERFORMANCE in namespaces)


class Saved(Value):
    """The receipt of a change.

    `understood` says what the memory made of it, `ignored` what it did not use and why, `better` how to write it
    next time. `evicted` names entries that had to go, `trimmed` counts entries that left a full document,
    `redacted` counts what was taken out by kind. `persistence` is ``disk`` unless the change waits to be written.
    """

    namespace: str = ""
    key: str = ""
    bytes: int = 0
    understood: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    better: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    trimmed: int = 0
    redacted: dict[str, int] = Field(default_factory=dict)
    persistence: Persistence = "disk"
    session: int | None = None
    previous: str | None = None


Outcome = Saved | SnapshotError
"""What came of a change: its receipt, or why it was refused."""


class Batch:
    """Changes on top of what is on disk. Reading and applying may raise `StoreUnavailable`."""

    def __init__(
        self, files: MemoryFiles, scan: Scan, meta: Entry, *, limits: MemoryLimits, now: datetime, elsewhere: int
    ) -> None:
        self.meta = meta
        self.entries = dict(scan.entries)
        """Every entry there is."""
        self.damaged: list[Name] = []
        self._files, self._scan, self._limits, self._now, self._elsewhere = files, scan, limits, now, elsewhere
        self._writes: dict[Name, bytes | None] = {}
        self._documents: dict[str, MemoryDocument] = {}
        self._dirty: set[str] = set()
        self._trimmed: dict[str, int] = {}
        self._refused: dict[str, LimitExceeded] = {}
        self._meta_before = dict(meta)
        self._cleared = False

    # Reading -----------------------------------------------------------------------------------------------

    @property
    def keys(self) -> dict[str, list[str]]:
        """The keys of every namespace, in order."""
        found: dict[str, list[str]] = {}
        for name in sorted(self.entries):
            found.setdefault(name.namespace, []).append(name.key)
        return found

    @property
    def total(self) -> int:
        """The bytes of everything."""
        return self._scan.overhead + sum(entry.size for entry in self.entries.values())

    def load(self, name: Name) -> Any:
        """An entry, or one entry of a document by its name; `NotFound`, `SnapshotCorrupted`."""
        kind = KINDS.get(name.namespace)
        if kind and name == kind.document and name.namespace in self._dirty:
            return self._documents[name.namespace].raw()
        if name in self.entries:
            return self._value(name)
        if kind and name.key in self.document(name.namespace).entries:
            return self.document(name.namespace).entries[name.key]
        raise NotFound(f"the project memory has no {name}", hint="list the namespace to see its keys")

    def document(self, namespace: str) -> MemoryDocument:
        """The document of a namespace, with the entries that lie beside it under keys of their own."""
        if namespace not in self._documents:
            main = KINDS[namespace].document
            document = self._read(main)
            for other in sorted(self.entries):
                if other.namespace == namespace and other != main:
                    for name, entry in self._read(other).entries.items():
                        document.entries.setdefault(name, entry)
            self._documents[namespace] = document
        return self._documents[namespace]

    def used_at(self, entry: MemoryEntry) -> datetime:
        """When an entry was last saved, read or compared."""
        return max(moment_in(self.meta["used"].get(str(entry.name))) or entry.saved_at, entry.saved_at)

    def _value(self, name: Name) -> Any:
        content = self._writes.get(name)
        return self._files.read(self.entries[name].path) if content is None else json.loads(content)

    def _read(self, name: Name) -> MemoryDocument:
        raw, entry = {}, self.entries.get(name)
        if entry is not None:
            try:
                raw = self._value(name)
            except NotFound:
                pass  # removed since it was looked at
            except Damaged:
                self.damaged.append(name)
        return MemoryDocument.read(name.namespace, name.key, raw, entry.saved_at if entry else self._now)

    # Applying ----------------------------------------------------------------------------------------------

    def apply(self, change: MemoryChange) -> Outcome:
        """Apply one change; one that is refused leaves everything before it in effect."""
        try:
            return getattr(self, f"_{change.op}")(change)  # type: ignore[no-any-return]
        except SnapshotError as error:
            return error

    def _begin(self, change: MemoryChange) -> Saved:
        count, previous = self.meta["session_count"] + 1, self.meta["last_session"]
        self.meta |= {"session_count": count, "last_session": change.at}
        for name in self._least_used(None, room=self._limits.baselines):
            self._remove(name)
        for namespace in (ERRORS, PERFORMANCE):
            if KINDS[namespace].document in self.entries and self.document(namespace).trim(self._limits, self._now):
                self._dirty.add(namespace)
        return Saved(session=count, previous=previous)

    def _end(self, change: MemoryChange) -> Saved:
        self.meta["last_session"] = max(change.at, self.meta["last_session"] or "")
        return Saved()

    def _touch(self, change: MemoryChange) -> Saved:
        if change.name in self.entries:
            self.meta["used"] = {**self.meta["used"], str(change.name): change.at}
        return Saved()

    def _save(self, change: MemoryChange) -> Saved:
        name, data, shapes = change.name, change.data, 0
        if name.namespace in KINDS:
            return self._add(change)
        if name.namespace == BASELINES:
            data, shapes = with_shapes(data)
        evicted = self._put(name, data)
        if name.namespace != BASELINES:
            return self._receipt(change)
        self._touch(change)
        kept = f"baseline {name.key!r}: ready to be compared{'; of responses the shape is kept' if shapes else ''}"
        redacted = {"response": shapes} if shapes else {}
        return self._receipt(change, understood=(kept,), redacted=redacted, evicted=tuple(map(str, evicted)))

    def _add(self, change: MemoryChange) -> Saved:
        """Add what was understood to its document; what was not is stored under a key of its own."""
        namespace, kind = change.namespace, KINDS[change.namespace]
        found = understand(namespace, change.key, change.data, moment_in(change.at) or self._now)
        if not found.entries:
            if change.name == kind.document or not change.data:
                raise InvalidInput(f"nothing in it was understood; {kind.wanted}")
            self._put(change.name, change.data)
            return self._receipt(change, ignored=tuple(found.ignored))
        lines = [self._added(namespace, entry, change) for entry in found.entries]
        lines += [self._added(PERFORMANCE, entry, change) for entry in found.timings]
        ignored, better = (tuple(dict.fromkeys(notes)) for notes in (found.ignored, found.better))
        return Saved(namespace=namespace, key=change.key, understood=tuple(lines), ignored=ignored, better=better)

    def _added(self, namespace: str, entry: Entry, change: MemoryChange) -> str:
        rule = self._noise_for(entry) if namespace == ERRORS else None
        if rule:
            return f"error {entry['fingerprint']!r}: noise by the rule {rule!r}; counted as filtered, not listed"
        line = self.document(namespace).add(entry, session=change.session, limits=self._limits)
        self._changed(namespace)
        return line

    def _noise_for(self, error: Entry) -> str | None:
        rules = self.document(NOISE).entries
        rule = matching_rule(rules, f"{error['fingerprint']} {error.get('message', '')}")
        if rule is not None:
            rules[rule]["filtered"] = rules[rule].get("filtered", 0) + max(error.get("occurrences", 1), 1)
            self._changed(NOISE)
        return rule

    def _set(self, change: MemoryChange) -> Saved:
        """Replace the entries of a document; counts of noise rules that stay are kept."""
        if change.namespace not in KINDS:
            raise InvalidInput(f"{change.namespace!r} has no document")
        document, kind = self.document(change.namespace), KINDS[change.namespace]
        entries = understand(change.namespace, kind.document.key, change.data, self._now).entries
        names = {entry[kind.named_by] for entry in entries}
        document.entries = {name: entry for name, entry in document.entries.items() if name in names}
        lines = [self._added(change.namespace, entry, change) for entry in entries]
        self._changed(change.namespace)
        return Saved(namespace=change.namespace, key=change.key, understood=tuple(lines))

    def _resolve(self, change: MemoryChange) -> Saved:
        """Mark an error as resolved, with what else is known about it; `InvalidInput` for one that is not open."""
        errors = self.document(ERRORS).entries
        if change.key not in errors or is_resolved(errors[change.key]):
            there_are = [name for name, entry in errors.items() if not is_resolved(entry)]
            raise InvalidInput(
                f"there is no unresolved error {change.key!r}",
                hint=f"the unresolved ones are {', '.join(map(repr, there_are[-5:]))}" if there_are else "none is",
            )
        about = change.data if isinstance(change.data, dict) else {}
        return self._add(change._replace(data={**about, "fingerprint": change.key, "resolved": True}))

    def _delete(self, change: MemoryChange) -> Saved:
        name, namespace = change.name, change.namespace
        if name in self.entries:
            self._remove(name)
            if name == (KINDS[namespace].document if namespace in KINDS else None):
                self._documents[namespace] = MemoryDocument(namespace)
                self._dirty.discard(namespace)
            elif namespace not in self._dirty:
                self._documents.pop(namespace, None)
        elif namespace in KINDS and name.key in self.document(namespace).entries:
            del self.document(namespace).entries[name.key]
            self._changed(namespace)
        else:
            raise NotFound(f"the project memory has no {name}", hint="list the namespace to see its keys")
        return Saved(namespace=namespace, key=name.key)

    def _clear(self, change: MemoryChange) -> Saved:
        self._cleared = True
        self.entries, self._writes, self._documents, self._dirty = {}, {}, {}, set()
        self.meta |= {"session_count": 1, "last_session": change.at, "created_at": change.at, "used": {}}
        return Saved(session=1)

    def _receipt(self, change: MemoryChange, **more: Any) -> Saved:
        return Saved(namespace=change.namespace, key=change.key, bytes=self.entries[change.name].size, **more)

    def _changed(self, namespace: str) -> None:
        name = KINDS[namespace].document
        self._dirty.add(namespace)
        self.entries.setdefault(name, MemoryEntry(name, name.path, 0, self._now))

    def _put(self, name: Name, data: Any) -> list[Name]:
        content = encoded(data)
        self._limits.check_entry(str(name), len(content))
        evicted = self._least_used(name, room=self._limits.baselines - 1) if name.namespace == BASELINES else []
        self._write(name, content, freed=evicted)
        for other in evicted:
            self._remove(other)
        return evicted

    def _write(self, name: Name, content: bytes, freed: list[Name] | None = None) -> None:
        before = sum(self.entries[other].size for other in {name, *(freed or ())} if other in self.entries)
        if len(content) > before:  # what makes the memory smaller is always accepted
            self._limits.check_total(str(name), self.total - before + len(content), self._elsewhere)
        path = self._path(name)
        self._writes[name] = content
        self.entries[name] = MemoryEntry(name, path, len(content), self._now)

    def _remove(self, name: Name) -> None:
        del self.entries[name]
        self._writes[name] = None

    def _path(self, name: Name) -> tuple[str, ...]:
        return self._scan.entries[name].path if name in self._scan.entries else name.path

    def _least_used(self, new: Name | None, *, room: int) -> list[Name]:
        others = [entry for name, entry in self.entries.items() if name.namespace == BASELINES and name != new]
        oldest = sorted(others, key=self.used_at)
        return [entry.name for entry in oldest[: max(0, len(oldest) - room)]]

    # Writing -----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Prepare the changed documents to be written. One for which there is no room is left as it was."""
        for namespace in self._dirty:
            document = self._documents[namespace]
            before = len(document.entries)
            document.trim(self._limits, self._now)
            content = document.encoded(self._limits.entry_bytes)
            self._trimmed[namespace] = before - len(document.entries)
            try:
                self._write(KINDS[namespace].document, content)
            except LimitExceeded as error:
                self._refused[namespace] = error
        self._dirty.clear()
        names = {str(name) for name in self.entries}
        self.meta["used"] = {name: at for name, at in self.meta["used"].items() if name in names}

    def final(self, outcome: Outcome) -> Outcome:
        """What came of a change in the end: its document may have been too large for the memory, or been cut."""
        if isinstance(outcome, SnapshotError) or outcome.namespace not in self._trimmed:
            return outcome
        stored = self.entries.get(KINDS[outcome.namespace].document)
        return self._refused.get(outcome.namespace) or outcome.evolve(
            trimmed=self._trimmed[outcome.namespace], bytes=outcome.bytes or (stored.size if stored else 0)
        )

    def commit(self) -> dict[str, StoreUnavailable]:
        """Write everything that changed; return the namespaces that could not be written (the notes are ``""``)."""
        failed: dict[str, StoreUnavailable] = {}
        if self._cleared:
            self._files.clear(self._scan.entries)
        for name, content in self._writes.items():
            try:
                if content is None:
                    self._files.delete(self._path(name))
                else:
                    self._files.write(self._path(name), content)
            except StoreUnavailable as error:
                failed[name.namespace] = error
        if self.meta != self._meta_before:
            try:
                self._files.write(META, encoded(self.meta))
            except StoreUnavailable as error:
                failed[""] = error
        return failed
