"""The documents of the known namespaces: how new entries are added, and what goes when there are too many."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.memory.files import encoded
from snapshot_plugin.memory.limits import Limits
from snapshot_plugin.memory.names import API_SCHEMA, ERRORS, NOISE, PERFORMANCE
from snapshot_plugin.memory.shapes import shape_of
from snapshot_plugin.memory.understand import NAMED_BY, Entry, StoredEntry, moment_in, understand

__all__ = ["DEGRADED", "Document", "is_degraded", "is_resolved", "matching_rule", "sessions_to_fix"]

DEGRADED: Final = 1.5
"""An endpoint is degraded when it takes more than this many times as long as in earlier sessions."""
_FIELD: Final = {ERRORS: "entries", API_SCHEMA: "endpoints", PERFORMANCE: "endpoints", NOISE: "rules"}
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Document:
    """The entries of one namespace by name, in the order they were first seen. `around` is kept as it was read."""

    namespace: str
    entries: dict[str, Entry] = field(default_factory=dict)
    around: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, namespace: str, key: str, raw: Any, at: datetime) -> Document:
        """What a file holds, also one that was written by hand. What makes no sense stays in `around`."""
        document = cls(namespace)
        if isinstance(raw, dict) and _FIELD[namespace] in raw:
            document.around = {name: value for name, value in raw.items() if name != _FIELD[namespace]}
            raw = raw[_FIELD[namespace]]
        if raw in ({}, [], None):
            return document
        understood = understand(namespace, key, raw, at)
        for entry in understood.entries:
            document.entries.setdefault(entry[NAMED_BY[namespace]], dict(entry))
        if understood.unread:
            document.around["other"] = [*document.around.get("other", ()), *understood.unread]
        return document

    def raw(self) -> dict[str, Any]:
        """The document as it is stored."""
        return {**self.around, _FIELD[self.namespace]: list(self.entries.values())}

    def add(self, entry: Entry, *, session: int, limits: Limits) -> str:
        """Add an entry to what is known of it; return what came of it, in words."""
        name = entry[NAMED_BY[self.namespace]]
        limits.check_name(name)
        return _ADD[self.namespace](self, name, entry, session, limits)

    def resolve(self, fingerprint: str, *, at: str, session: int) -> str:
        """Mark an error as resolved; `InvalidInput` if there is no such unresolved error."""
        known = self.entries.get(fingerprint)
        if known is None or is_resolved(known):
            there_are = [name for name, entry in self.entries.items() if not is_resolved(entry)]
            raise InvalidInput(
                f"there is no unresolved error {fingerprint!r}",
                hint=f"the unresolved ones are {', '.join(map(repr, there_are[-5:]))}" if there_are else "none is",
            )
        known |= {"resolved_at": max(at, known["last_seen"]), "resolved_session": session}
        return f"error {fingerprint!r}: resolved{_after(known)}"

    def trim(self, limits: Limits, now: datetime) -> int:
        """Let go of entries that are too old or too many; return how many went."""
        before = len(self.entries)
        if self.namespace == ERRORS:
            self._keep_young("last_seen", limits.error_age, now)
            self._keep_last(limits.errors)
        elif self.namespace == PERFORMANCE:
            self._keep_young("updated_at", limits.performance_age, now)
            if len(self.entries) > limits.timings:
                self.entries = dict(sorted(self.entries.items(), key=lambda item: item[1]["updated_at"]))
                self._keep_last(limits.timings)
        elif self.namespace == API_SCHEMA:
            self._consolidate(limits.endpoints)
        else:
            self._keep_last(limits.noise_rules)
        return before - len(self.entries)

    def encoded(self, most: int) -> bytes:
        """The document as a file of at most *most* bytes; the oldest entries go where it would be longer."""
        content = encoded(self.raw())
        while self.entries and len(content) > most:
            self._keep_last(len(self.entries) * 9 // 10)
            content = encoded(self.raw())
        return content

    def _keep_young(self, field_name: str, age: Any, now: datetime) -> None:
        oldest = now - age
        self.entries = {
            name: entry for name, entry in self.entries.items()
            if (moment_in(entry.get(field_name)) or _LONG_AGO) >= oldest
        }  # fmt: skip

    def _keep_last(self, count: int) -> None:
        for name in list(self.entries)[: max(0, len(self.entries) - count)]:
            del self.entries[name]

    def _consolidate(self, most: int) -> None:
        """Keep frequent endpoints by themselves and merge rare ones by path, as ``GET /users/*``."""
        if len(self.entries) <= most:
            return
        frequent = sorted(self.entries.values(), key=lambda entry: -entry.get("seen", 1))
        self.entries = {entry["endpoint"]: entry for entry in frequent[:most]}
        for rare in frequent[most:]:
            method, space, target = rare["endpoint"].rpartition(" ")
            path = f"{method}{space}{urlsplit(target).path.rstrip('/').rpartition('/')[0]}/*"
            merged = {**rare, "endpoint": path, "merged": max(rare.get("merged", 0), 1)}
            known = self.entries.get(path)
            self.entries[path] = _merged_endpoint(known, merged) if known else merged
        kept = sorted(self.entries.values(), key=lambda entry: -entry.get("seen", 1))[:most]
        self.entries = {entry["endpoint"]: entry for entry in kept}


def _add_error(document: Document, name: str, entry: Entry, session: int, limits: Limits) -> str:
    known = document.entries.get(name)
    is_copy = isinstance(entry, StoredEntry) and known is not None and entry["last_seen"] == known["last_seen"]
    if "message" in entry:
        entry = {**entry, "message": limits.shortened(entry["message"])}
    if known is None:
        new = {**entry, "occurrences": max(entry.get("occurrences", 1), 1), "first_session": session}
        if "resolved_at" in new:
            new.setdefault("resolved_session", session)
        document.entries[name] = new | {field: entry[field] for field in ("first_session",) if field in entry}
        return f"error {name!r}: new{', and resolved' if is_resolved(new) else ''}"
    count, seen = known.get("occurrences", 1), entry.get("occurrences", 1)
    was_resolved = is_resolved(known)
    known |= {key: value for key, value in entry.items() if key not in _ACCUMULATED}
    known["occurrences"] = max(count, seen) if is_copy else count + seen
    known["first_seen"] = min(known["first_seen"], entry["first_seen"])
    known["last_seen"] = max(known["last_seen"], entry["last_seen"])
    if "resolved_at" in entry and not is_copy:
        known |= {"resolved_at": max(entry["resolved_at"], known["last_seen"]), "resolved_session": session}
    state = f"resolved{_after(known)}" if is_resolved(known) else "open again" if was_resolved else "unresolved"
    return f"error {name!r}: {known['occurrences']} occurrences since {known['first_seen'][:10]}, {state}"


_ACCUMULATED: Final = frozenset(
    {"fingerprint", "first_seen", "last_seen", "occurrences", "resolved_at", "first_session"}
)


def _add_endpoint(document: Document, name: str, entry: Entry, session: int, limits: Limits) -> str:
    is_copy = isinstance(entry, StoredEntry)
    entry = {"session": session, **entry}
    if "shape" in entry and len(encoded(entry["shape"])) > limits.shape_bytes:
        entry["shape"] = shape_of(entry["shape"])
        if len(encoded(entry["shape"])) > limits.shape_bytes:
            del entry["shape"]
            name_only = f"; its shape has more than {limits.shape_bytes} bytes and was left out"
            return _add_endpoint(document, name, entry, session, limits) + name_only
    known = document.entries.get(name)
    document.entries[name] = _merged_endpoint(known, entry, is_copy=is_copy) if known else entry
    return f"endpoint {name!r}: seen {document.entries[name].get('seen', 1)} times"


def _merged_endpoint(known: Entry, new: Entry, *, is_copy: bool = False) -> Entry:
    same = is_copy and new["last_seen"] == known["last_seen"]
    seen = max(known.get("seen", 1), new.get("seen", 1)) if same else known.get("seen", 1) + new.get("seen", 1)
    merged = known.get("merged", 0) + new.get("merged", 0)
    return {
        **known, **new, "seen": seen, "last_seen": max(known["last_seen"], new["last_seen"]),
        "session": max(known.get("session", 0), new.get("session", 0)), **({"merged": merged} if merged else {}),
    }  # fmt: skip


def _add_timing(document: Document, name: str, entry: Entry, session: int, _limits: Limits) -> str:
    is_copy = isinstance(entry, StoredEntry)
    entry = {"session": session, **entry}
    known = document.entries.get(name)
    if known is None:
        document.entries[name] = entry
        return f"timing of {name!r}: {entry['session_ms']:g} ms, the first one"
    before = (known.get("before_ms", 0.0), known.get("before_samples", 0))
    old, new = ((each["session_ms"], each.get("session_samples", 1)) for each in (known, entry))
    if is_copy and entry["updated_at"] == known["updated_at"]:
        return f"timing of {name!r}: known already"
    if entry["session"] > known.get("session", 0):  # a new session: what was measured so far is the past
        document.entries[name] = {**known, **entry, **_past(_mean(before, old))}
    else:
        took, samples = _mean(old, new)
        merged = {"session_ms": took, "session_samples": samples, "session": known.get("session", 0)}
        given = _past(_mean(before, (entry.get("before_ms", 0.0), entry.get("before_samples", 0))))
        document.entries[name] = {**known, **entry, **merged, **given}
    timing = document.entries[name]
    if not timing.get("before_samples"):
        return f"timing of {name!r}: {timing['session_ms']:g} ms in this session"
    judged = "DEGRADED" if is_degraded(timing) else "not degraded"
    return f"timing of {name!r}: was {timing['before_ms']:g} ms, now {timing['session_ms']:g} ms: {judged}"


def _past(mean: tuple[float, int]) -> Entry:
    return {"before_ms": mean[0], "before_samples": mean[1]} if mean[1] else {}


def _mean(*parts: tuple[float, int]) -> tuple[float, int]:
    samples = sum(count for _, count in parts)
    return (round(sum(value * count for value, count in parts) / samples, 3) if samples else 0.0), samples


def _add_rule(document: Document, name: str, entry: Entry, _session: int, _limits: Limits) -> str:
    known = document.entries.get(name, {})
    if entry.pop("remove", False):
        document.entries.pop(name, None)
        return f"noise rule {name!r}: {'removed' if known else 'there was none'}"
    filtered = max(known.get("filtered", 0), entry.get("filtered", 0))
    document.entries[name] = {**known, **entry} | ({"filtered": filtered} if filtered else {})
    return f"noise rule {name!r}: in effect"


_ADD: Final = {ERRORS: _add_error, API_SCHEMA: _add_endpoint, PERFORMANCE: _add_timing, NOISE: _add_rule}


def is_resolved(error: Entry) -> bool:
    """Whether an error was resolved, and has not been seen since."""
    return str(error.get("resolved_at") or "") >= str(error["last_seen"])


def sessions_to_fix(error: Entry) -> int | None:
    """How many sessions it took from the first sighting to the fix, both included."""
    first, last = error.get("first_session"), error.get("resolved_session")
    return last - first + 1 if isinstance(first, int) and isinstance(last, int) and is_resolved(error) else None


def _after(error: Entry) -> str:
    took = sessions_to_fix(error)
    return f" after {took} session{'s' if took > 1 else ''}" if took else ""


def is_degraded(timing: Entry) -> bool:
    """Whether an endpoint takes much longer in its latest session than before."""
    return bool(timing.get("before_samples", 0) > 0 and timing["session_ms"] > DEGRADED * timing["before_ms"])


def matching_rule(rules: dict[str, Entry], text: str) -> str | None:
    """The pattern of the first rule that *text* contains; ``*`` in a pattern stands for anything."""
    return next((pattern for pattern in rules if _matches(pattern, text)), None)


def _matches(pattern: str, text: str) -> bool:
    place = 0
    for piece in pattern.split("*"):
        found = text.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return bool(pattern.strip("*"))
