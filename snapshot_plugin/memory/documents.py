"""The documents of the known namespaces: how new entries are added, and what goes when there are too many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from pydantic import model_validator

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.memory.files import API_SCHEMA, ERRORS, NOISE, PERFORMANCE, encoded
from snapshot_plugin.memory.kinds import KINDS, Entry, moment_in
from snapshot_plugin.memory.limits import MemoryLimits
from snapshot_plugin.memory.shapes import shape_of
from snapshot_plugin.memory.understand import StoredEntry, understand
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
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class MemoryDocument:
    """The entries of one namespace by name, in the order they were first seen. `around` is kept as it was read."""

    namespace: str
    entries: dict[str, Entry] = field(default_factory=dict)
    around: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, namespace: str, key: str, raw: Any, at: datetime) -> MemoryDocument:
        """What a file holds, also one that was written by hand. What makes no sense stays in `around`."""
        document, kind = cls(namespace), KINDS[namespace]
        if isinstance(raw, dict) and kind.listed_as in raw:
            document.around = {name: value for name, value in raw.items() if name != kind.listed_as}
            raw = raw[kind.listed_as]
        if raw in ({}, [], None):
            return document
        understood = understand(namespace, key, raw, at)
        for entry in understood.entries:
            document.entries.setdefault(entry[kind.named_by], dict(entry))
        if understood.unread:
            document.around["other"] = [*document.around.get("other", ()), *understood.unread]
        return document

    def raw(self) -> dict[str, Any]:
        """The document as it is stored."""
        return {**self.around, KINDS[self.namespace].listed_as: list(self.entries.values())}

    def add(self, entry: Entry, *, session: int, limits: MemoryLimits) -> str:
        """Add an entry to what is known of it; return what came of it, in words."""
        name = entry[KINDS[self.namespace].named_by]
        limits.check_name(name)
        if entry.get("remove") and self.namespace == NOISE:
            return f"noise rule {name!r}: {'removed' if self.entries.pop(name, None) else 'there was none'}"
        known = self.entries.get(name)
        entry, note = _fitted(entry, limits)
        self.entries[name], line = _ADD[self.namespace](known, entry, session)
        return f"{line}{note}"

    def trim(self, limits: MemoryLimits, now: datetime) -> int:
        """Let go of entries that are too old or too many; return how many went."""
        before = len(self.entries)
        if self.namespace == ERRORS:
            self._keep_young("last_seen", now - limits.error_age)
            self._keep_last(limits.errors)
        elif self.namespace == PERFORMANCE:
            self._keep_young("updated_at", now - limits.performance_age)
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

    def _keep_young(self, time: str, oldest: datetime) -> None:
        self.entries = {n: e for n, e in self.entries.items() if (moment_in(e.get(time)) or _LONG_AGO) >= oldest}

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
            self.entries[path] = _merged(self.entries.get(path), merged)
        kept = sorted(self.entries.values(), key=lambda entry: -entry.get("seen", 1))[:most]
        self.entries = {entry["endpoint"]: entry for entry in kept}


def _fitted(entry: Entry, limits: MemoryLimits) -> tuple[Entry, str]:
    """*entry* with its message and shape within the limits, and a note if the shape had to go."""
    fitted: Entry = type(entry)(entry)
    if isinstance(fitted.get("message"), str):
        fitted["message"] = limits.shortened(fitted["message"])
    if "shape" in fitted and len(encoded(fitted["shape"])) > limits.shape_bytes:
        fitted["shape"] = shape_of(fitted["shape"])
        if len(encoded(fitted["shape"])) > limits.shape_bytes:
            del fitted["shape"]
            return fitted, f"; its shape has more than {limits.shape_bytes} bytes and was left out"
    return fitted, ""


def _sum(one: int, other: int) -> int:
    return one + other


_MERGE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "occurrences": _sum, "seen": _sum, "merged": _sum, "filtered": max, "session": max,
    "first_seen": min, "last_seen": max, "first_session": min,
}  # fmt: skip
"""What becomes of a field that both entries have; of others, the newer value stays."""


def _merged(known: Entry | None, new: Entry, *, is_copy: bool = False) -> Entry:
    """*new* added to what is known of it; a copy of what is known counts nothing twice."""
    known = known or {}
    both = {name: rule for name, rule in _MERGE.items() if _is_alike(known.get(name), new.get(name))}
    rules = {name: max if is_copy and rule is _sum else rule for name, rule in both.items()}
    return {**known, **new, **{name: rule(known[name], new[name]) for name, rule in rules.items()}}


def _is_alike(one: Any, other: Any) -> bool:
    return any(isinstance(one, kind) and isinstance(other, kind) for kind in (str, int | float))


def _is_copy(known: Entry | None, entry: Entry, time: str) -> bool:
    return known is not None and isinstance(entry, StoredEntry) and entry[time] == known[time]


def _add_error(known: Entry | None, entry: Entry, session: int) -> tuple[Entry, str]:
    name, is_copy = entry["fingerprint"], _is_copy(known, entry, "last_seen")
    if known is None:
        entry = {"first_session": session, **entry, "occurrences": max(entry.get("occurrences", 1), 1)}
    if "resolved_at" in entry and not is_copy:
        entry = {"resolved_session": session, **entry}
    merged = _merged(known, entry, is_copy=is_copy)
    if known is None:
        return merged, f"error {name!r}: new{', and resolved' if is_resolved(merged) else ''}"
    if "resolved_at" in entry and not is_copy:
        merged |= {"resolved_at": max(entry["resolved_at"], merged["last_seen"]), "resolved_session": session}
        return merged, f"error {name!r}: resolved{_after(merged)}"
    state = "resolved" if is_resolved(merged) else "open again" if is_resolved(known) else "unresolved"
    since = f"{merged.get('occurrences', 1)} occurrences since {merged['first_seen'][:10]}"
    return merged, f"error {name!r}: {since}, {state}"


def _add_endpoint(known: Entry | None, entry: Entry, session: int) -> tuple[Entry, str]:
    merged = _merged(known, {"session": session, **entry}, is_copy=_is_copy(known, entry, "last_seen"))
    return merged, f"endpoint {entry['endpoint']!r}: seen {merged.get('seen', 1)} times"


def _add_timing(known: Entry | None, entry: Entry, session: int) -> tuple[Entry, str]:
    timing = f"timing of {entry['endpoint']!r}:"
    if known is None:
        return {"session": session, **entry}, f"{timing} {entry['session_ms']:g} ms, the first one"
    if _is_copy(known, entry, "updated_at"):
        return known, f"{timing} known already"
    merged = _merged(known, {"session": session, **entry})
    old, new, before, given = (
        (each.get(f"{when}_ms", 0.0), each.get(f"{when}_samples", int(when == "session")))
        for each, when in ((known, "session"), (entry, "session"), (known, "before"), (entry, "before"))
    )
    is_next = entry.get("session", session) > known.get("session", 0)  # what was measured so far is the past
    past, now = (_mean(before, old), new) if is_next else (_mean(before, given), _mean(old, new))
    merged |= {"session_ms": now[0], "session_samples": now[1]}
    if not past[1]:
        return merged, f"{timing} {now[0]:g} ms in this session"
    merged |= {"before_ms": past[0], "before_samples": past[1]}
    judged = "DEGRADED" if is_degraded(merged) else "not degraded"
    return merged, f"{timing} was {past[0]:g} ms, now {now[0]:g} ms: {judged}"


def _mean(*parts: tuple[float, int]) -> tuple[float, int]:
    samples = sum(count for _, count in parts)
    return (round(sum(value * count for value, count in parts) / samples, 3) if samples else 0.0), samples


def _add_rule(known: Entry | None, entry: Entry, _session: int) -> tuple[Entry, str]:
    return _merged(known, entry), f"noise rule {entry['pattern']!r}: in effect"


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
    """Each pattern with the text before its first ``*``: most patterns are ruled out by that alone."""
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
