"""Changes to a memory, and applying them: the only place that decides what a change does.

A `Change` is plain data, so it can be applied by another process, or later. A `Batch` applies changes on top of
what is on disk and writes the result; without `commit` it is a view of how the memory would be.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from pydantic import Field

from snapshot_plugin.errors import Damaged, InvalidInput, LimitExceeded, NotFound, StoreUnavailable
from snapshot_plugin.memory.documents import Document, matching_rule
from snapshot_plugin.memory.files import MemoryFiles, Scan, Stored, encoded
from snapshot_plugin.memory.limits import Limits
from snapshot_plugin.memory.names import BASELINES, DOCUMENTS, ERRORS, NOISE, PERFORMANCE, Name
from snapshot_plugin.memory.shapes import with_shapes
from snapshot_plugin.memory.understand import NAMED_BY, WANTED, moment_in, understand
from snapshot_plugin.model.value import Value

__all__ = ["META", "Batch", "Change", "Persistence", "Saved"]

META: Final = ("meta.json",)
Persistence = Literal["disk", "memory", "read-only"]
"""Whether saves last: on disk; only in this process; kept until the process that writes can be reached."""


class Change(NamedTuple):
    """Something to be done to a memory. `session` and `at` say which session asked for it, and when."""

    op: Literal["begin", "end", "save", "set", "resolve", "delete", "clear", "touch"]
    namespace: str = ""
    key: str = ""
    data: Any = None
    session: int = 0
    at: str = ""


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


class Batch:
    """Changes on top of what is on disk. Reading and applying may raise `StoreUnavailable`."""

    def __init__(
        self, files: MemoryFiles, scan: Scan, meta: dict[str, Any], *, limits: Limits, now: datetime, elsewhere: int
    ) -> None:
        self.meta = meta
        self.damaged: list[Name] = []
        self.refused: dict[str, LimitExceeded] = {}
        self._files, self._limits, self._now, self._elsewhere = files, limits, now, elsewhere
        self._stored = dict(scan.entries)
        self._paths = {name: stored.path for name, stored in scan.entries.items()}
        self._overhead = scan.overhead
        self._writes: dict[Name, bytes | None] = {}
        self._plain: dict[Name, Any] = {}
        self._documents: dict[str, Document] = {}
        self._dirty: set[str] = set()
        self._meta_before = dict(meta)
        self._cleared = False

    # Reading -----------------------------------------------------------------------------------------------

    @property
    def entries(self) -> dict[Name, Stored]:
        """Every entry there is."""
        return self._stored

    @property
    def keys(self) -> dict[str, list[str]]:
        """The keys of every namespace, in order."""
        found: dict[str, list[str]] = {}
        for name in sorted(self._stored):
            found.setdefault(name.namespace, []).append(name.key)
        return found

    @property
    def total(self) -> int:
        """The bytes of everything."""
        return self._overhead + sum(stored.size for stored in self._stored.values())

    def load(self, name: Name) -> Any:
        """An entry, or one entry of a document by its name; `NotFound`, `SnapshotCorrupted`."""
        document = DOCUMENTS.get(name.namespace)
        if document == name and name.namespace in self._dirty:
            return self._documents[name.namespace].raw()
        if name in self._plain:
            return self._plain[name]
        if name in self._stored:
            return self._files.read(self._paths[name])
        if document is not None and name.key in self.document(name.namespace).entries:
            return self.document(name.namespace).entries[name.key]
        raise NotFound(f"the project memory has no {name}", hint="list the namespace to see its keys")

    def document(self, namespace: str) -> Document:
        """The document of a namespace, with the entries that lie beside it under keys of their own."""
        if namespace not in self._documents:
            name = DOCUMENTS[namespace]
            document = self._read(namespace, name)
            for other in sorted(self._stored):
                if other.namespace == namespace and other != name:
                    for entry_name, entry in self._read(namespace, other).entries.items():
                        document.entries.setdefault(entry_name, entry)
            self._documents[namespace] = document
        return self._documents[namespace]

    def _read(self, namespace: str, name: Name) -> Document:
        stored = self._stored.get(name)
        try:
            raw = (
                self._plain.get(name)
                if name in self._plain
                else self._files.read(self._paths[name])
                if stored
                else {}
            )
        except NotFound:
            raw = {}
        except Damaged:
            self.damaged.append(name)
            raw = {}
        return Document.read(namespace, name.key, raw, stored.saved_at if stored else self._now)

    def used_at(self, stored: Stored) -> datetime:
        """When an entry was last saved, read or compared."""
        return max(moment_in(self.meta["used"].get(str(stored.name))) or stored.saved_at, stored.saved_at)

    # Applying ----------------------------------------------------------------------------------------------

    def apply(self, change: Change) -> Saved:
        """Apply one change; what it raises leaves everything before it in effect."""
        return getattr(self, f"_{change.op}")(change)  # type: ignore[no-any-return]

    def _begin(self, change: Change) -> Saved:
        count, previous = self.meta["session_count"] + 1, self.meta["last_session"]
        self.meta |= {"session_count": count, "last_session": change.at}
        return Saved(session=count, previous=previous)

    def _end(self, change: Change) -> Saved:
        self.meta["last_session"] = max(change.at, self.meta["last_session"] or "")
        return Saved()

    def _touch(self, change: Change) -> Saved:
        if Name(change.namespace, change.key) in self._stored:
            self.meta["used"] = {**self.meta["used"], f"{change.namespace}/{change.key}": change.at}
        return Saved()

    def _save(self, change: Change) -> Saved:
        name = Name(change.namespace, change.key)
        if name.namespace in DOCUMENTS:
            return self._add(name, change)
        data, shapes = with_shapes(change.data) if name.namespace == BASELINES else (change.data, 0)
        evicted = self._put(name, data)
        if name.namespace == BASELINES:
            self._touch(change)
        redacted = {"response": shapes} if shapes else {}
        return Saved(
            namespace=name.namespace, key=name.key, bytes=self._stored[name].size, redacted=redacted,
            evicted=tuple(map(str, evicted)),
        )  # fmt: skip

    def _add(self, name: Name, change: Change) -> Saved:
        """Add what was understood to the document; what was not is stored under a key of its own."""
        namespace, limits = name.namespace, self._limits
        found = understand(namespace, name.key, change.data, moment_in(change.at) or self._now)
        if not found.entries:
            if name == DOCUMENTS[namespace] or not change.data:
                raise InvalidInput(f"nothing in it was understood; {WANTED[namespace]}")
            self._put(name, change.data)
            return Saved(
                namespace=namespace, key=name.key, bytes=self._stored[name].size, ignored=tuple(found.ignored)
            )
        document, lines = self.document(namespace), []
        for entry in found.entries:
            rule = self._noise_for(entry) if namespace == ERRORS else None
            lines.append(
                f"error {entry['fingerprint']!r}: noise by the rule {rule!r}; counted as filtered, not listed"
                if rule
                else document.add(entry, session=change.session, limits=limits)
            )
            if rule is None:
                self._dirty.add(namespace)
        return Saved(
            namespace=namespace, key=name.key, understood=tuple(lines),
            ignored=tuple(dict.fromkeys(found.ignored)), better=tuple(dict.fromkeys(found.better)),
        )  # fmt: skip

    def _noise_for(self, error: dict[str, Any]) -> str | None:
        rules = self.document(NOISE).entries
        rule = matching_rule(rules, f"{error['fingerprint']} {error.get('message', '')}")
        if rule is not None:
            rules[rule]["filtered"] = rules[rule].get("filtered", 0) + max(error.get("occurrences", 1), 1)
            self._dirty.add(NOISE)
        return rule

    def _set(self, change: Change) -> Saved:
        """Replace the entries of a document; counts of noise rules that stay are kept."""
        document = self.document(change.namespace)
        names = {entry[NAMED_BY[change.namespace]] for entry in change.data}
        document.entries = {name: entry for name, entry in document.entries.items() if name in names}
        for entry in change.data:
            document.add(dict(entry), session=change.session, limits=self._limits)
        self._dirty.add(change.namespace)
        return Saved(namespace=change.namespace, key=change.key)

    def _resolve(self, change: Change) -> Saved:
        line = self.document(ERRORS).resolve(change.key, at=change.at, session=change.session)
        self._dirty.add(ERRORS)
        return Saved(namespace=ERRORS, key=change.key, understood=(line,))

    def _delete(self, change: Change) -> Saved:
        name = Name(change.namespace, change.key)
        document = self._documents.get(name.namespace) if name.namespace in self._dirty else None
        if name == DOCUMENTS.get(name.namespace) and (document or name in self._stored):
            self._documents[name.namespace] = Document(name.namespace)
            self._dirty.discard(name.namespace)
            self._remove(name)
        elif name in self._stored:
            self._remove(name)
            if name.namespace not in self._dirty:
                self._documents.pop(name.namespace, None)
        elif name.namespace in DOCUMENTS and name.key in self.document(name.namespace).entries:
            del self.document(name.namespace).entries[name.key]
            self._dirty.add(name.namespace)
        else:
            raise NotFound(f"the project memory has no {name}", hint="list the namespace to see its keys")
        return Saved(namespace=name.namespace, key=name.key)

    def _clear(self, change: Change) -> Saved:
        self._cleared = True
        self._stored, self._writes, self._plain = {}, {}, {}
        self._documents, self._dirty = {}, set()
        self.meta |= {"session_count": 1, "last_session": change.at, "created_at": change.at, "used": {}}
        return Saved(session=1)

    def _put(self, name: Name, data: Any) -> list[Name]:
        content = encoded(data)
        self._limits.check_entry(str(name), len(content))
        evicted = self._least_used(name, room=self._limits.baselines - 1) if name.namespace == BASELINES else []
        self._write(name, content, freed=evicted)
        self._plain[name] = data
        for other in evicted:
            self._remove(other)
        return evicted

    def _write(self, name: Name, content: bytes, freed: list[Name] | None = None) -> None:
        before = sum(self._stored[other].size for other in {name, *(freed or ())} if other in self._stored)
        if len(content) > before:  # what makes the memory smaller is always accepted
            self._limits.check_total(str(name), self.total - before + len(content), self._elsewhere)
        self._writes[name] = content
        path = self._paths.setdefault(name, name.path)
        self._stored[name] = Stored(name, path, len(content), self._now)

    def _remove(self, name: Name) -> None:
        del self._stored[name]
        self._plain.pop(name, None)
        self._writes[name] = None

    def _least_used(self, new: Name, *, room: int) -> list[Name]:
        others = [stored for stored in self._stored.values() if stored.name.namespace == BASELINES]
        oldest = sorted((stored for stored in others if stored.name != new), key=self.used_at)
        return [stored.name for stored in oldest[: max(0, len(oldest) - room)]]

    # Writing -----------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Let go of errors and timings that are too old, and of baselines that are too many."""
        for name in self._least_used(Name(BASELINES, ""), room=self._limits.baselines):
            self._remove(name)
        for namespace in (ERRORS, PERFORMANCE):
            if DOCUMENTS[namespace] in self._stored and self.document(namespace).trim(self._limits, self._now):
                self._dirty.add(namespace)

    def finish(self) -> dict[str, int]:
        """Prepare the changed documents to be written; return how many entries each had to let go.

        A document for which there is no room is left as it was and named in `refused`.
        """
        trimmed: dict[str, int] = {}
        for namespace in self._dirty:
            document = self._documents[namespace]
            before = len(document.entries)
            document.trim(self._limits, self._now)
            content = document.encoded(self._limits.entry_bytes)
            trimmed[namespace] = before - len(document.entries)
            try:
                self._write(DOCUMENTS[namespace], content)
            except LimitExceeded as error:
                self.refused[namespace] = error
        self._dirty.clear()
        names = {str(name) for name in self._stored}
        self.meta["used"] = {name: at for name, at in self.meta["used"].items() if name in names}
        return trimmed

    def commit(self, scan: Scan) -> dict[str, StoreUnavailable]:
        """Write everything that changed; return the namespaces that could not be written (the notes are ``""``)."""
        failed: dict[str, StoreUnavailable] = {}
        if self._cleared:
            self._files.clear(scan.entries)
        for name, content in self._writes.items():
            try:
                if content is None:
                    self._files.delete(self._paths[name])
                else:
                    self._files.write(self._paths[name], content)
            except StoreUnavailable as error:
                failed[name.namespace] = error
        if self.meta != self._meta_before:
            try:
                self._files.write(META, encoded(self.meta))
            except StoreUnavailable as error:
                failed[""] = error
        return failed
