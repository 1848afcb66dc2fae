"""The documents of the known namespaces: how entries are added, and which are removed when there are too many."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from pydantic import model_validator

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.memory.entries import KINDS, Entry, add_up, parse
from snapshot_plugin.memory.files import API_SCHEMA, ERRORS, NOISE, PERFORMANCE, encoded
from snapshot_plugin.memory.limits import MemoryLimits
from snapshot_plugin.memory.shapes import shape_of
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.model.value import Value

__all__ = [
    "DEGRADED",
    "MemoryDocument",
    "NoiseRule",
    "is_degraded",
    "is_resolved",
    "matching_rule",
    "sessions_to_fix",
]

DEGRADED: Final = 1.5
"""An endpoint is degraded when it takes more than this many times as long as in earlier sessions."""


@dataclass
class MemoryDocument:
    """The entries of one namespace by name, in the order they were first seen. `around` holds other content."""

    namespace: str
    entries: dict[str, Entry] = field(default_factory=dict)
    around: dict[str, Any] = field(default_factory=dict)
    is_changed: bool = False
    """Whether it has to be written. `trimmed` counts removed entries."""
    trimmed: int = 0

    @classmethod
    def read(cls, namespace: str, key: str, raw: Any, at: datetime) -> MemoryDocument:
        """Read a file, including one that was written by hand.

        Content that cannot be parsed is kept in `around`.
        """
        document, kind = cls(namespace), KINDS[namespace]
        if isinstance(raw, dict) and kind.listed_as in raw:
            document.around = {name: value for name, value in raw.items() if name != kind.listed_as}
            raw = raw[kind.listed_as]
        entries = raw
        if not (isinstance(raw, list) and all(map(kind.is_stored, raw))):
            parsed = parse(namespace, key, raw if raw is not None else [], rfc3339(at))
            entries = parsed.entries
            if parsed.unread and raw != {}:
                document.around["other"] = [*document.around.get("other", ()), *parsed.unread]
        for entry in entries:
            document.entries.setdefault(entry[kind.named_by], dict(entry))
        return document

    def raw(self) -> dict[str, Any]:
        """The document as it is stored."""
        return {**self.around, KINDS[self.namespace].listed_as: list(self.entries.values())}

    def add(self, entry: Entry, *, session: int, limits: MemoryLimits) -> str:
        """Merge *entry* into the document; return a sentence that says what was done."""
        name = entry[KINDS[self.namespace].named_by]
        limits.check_name(name)
        if entry.get("remove") and self.namespace == NOISE:
            return f"noise rule {name!r}: {'removed' if self.entries.pop(name, None) else 'there was none'}"
        known = self.entries.get(name)
        entry, note = _fitted(entry, limits)
        self.entries[name], line = _ADD[self.namespace](known, entry, session)
        return f"{line}{note}"

    def current(self, limits: MemoryLimits, now: datetime) -> dict[str, Entry]:
        """The entries that are not too old at *now*."""
        kind = KINDS[self.namespace]
        if not kind.age:
            return self.entries
        oldest = rfc3339(now - getattr(limits, kind.age))
        return {name: entry for name, entry in self.entries.items() if entry[kind.time] >= oldest}

    def trim(self, limits: MemoryLimits, now: datetime, most: int | None = None) -> int:
        """Remove entries that are too old, or more than *most*; return how many were removed."""
        before = len(self.entries)
        most = getattr(limits, KINDS[self.namespace].most) if most is None else most
        self.entries = self.current(limits, now)
        if len(self.entries) > most:
            if self.namespace == API_SCHEMA:
                self._consolidate(most)
            elif self.namespace == PERFORMANCE:
                self.entries = dict(sorted(self.entries.items(), key=lambda item: item[1]["updated_at"]))
            for name in list(self.entries)[: len(self.entries) - most]:
                del self.entries[name]
        self.trimmed += before - len(self.entries)
        return before - len(self.entries)

    def encoded(self, limits: MemoryLimits, now: datetime) -> bytes:
        """The document as a file within the limits. Entries that are too old or too many go, oldest first."""
        self.trim(limits, now)
        while len(content := encoded(self.raw())) > limits.entry_bytes and self.entries:
            self.trim(limits, now, most=len(self.entries) * 9 // 10)
        return content

    def _consolidate(self, most: int) -> None:
        """Keep frequent endpoints and merge rare ones by path, as ``GET /users/*``; the rarest come first."""
        rarest_first = sorted(self.entries.values(), key=_seen)
        self.entries = {entry["endpoint"]: entry for entry in rarest_first[len(rarest_first) - most :]}
        for rare in reversed(rarest_first[: len(rarest_first) - most]):
            method, space, target = rare["endpoint"].rpartition(" ")
            path = f"{method}{space}{urlsplit(target).path.rstrip('/').rpartition('/')[0]}/*"
            merged = {**rare, "endpoint": path, "merged": max(rare.get("merged", 0), 1)}
            self.entries[path] = _merged(API_SCHEMA, self.entries.get(path), merged)
        self.entries = {entry["endpoint"]: entry for entry in sorted(self.entries.values(), key=_seen)}


def _seen(endpoint: Entry) -> int:
    return int(endpoint.get("seen", 1))


def _fitted(entry: Entry, limits: MemoryLimits) -> tuple[Entry, str]:
    """*entry* with its message and shape within the limits, and a note if the shape was removed."""
    fitted: Entry = type(entry)(entry)
    if isinstance(fitted.get("message"), str):
        fitted["message"] = limits.shortened(fitted["message"])
    if "shape" in fitted and len(encoded(fitted["shape"])) > limits.shape_bytes:
        fitted["shape"] = shape_of(fitted["shape"])
        if len(encoded(fitted["shape"])) > limits.shape_bytes:
            del fitted["shape"]
            return fitted, f"; its shape has more than {limits.shape_bytes} bytes and was left out"
    return fitted, ""


def _merged(namespace: str, known: Entry | None, new: Entry, *, is_copy: bool = False) -> Entry:
    """*known* merged with *new*. Merging a copy of *known* counts nothing twice."""
    before = known or {}
    merged = {**before, **new}
    for name, rule in KINDS[namespace].merge.items():
        if name in before and name in new:
            merged[name] = (max if is_copy and rule is add_up else rule)(before[name], new[name])
    return merged


def _is_copy(namespace: str, known: Entry | None, entry: Entry) -> bool:
    """Whether *entry* was loaded before and is saved again unchanged, so it does not count as a new sighting."""
    kind = KINDS[namespace]
    return known is not None and kind.session in entry and entry[kind.time] == known[kind.time]


def _add_error(known: Entry | None, entry: Entry, session: int) -> tuple[Entry, str]:
    name, is_copy = entry["fingerprint"], _is_copy(ERRORS, known, entry)
    if known is None:
        entry = {"first_session": session, **entry, "occurrences": max(entry.get("occurrences", 1), 1)}
    if "resolved_at" in entry and not is_copy:
        entry = {"resolved_session": session, **entry}
    merged = _merged(ERRORS, known, entry, is_copy=is_copy)
    if known is None:
        often = f", {merged['occurrences']} occurrences" if merged["occurrences"] > 1 else ""
        return merged, f"error {name!r}: new{often}{', and resolved' if is_resolved(merged) else ''}"
    if "resolved_at" in entry and not is_copy:
        merged |= {"resolved_at": max(entry["resolved_at"], merged["last_seen"]), "resolved_session": session}
        return merged, f"error {name!r}: resolved{_after(merged)}"
    state = "resolved" if is_resolved(merged) else "open again" if is_resolved(known) else "unresolved"
    since = f"{merged.get('occurrences', 1)} occurrences since {merged['first_seen'][:10]}"
    return merged, f"error {name!r}: {since}, {state}"


def _add_endpoint(known: Entry | None, entry: Entry, session: int) -> tuple[Entry, str]:
    is_copy = _is_copy(API_SCHEMA, known, entry)
    merged = _merged(API_SCHEMA, known, {"session": session, **entry}, is_copy=is_copy)
    seen = merged.get("seen", 1)
    return merged, f"endpoint {entry['endpoint']!r}: seen {'once' if seen == 1 else f'{seen} times'}"


def _add_timing(known: Entry | None, entry: Entry, session: int) -> tuple[Entry, str]:
    if known is None:
        merged = {"session": session, **entry}
        return merged, _judged(merged, "the first one")
    if _is_copy(PERFORMANCE, known, entry):
        return known, f"timing of {entry['endpoint']!r}: known already"
    merged = _merged(PERFORMANCE, known, {"session": session, **entry})
    old, new, before, given = (
        (each.get(f"{when}_ms", 0.0), each.get(f"{when}_samples", int(when == "session")))
        for each, when in ((known, "session"), (entry, "session"), (known, "before"), (entry, "before"))
    )
    is_next = entry.get("session", session) > known.get("session", 0)  # earlier measurements become the past
    past, now = (_mean(before, old), new) if is_next else (_mean(before, given), _mean(old, new))
    merged |= {"session_ms": now[0], "session_samples": now[1]}
    merged |= {"before_ms": past[0], "before_samples": past[1]} if past[1] else {}
    return merged, _judged(merged, "in this session")


def _judged(timing: Entry, alone: str) -> str:
    name, now = f"timing of {timing['endpoint']!r}:", f"{timing['session_ms']:g} ms"
    if not timing.get("before_samples"):
        return f"{name} {now}, {alone}"
    judged = "DEGRADED" if is_degraded(timing) else "not degraded"
    return f"{name} was {timing['before_ms']:g} ms, now {now}: {judged}"


def _mean(*parts: tuple[float, int]) -> tuple[float, int]:
    samples = sum(count for _, count in parts)
    return (round(sum(value * count for value, count in parts) / samples, 3) if samples else 0.0), samples


def _add_rule(known: Entry | None, entry: Entry, _session: int) -> tuple[Entry, str]:
    return _merged(NOISE, known, entry), f"noise rule {entry['pattern']!r}: in effect"


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
    likely = (pattern for pattern, piece in _first_pieces(tuple(rules)) if piece in text)
    return next((pattern for pattern in likely if _matches(pattern, text)), None)


@lru_cache(maxsize=4)
def _first_pieces(patterns: tuple[str, ...]) -> list[tuple[str, str]]:
    """Each pattern with the text before its first ``*``, as a fast check that rules most patterns out."""
    return [(pattern, pattern.partition("*")[0]) for pattern in patterns]


def _matches(pattern: str, text: str) -> bool:
    place = 0
    for piece in pattern.split("*"):
        found = text.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return bool(pattern.strip("*"))


class NoiseRule(Value):
    """What is not worth looking at: any text that contains `pattern`, in which ``*`` stands for anything."""

    _refused_as: ClassVar[type[InvalidInput]] = InvalidInput
    pattern: str
    auto: bool = False
    reason: str | None = None
    filtered: int = 0

    @model_validator(mode="before")
    @classmethod
    def _plain_text(cls, data: Any) -> Any:
        return {"pattern": data} if isinstance(data, str) else data

    def matches(self, text: str) -> bool:
        """Whether *text* is noise by this rule."""
        return _matches(self.pattern, text)
