"""A view of the memory with changes applied. Only this module defines what a change does."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

from snapshot_plugin.errors import (
    Damaged,
    InvalidInput,
    LimitExceeded,
    NotFound,
    SnapshotCorrupted,
    SnapshotError,
    StoreUnavailable,
)
from snapshot_plugin.memory.changes import MemoryChange, Outcome, Saved
from snapshot_plugin.memory.documents import MemoryDocument, is_resolved, matching_rule
from snapshot_plugin.memory.entries import KINDS, SESSIONS, Entry, moment_in, parse
from snapshot_plugin.memory.files import (
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
from snapshot_plugin.memory.limits import MemoryLimits
from snapshot_plugin.memory.shapes import with_shapes
from snapshot_plugin.model.times import rfc3339

__all__ = ["MemoryView"]

_META: Final = ("meta.json",)


class MemoryView:
    """The memory on disk with changes applied. Damaged files are left out, and listed in `damaged`.

    Reading and applying may raise `StoreUnavailable`.
    """

    def __init__(
        self, files: MemoryFiles, limits: MemoryLimits, *, now: datetime, session: int = 0, elsewhere: int = 0
    ) -> None:
        self._files, self._limits, self.now, self._elsewhere = files, limits, now, elsewhere
        self._unavailable: StoreUnavailable | None = None
        self.damaged: list[tuple[str, ...]] = []
        try:
            self.scan = files.scan()
        except StoreUnavailable as error:
            self.scan, self._unavailable = Scan(), error
        self.refused: dict[str, SnapshotError] = {}
        """The namespaces whose document has no room, and why."""
        self._writes: dict[tuple[str, ...], bytes | None] = {}
        self._documents: dict[str, MemoryDocument] = {}
        self.entries = dict(self.scan.entries)
        """All entries."""
        new: Entry = {"created_at": rfc3339(now), "last_session": None, "session_count": session}
        stored = None
        with contextlib.suppress(StoreUnavailable):
            stored = self._stored(_META, _checked_meta)
        self.is_new = stored is None
        self.meta: Entry = {**new, **(stored or {}), "project": str(files.root)}
        self._meta_before = stored

    def _stored(self, path: tuple[str, ...], check: Callable[[Any], Any] = lambda raw: raw) -> Any:
        """The content of a file as *check* returns it; None if there is no such file, or it is damaged."""
        try:
            return check(self._value(path))
        except NotFound:
            pass  # another process has just removed it
        except (Damaged, ValueError):
            self.damaged.append(path)
        return None

    # Reading -----------------------------------------------------------------------------------------------

    @property
    def keys(self) -> dict[str, list[str]]:
        """What each namespace holds: the keys of its entries; for a document, the names in it, oldest first."""
        found: dict[str, list[str]] = {}
        for name in sorted(self.entries):
            kind = KINDS.get(name.namespace)
            known = self.document(name.namespace).entries if kind else {}
            keys = found.setdefault(name.namespace, list(known))
            if name.key not in known and not (kind and name == kind.document):
                keys.append(name.key)
        return {namespace: keys for namespace, keys in found.items() if keys}

    @property
    def total(self) -> int:
        """The total size in bytes."""
        return self.scan.overhead + sum(entry.size for entry in self.entries.values())

    def load(self, name: Name) -> Any:
        """An entry, or one entry of a document by its name. Raises `NotFound` or `SnapshotCorrupted`."""
        kind, document = KINDS.get(name.namespace), self._documents.get(name.namespace)
        if kind and document and name == kind.document and document.is_changed:
            return document.raw()
        if name in self.entries:
            return self._value(self.entries[name].path, used_at=self.now if name.namespace == BASELINES else None)
        if kind and name.key in self.document(name.namespace).entries:
            return self.document(name.namespace).entries[name.key]
        raise self._missing(name)

    def _missing(self, name: Name) -> SnapshotError:
        self.scan.refuse(name.path)
        keys = self.keys.get(name.namespace, [])
        if not keys:
            return NotFound(f"the namespace {name.namespace!r} is empty")
        near = get_close_matches(name.key, keys, 5, 0.5) or keys[-5:]
        return NotFound(f"the memory has no {name}", hint=f"there is {', '.join(map(repr, near))}")

    def document(self, namespace: str) -> MemoryDocument:
        """The document of a namespace, merged with the namespace's entries under other keys, within the limits."""
        if namespace not in self._documents:
            main = KINDS[namespace].document
            document = self._read(main)
            for other in sorted(self.entries):
                if other.namespace == namespace and other != main:
                    document.entries = {**self._read(other).entries, **document.entries}
            document.is_changed = document.trim(self._limits, self._aged_at) > 0 and main in self.entries
            self._documents[namespace] = document
        return self._documents[namespace]

    @property
    def _aged_at(self) -> datetime:
        """The time by which entries are too old.

        After a month without sessions it is that of the last day with one, because the clock may be wrong: then
        nothing is removed before a second day confirms it.
        """
        before = moment_in(self.meta.get("day_before")) or self.now
        return self.now if self.now - before <= self._limits.error_age else before

    def current(self, namespace: str) -> dict[str, Entry]:
        """The entries of a document that are not too old."""
        return self.document(namespace).current(self._limits, self.now)

    def _value(self, path: tuple[str, ...], used_at: datetime | None = None) -> Any:
        content = self._writes.get(path)
        return self._files.read(path, used_at=used_at) if content is None else json.loads(content)

    def _read(self, name: Name) -> MemoryDocument:
        entry = self.entries.get(name)
        raw = self._stored(entry.path) if entry else None
        return MemoryDocument.read(name.namespace, name.key, raw, entry.used_at if entry else self.now)

    # Applying ----------------------------------------------------------------------------------------------

    def apply(self, change: MemoryChange) -> Outcome:
        """Apply one change. If it is refused, earlier changes stay applied."""
        try:
            receipt: Entry = getattr(self, f"_{change.op}")(change)
        except SnapshotError as error:
            return error
        return receipt

    def _begin(self, change: MemoryChange) -> Entry:
        if (self.meta["last_session"] or change.at)[:10] != change.at[:10]:
            self.meta["day_before"] = self.meta["last_session"]
        before = max(self.meta["session_count"], self._last_session() if self.is_new else 0)
        self.meta |= {"session_count": before + 1, "last_session": change.at}
        self._remove(*self._least_used(None, room=self._limits.baselines))
        for namespace in (ERRORS, PERFORMANCE):  # reading removes what is too old
            self.document(namespace)
        return {}

    def _last_session(self) -> int:
        """The latest session that the documents name; for a memory whose count was lost."""
        entries = [entry for namespace in KINDS for entry in self.document(namespace).entries.values()]
        return max((entry.get(field, 0) for entry in entries for field in SESSIONS), default=0)

    def _end(self, change: MemoryChange) -> Entry:
        self.meta["last_session"] = max(change.at, self.meta["last_session"] or "")
        return {}

    def _save(self, change: MemoryChange) -> Entry:
        if change.namespace in KINDS:
            return self._add(change)
        if change.namespace != BASELINES:
            return {"bytes": self._put(change.name, change.data)}
        data, shapes = with_shapes(change.data)
        gone = self._least_used(change.name, room=self._limits.baselines - 1)
        size = self._put(change.name, data, instead_of=gone)
        self._remove(*gone)
        note, redacted = ("; of responses the shape is kept", {"response": shapes}) if shapes else ("", {})
        kept = f"baseline {change.key!r}: ready to be compared{note}"
        return {"bytes": size, "understood": (kept,), "redacted": redacted, "evicted": tuple(map(str, gone))}

    def _add(self, change: MemoryChange) -> Entry:
        """Add the entries that were understood to their document; store other data under its own key."""
        namespace, kind = change.namespace, KINDS[change.namespace]
        parsed = parse(namespace, change.key, change.data, change.at)
        if not parsed.entries:
            if change.name == kind.document or not change.data:
                raise InvalidInput(
                    f"this is not what {namespace!r} counts",
                    hint=f"write it as {kind.example}; or give it a key, to keep it as it is",
                )
            kept = f"kept as it is, but not counted; to be counted, write it as {kind.example}"
            return {"bytes": self._put(change.name, change.data), "better": (kept,)}
        lines = [self._added(namespace, entry, change) for entry in parsed.entries]
        lines += [self._added(PERFORMANCE, entry, change) for entry in parsed.timings]
        return {"understood": tuple(lines), "ignored": tuple(dict.fromkeys(parsed.ignored))}

    def _resolve(self, change: MemoryChange) -> Entry:
        """As `_save`, of errors that must be known and unresolved."""
        errors = self.document(ERRORS).entries
        for entry in parse(ERRORS, change.key, change.data, change.at).entries:
            name = self._with_known_name(entry)["fingerprint"]
            if name in errors and not is_resolved(errors[name]):
                continue
            others = [repr(other) for other, error in errors.items() if not is_resolved(error)][-5:]
            raise InvalidInput(
                f"{name!r} is resolved already" if name in errors else f"there is no unresolved error {name!r}",
                hint=f"the unresolved ones are {', '.join(others)}" if others else "none is unresolved",
            )
        return self._add(change)

    def _with_known_name(self, error: Entry) -> Entry:
        """*error*; if it is resolved under an unknown name, with the name of the unresolved error it describes."""
        errors, message = self.document(ERRORS).entries, error.get("message")
        if "resolved_at" not in error or message is None or error["fingerprint"] in errors:
            return error
        same = [
            name for name, known in errors.items() if known.get("message") == message and not is_resolved(known)
        ]
        return {**error, "fingerprint": same[0]} if len(same) == 1 else error

    def _added(self, namespace: str, entry: Entry, change: MemoryChange) -> str:
        if namespace == ERRORS:
            entry = self._with_known_name(entry)
            rules = self.document(NOISE).entries
            rule = matching_rule(rules, f"{entry['fingerprint']} {entry.get('message', '')}")
            if rule:
                rules[rule]["filtered"] = rules[rule].get("filtered", 0) + max(entry.get("occurrences", 1), 1)
                self._changed(NOISE)
                name = entry["fingerprint"]
                return f"error {name!r}: noise by the rule {rule!r}; counted as filtered, not listed"
        return self._changed(namespace).add(entry, session=change.session, limits=self._limits)

    def _delete(self, change: MemoryChange) -> Entry:
        name, namespace, kind = change.name, change.namespace, KINDS.get(change.namespace)
        if name in self.entries:
            self._remove(name)
            document = self._documents.get(namespace)
            if kind and document and (name == kind.document or not document.is_changed):
                del self._documents[namespace]  # the remaining entries are read again
        elif kind and name.key in self.document(namespace).entries:
            del self._changed(namespace).entries[name.key]
        else:
            raise self._missing(name)
        return {}

    def _clear(self, change: MemoryChange) -> Entry:
        if change.namespace:
            self._remove(*[name for name in self.entries if name.namespace == change.namespace])
            self._documents.pop(change.namespace, None)
            return {}
        paths = [entry.path for entry in (*self.scan.entries.values(), *self.entries.values())]
        self._writes = dict.fromkeys([*paths, *self.scan.damaged])
        self.entries, self._documents = {}, {}
        self.meta |= {"session_count": 1, "last_session": change.at, "created_at": change.at}
        return {}

    def _changed(self, namespace: str) -> MemoryDocument:
        """The document of a namespace, to be changed. Raises `StoreUnavailable` if its file cannot be written."""
        document, name = self.document(namespace), KINDS[namespace].document
        if not document.is_changed:
            self.scan.refuse(name.path)
            document.is_changed = True
            self.entries.setdefault(name, MemoryEntry(name, name.path, 0, self.now))
        return document

    def _put(self, name: Name, data: Any, instead_of: Sequence[Name] = ()) -> int:
        content = encoded(data)
        self._limits.check_entry(str(name), len(content))
        return self._write(name, content, instead_of)

    def _write(self, name: Name, content: bytes, instead_of: Sequence[Name] = ()) -> int:
        before = sum(self.entries[other].size for other in {name, *instead_of} if other in self.entries)
        if len(content) > before:  # a write that makes the memory smaller is always accepted
            self._limits.check_total(str(name), self.total - before + len(content), self._elsewhere)
        path = self.scan.entries[name].path if name in self.scan.entries else name.path
        self.scan.refuse(path)
        self._writes[path] = content
        self.entries[name] = MemoryEntry(name, path, len(content), self.now)
        return len(content)

    def _remove(self, *names: Name) -> None:
        self._writes |= {self.entries.pop(name).path: None for name in names}

    def _least_used(self, new: Name | None, *, room: int) -> list[Name]:
        """The least recently used baselines, without *new*, to remove so that *room* are left."""
        others = [entry for name, entry in self.entries.items() if name.namespace == BASELINES and name != new]
        oldest_first = sorted(others, key=lambda entry: entry.used_at)
        return [entry.name for entry in oldest_first[: max(0, len(others) - room)]]

    # Writing -----------------------------------------------------------------------------------------------

    def finish(self) -> dict[tuple[str, ...], bytes | None]:
        """The files to write or remove. A document that exceeds the limits is left unchanged.

        Raises:
            StoreUnavailable: nothing can be written: the directory cannot be read, or ``meta.json`` is a link.
        """
        if self._unavailable is not None:
            raise self._unavailable
        for namespace, document in sorted(self._documents.items()):
            if document.is_changed:
                try:
                    self._write(KINDS[namespace].document, document.encoded(self._limits, self._aged_at))
                except (InvalidInput, LimitExceeded) as error:  # changes to other files are still written
                    self.refused[namespace] = error
        if self.meta != self._meta_before:
            self.scan.refuse(_META)
            self._writes[_META] = encoded(self.meta)
        return self._writes

    def receipt(self, change: MemoryChange, outcome: Outcome) -> Saved:
        """The receipt of an applied change, after `finish`. Raises the error that refused it, or its document."""
        outcome = self.refused.get(change.namespace, outcome)
        if isinstance(outcome, SnapshotError):
            raise outcome
        document = self._documents.get(change.namespace)
        if document is not None and document.is_changed:
            stored = self.entries.get(KINDS[change.namespace].document)
            outcome = {"bytes": stored.size if stored else 0, **outcome, "trimmed": document.trimmed}
        return Saved(namespace=change.namespace, key=change.key, **outcome)


def _checked_meta(raw: Any) -> Entry:
    if not isinstance(raw, dict) or not isinstance(raw.get("session_count"), int):
        raise SnapshotCorrupted("meta.json has no session_count")
    return {**raw, "last_session": raw.get("last_session") if moment_in(raw.get("last_session")) else None}
