"""The kinds of entries that have a meaning, and the names under which agents and people write their fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from snapshot_plugin.memory.files import API_SCHEMA, ERRORS, NOISE, PERFORMANCE, Name

__all__ = [
    "CLOSED", "GENERIC", "KINDS", "METHODS", "TAILS", "Entry", "Kind", "fields_of", "milliseconds", "moment_in",
    "plain", "words",
]  # fmt: skip

Entry = dict[str, Any]


def words(text: str) -> tuple[str, ...]:
    """The words of *text*: a short way to write a table of names."""
    return tuple(text.split())


def _text(value: Any) -> str | None:
    return value.strip() if isinstance(value, str) and value.strip() else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _whole(value: Any) -> int | None:
    """A count: a number, or text such as ``3 times``."""
    said = re.fullmatch(r"\s*(\d{1,15})\s*(?:x|times?|occurrences?)?\s*", value) if isinstance(value, str) else None
    number = _number(said[1] if said else value)
    return int(number) if number is not None and 0 <= number < 1 << 53 else None


def milliseconds(value: Any) -> float | None:
    """A duration: a number of milliseconds, ``"150ms"``, ``"1.2 s"``; or a map with one inside."""
    if isinstance(value, dict):
        inner, _ = fields_of(PERFORMANCE, value)
        return next((inner[name] for name in ("ms", *TAILS) if name in inner), None)
    if isinstance(value, str):
        found = re.fullmatch(r"\s*~?([\d.]+)\s*(ms|msec|milliseconds|s|sec|seconds)?\s*", value)
        number = _number(found[1]) if found else None
        in_seconds = found is not None and (found[2] or "").startswith("s")
        return number * 1000 if in_seconds and number is not None else number
    number = _number(value)
    return number if number is not None and 0 <= number < 1e12 else None  # noqa: PLR2004 — thirty years


def _resolved(value: Any) -> datetime | bool | None:
    """When an error was resolved: a date, or true; false for one that is open. A word or a sentence says it too."""
    if not isinstance(value, str) or not value.strip():
        return _flag(value)
    said = value.strip().lower()
    if said in _OPEN or said.startswith(("not ", "un")):
        return False
    return moment_in(value) or (True if said in CLOSED or " " in said else None)


def moment_in(value: Any) -> datetime | None:
    """The moment that a text or a Unix time tells; a time without a zone is UTC. None if it tells none."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value.strip())
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        number = _number(value) or 0
        seconds = number / 1000 if number > 1e11 else number  # noqa: PLR2004 — JavaScript counts milliseconds
        return datetime.fromtimestamp(seconds, UTC) if seconds > 1e9 else None  # noqa: PLR2004 — since 2001
    except (ValueError, OverflowError, OSError):
        return None


# Names -------------------------------------------------------------------------------------------------------
# In lower case, without separators: avg_ms, avgMs and Avg-MS are one.


class Kind(NamedTuple):
    """How the entries of one namespace are written."""

    document: Name
    """The entry in which they are collected, and below which field."""
    listed_as: str
    named_by: str
    times: tuple[str, ...]
    """Fields that every stored entry has, with a time."""
    wanted: str
    plain: str
    """What an entry is that is only a text."""
    wrappers: frozenset[str]
    """Fields that hold a list or a map of entries."""
    reads: dict[str, Callable[[Any], Any]]
    """How the value of each field is read."""
    meanings: dict[str, list[tuple[int, str]]]
    """The fields that a name may mean; the smallest number is the likeliest."""
    marks: frozenset[str]
    """A map with one of these names is one entry; other maps have an entry under each name."""


def _kind(fields: dict[str, tuple[str, Callable[[Any], Any]]], wrappers: str, marks: str = "", **more: Any) -> Kind:
    meanings: dict[str, list[tuple[int, str]]] = {}
    named = [(name, field) for field, (names, _) in fields.items() for name in words(names)]
    for rank, (name, field) in enumerate(named):
        meanings.setdefault(name, []).append((rank, field))
    every = frozenset({*(name for name, field in named if field not in _WEAK), *words(marks)})
    reads = {field: read for field, (_, read) in fields.items()}
    return Kind(reads=reads, meanings=meanings, wrappers=frozenset(words(wrappers)), marks=every, **more)


_WEAK: Final = frozenset(("seen", "last_seen", "samples", "updated_at", "before", "filtered", "remove", "enabled"))
METHODS: Final = frozenset(words("GET POST PUT PATCH DELETE HEAD OPTIONS TRACE CONNECT"))
GENERIC: Final = frozenset(words(
    "all api apischema config current data default endpoint endpoints entries error errors history items latest"
    " list log main noise noiseconfig performance routes rules schema timings"
))  # fmt: skip
"""Keys that say where an entry is kept, and are not its name."""
CLOSED: Final = frozenset(words("resolved fixed closed done solved true yes"))
_OPEN: Final = frozenset(("open", "new", "active", "still open", "in progress", "to do", "todo", "won't fix"))
_REMOVES: Final = frozenset(("remove", "delete"))
_COUNT: Final = "occurrences count times total hits seen n frequency timesseen occurrencecount"
_FIRST: Final = "firstseen first since createdat"
_LAST: Final = "lastseen last lastoccurrence updatedat date timestamp when seenat"
TAILS: Final = ("p95", "p99", "p90", "max")
_TIMES: Final = words(
    "avg average mean p50 median latency avglatency duration responsetime loadtime took elapsed now"
)
_TARGET: Final = {
    "method": ("method verb httpmethod", _text),
    "target": ("endpoint path url route uri pathname name page", _text),
}
KINDS: Final = {
    ERRORS: _kind(
        document=Name(ERRORS, "history"), listed_as="entries", named_by="fingerprint", plain="message",
        times=("first_seen", "last_seen"),
        wanted='expected a message or a fingerprint, as {"message": "TypeError: x is undefined at app.js:42"}',
        wrappers="entries errors error items history unresolved resolved resolvedrecently",
        fields={
            "fingerprint": ("fingerprint errorid signature hash id", _text),
            "message": ("message msg error errormessage text description detail details exception summary", _text),
            "type": ("type errortype errorname exceptiontype name class kind code title", _text),
            "file": ("file filename source location path url endpoint module component", _text),
            "line": ("line lineno linenumber row", _whole),
            "occurrences": (_COUNT, _whole),
            "resolved": ("resolvedat resolved fixed fixedat isresolved resolvedon resolution status", _resolved),
            "first": (_FIRST, moment_in),
            "last": (_LAST, moment_in),
        },
    ),
    API_SCHEMA: _kind(
        document=Name(API_SCHEMA, "schema"), listed_as="endpoints", named_by="endpoint", plain="endpoint",
        times=("last_seen",),
        wanted='expected an endpoint, as {"endpoint": "GET /users"} or {"method": "GET", "path": "/users"}',
        wrappers="endpoint endpoints paths routes apis entries items",
        marks="status statuscode summary description",
        fields=_TARGET | {
            "shape": ("shape schema fields returns output", lambda v: v),
            "body": ("response body responsebody responseshape responseschema example", lambda v: v),
            "seen": (_COUNT, _whole),
            "last_seen": (f"{_LAST} {_FIRST}", moment_in),
        },
    ),
    PERFORMANCE: _kind(
        document=Name(PERFORMANCE, "endpoints"), listed_as="endpoints", named_by="endpoint", plain="endpoint",
        times=("updated_at",),
        wanted='expected an endpoint and milliseconds, as {"endpoint": "GET /users", "avg_ms": 150}',
        wrappers="endpoints timings latency latencies latencyms avgms durations routes entries items metrics",
        fields=_TARGET | {
            "ms": (f"ms milliseconds sessionms current value time timems {' '.join(_TIMES)} "
                   + " ".join(f"{time}ms" for time in _TIMES), milliseconds),
            "seconds": ("seconds s sec " + " ".join(f"{t}s {t}sec {t}seconds" for t in _TIMES), _number),
            **{tail: (f"{tail} {tail}ms", milliseconds) for tail in TAILS},
            "samples": (f"samples sessionsamples requests {_COUNT}", _whole),
            "updated_at": (f"updatedat {_LAST} {_FIRST}", moment_in),
            "before": ("beforems was wasms before baseline baselinems previous previousms", milliseconds),
        },
    ),
    NOISE: _kind(
        document=Name(NOISE, "config"), listed_as="rules", named_by="pattern", plain="pattern", times=(),
        wanted='expected a pattern, as {"pattern": "ResizeObserver*", "reason": "browser noise"}',
        wrappers="rules pattern patterns ignore noise filters entries items add remove",
        fields={
            "pattern": ("pattern match matches regex contains text message rule ignore filter", _text),
            "reason": ("reason why note comment description", _text),
            "auto": ("auto autodetected source origin", lambda v: v is True or str(v).lower().startswith("auto")),
            "filtered": ("filtered count", _whole),
            "remove": ("remove delete removed disabled action", lambda v: str(v).lower() in _REMOVES or _flag(v)),
            "enabled": ("enabled active", _flag),
        },
    ),
}  # fmt: skip
"""The namespaces whose entries are collected in one document."""


def fields_of(namespace: str, item: Entry, only: Container[str] | None = None) -> tuple[Entry, Entry]:
    """The fields of an entry under our names (those in *only*), and what is left."""
    kind, found = KINDS[namespace], {}
    used: set[str] = set()
    names = {plain(name): name for name in reversed(item)}
    for _, field, alias in sorted((*meaning, name) for name in names for meaning in kind.meanings.get(name, ())):
        if field not in found and names[alias] not in used and (only is None or field in only):
            value = kind.reads[field](item[names[alias]])
            if value is not None:
                found[field] = value
                used.add(names[alias])
    return found, {name: value for name, value in item.items() if name not in used and value is not None}


@lru_cache(maxsize=4096)
def plain(name: str) -> str:
    """*name* as `KINDS` writes it."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
