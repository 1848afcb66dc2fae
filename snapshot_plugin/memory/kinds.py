"""The kinds of entries that the memory understands: one table of fields for each.

A field has its stored name, a reader for its values, the other names that agents and people use for it, and a rule
for merging a new value with a known one. `understand` parses with these tables, `documents` merges with them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from snapshot_plugin.memory.files import API_SCHEMA, ERRORS, NOISE, PERFORMANCE, Name
from snapshot_plugin.model.times import rfc3339

__all__ = [
    "CLOSED", "KINDS", "METHODS", "SESSIONS", "TAILS", "Entry", "Kind", "add_up", "expected", "fields_of",
    "milliseconds", "moment_in", "plain", "state_in", "without_unit", "words",
]  # fmt: skip

Entry = dict[str, Any]


def words(text: str) -> tuple[str, ...]:
    """Split *text* into words, to write tables of names briefly."""
    return tuple(text.split())


CLOSED: Final = frozenset(words("resolved resolve fixed closed close done solved true yes today now"))
_OPEN: Final = frozenset(("open", "new", "active", "still open", "in progress", "to do", "todo", "won't fix", "no"))
_REMOVES: Final = frozenset(("remove", "delete", "true", "yes"))
_UNITS: Final = {
    name: milliseconds
    for milliseconds, names in {
        0.001: "us µs microseconds", 1: "ms msec msecs millis milliseconds", 1000: "s sec secs seconds",
        60_000: "m min mins minutes", 3_600_000: "h hr hrs hours",
    }.items()
    for name in words(names)
}  # fmt: skip
_PART: Final = re.compile(r"([\d.]+)\s*([a-zµ]*)")
_STORED_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")

# Values: each reader returns None for any other value. -------------------------------------------------------


def _text(value: Any) -> str | None:
    return value.strip() if isinstance(value, str) and value.strip() else None


def _type(value: Any) -> str | None:
    """The type of an error: ``TypeError``, also of ``TypeError: x is undefined`` and ``TypeError('x')``."""
    return _text(re.split(r": |\(", _text(value) or "", maxsplit=1)[0])


def _flag(value: Any) -> bool | None:
    said = {"true": True, "false": False}.get(value.strip().lower()) if isinstance(value, str) else value
    return said if isinstance(said, bool) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _whole(value: Any) -> int | None:
    """A count: a number, or text such as ``3 times`` or ``twice``."""
    if isinstance(value, str):
        said = re.fullmatch(r"\s*(\d{1,15})\s*(?:x|times?|occurrences?)?\s*", value)
        value = said[1] if said else {"once": 1, "twice": 2}.get(value.strip().lower(), value)
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 1 << 53 else None


def milliseconds(value: Any) -> float | None:
    """A duration: a number of milliseconds, ``"150ms"``, ``"2m 5s"``; a map with one inside, the mean of a list."""
    if isinstance(value, list):
        times = [milliseconds(each) for each in value if not isinstance(each, dict | list)]
        return (
            None if not times or None in times or len(times) < len(value) else sum(filter(None, times)) / len(times)
        )
    if isinstance(value, dict):
        inner, _ = fields_of(PERFORMANCE, value)
        return next((inner[name] for name in ("session_ms", *TAILS) if name in inner), None)
    if isinstance(value, str):
        text = re.sub(r"(?<=\d),(?=\d{3})", "", value.strip().lower().removeprefix("~"))
        parts = _PART.findall(text) if re.fullmatch(rf"(?:{_PART.pattern}\s*)+", text) else []
        times = [_times(_number(number), _unit(unit or "ms")) for number, unit in parts]
        return None if not times or None in times else sum(filter(None, times))
    number = _number(value)
    return number if number is not None and 0 <= number < 1e12 else None  # noqa: PLR2004 — thirty years


def _unit(unit: Any) -> float | None:
    """The milliseconds of a unit of time."""
    said = unit.strip().lower() if isinstance(unit, str) else ""
    return _UNITS.get(said) or _UNITS.get(f"{said}s")


def without_unit(name: str) -> tuple[str, float]:
    """The name of a timing, and the milliseconds of the unit it ends with: ``build_seconds`` is ``build``, 1000."""
    bare, separator, last = re.sub(r"[\s-]", "_", name).rpartition("_")
    unit = _unit(last) if separator and (len(last) > 1 or last == "s") else None
    return (name, 1) if unit is None else (name[: len(bare)], unit)


def _times(number: float | None, unit: float | None) -> float | None:
    return None if number is None or unit is None else number * unit


def _seconds(value: Any) -> float | None:
    return milliseconds(_times(_number(value), 1000))


def state_in(value: Any) -> str | bool | None:
    """When an error was resolved: a date, or true; false if it is open. Words for these are read too."""
    if not isinstance(value, str):
        return value if isinstance(value, bool) else None
    said = value.strip().lower()
    if said in _OPEN or said.startswith(("not ", "un")):
        return False
    return True if said in CLOSED else _time(value)


def _resolution(value: Any) -> str | bool | None:
    """As `state_in`; a sentence is read as how the error was resolved."""
    state = state_in(value)
    return True if state is None and " " in (_text(value) or "") else state


def moment_in(value: Any) -> datetime | None:
    """Parse a text or a Unix time; a time without a zone is UTC. None if it is not a time."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value.strip().replace("/", "-"))
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        number = _number(value) or 0
        seconds = number / 1000 if number > 1e11 else number  # noqa: PLR2004 — JavaScript counts milliseconds
        return datetime.fromtimestamp(seconds, UTC) if seconds > 1e9 else None  # noqa: PLR2004 — since 2001
    except (ValueError, OverflowError, OSError):
        return None


def _time(value: Any) -> str | None:
    moment = moment_in(value)
    if moment is None or (isinstance(value, str) and _STORED_TIME.fullmatch(value)):
        return value if moment else None
    return rfc3339(moment)


@lru_cache(maxsize=4096)
def _is_stored_time(value: str) -> bool:
    return _STORED_TIME.fullmatch(value) is not None and moment_in(value) is not None


def _status(value: Any) -> int | None:
    number = _whole(value)
    return number if number is not None and 100 <= number < 600 else None  # noqa: PLR2004 — HTTP's own


def _samples(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) and milliseconds(value) is not None else None


def _anything(value: Any) -> Any:
    return value


def _automatic(value: Any) -> bool:
    return value is True or str(value).lower().startswith("auto")


def _removal(value: Any) -> bool | None:
    return True if str(value).lower() in _REMOVES else _flag(value)


def add_up(one: float, other: float) -> float:
    """The merge rule for counts. `documents` replaces it for an entry that was loaded and is saved again."""
    return one + other


_STORED: Final[dict[Callable[[Any], Any], Callable[[Any], bool]]] = {
    **dict.fromkeys((_time, _resolution), lambda value: isinstance(value, str) and _is_stored_time(value)),
    **dict.fromkeys((_whole, _status), lambda value: type(value) is int and value >= 0),
    milliseconds: lambda value: type(value) in (int, float) and value >= 0,
    _text: lambda value: isinstance(value, str), _automatic: lambda value: isinstance(value, bool),
}  # fmt: skip
"""What each reader returns."""

# Tables ------------------------------------------------------------------------------------------------------
# Names are in lower case, without separators: avg_ms, avgMs and Avg-MS are the same.


class Field(NamedTuple):
    """A field of a stored entry: how its value is read, its other names, how two values are merged."""

    read: Callable[[Any], Any]
    names: str = ""
    merge: Callable[[Any, Any], Any] | None = None
    """None: keep the newer value."""
    is_mark: bool = True
    """Whether a map with this field is a single entry; other maps hold an entry under each name."""


class Kind(NamedTuple):
    """How the entries of one namespace are parsed and stored."""

    document: Name
    """The entry in which they are collected, and the field that holds them."""
    listed_as: str
    named_by: str
    fields: dict[str, Field]
    wanted: str
    plain: str
    """The field that a plain text is read as."""
    wrappers: frozenset[str]
    """Fields that hold a list or a map of entries."""
    most: str
    """The limits for their number and age, and the field that says how old one is."""
    age: str
    time: str
    session: str
    """A field that only the memory sets; it marks entries that were loaded before."""
    always: tuple[str, ...]
    """The fields that every stored entry has."""
    meanings: dict[str, list[tuple[int, str]]]
    """The fields that a name may mean; the smallest number is the most likely."""
    marks: frozenset[str]

    stored: dict[str, Callable[[Any], bool]]
    """Whether the value of a field is as the memory writes it."""

    def is_stored(self, item: Any) -> bool:
        """Whether *item* is an entry as the memory writes it, so that it need not be parsed."""
        return (
            isinstance(item, dict)
            and all(name in item for name in self.always)
            and all(is_right(item[name]) for name, is_right in self.stored.items() if name in item)
        )


def _kind(fields: dict[str, Field], wrappers: str, marks: str = "", **more: Any) -> Kind:
    meanings: dict[str, list[tuple[int, str]]] = {}
    named = [(name, field) for field, about in fields.items() for name in (plain(field), *about.names.split())]
    for rank, (name, field) in enumerate(named):
        meanings.setdefault(name, []).append((rank, field))
    every = frozenset({*(name for name, field in named if fields[field].is_mark), *marks.split()})
    defaults = {"age": "", "time": "", "session": "", "wrappers": frozenset(wrappers.split())}
    stored = {field: _STORED[about.read] for field, about in fields.items() if about.read in _STORED}
    return Kind(**{**defaults, **more}, fields=fields, meanings=meanings, marks=every, stored=stored)


@lru_cache(maxsize=4096)
def plain(name: str) -> str:
    """*name* as the tables write it."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


METHODS: Final = frozenset(words("GET POST PUT PATCH DELETE HEAD OPTIONS TRACE CONNECT"))
_COUNT: Final = "count times total hits n frequency timesseen occurrencecount numoccurrences calls"
_FILE: Final = "filename source location path url endpoint module component test"
_FIRST: Final = "first since createdat"
_LAST: Final = "last lastoccurrence date timestamp when seenat occurredat"
_TAILS: Final = ("p95", "p99", "p90", "max")
TAILS: Final = tuple(f"{tail}_ms" for tail in _TAILS)
_TIMES: Final = words(
    "avg average mean p50 median latency avglatency duration responsetime loadtime took elapsed now current after"
    " averageresponsetime avgresponsetime averagelatency averageduration"
)
_TARGET: Final = {
    "method": Field(_text, "verb httpmethod requestmethod"),
    "endpoint": Field(_text, "path url route uri pathname requestpath requesturl name page"),
}
KINDS: Final = {
    ERRORS: _kind(
        document=Name(ERRORS, "history"), listed_as="entries", named_by="fingerprint", plain="message",
        most="errors", age="error_age", time="last_seen", session="first_session",
        always=words("fingerprint first_seen last_seen first_session"),
        wanted='expected a message or a fingerprint, as {"message": "TypeError: x is undefined at app.js:42"}',
        wrappers="entries errors error items history unresolved resolved resolvedrecently",
        fields={
            "fingerprint": Field(_text, "errorid signature hash id"),
            "message": Field(_text, "msg error errormessage text description detail details exception summary"),
            "type": Field(_type, "errortype errorname exceptiontype name class kind code title exception error"),
            "file": Field(_text, f"{_FILE} sourcefile where"),
            "line": Field(_whole, "lineno linenumber row"),
            "occurrences": Field(_whole, f"{_COUNT} seen", add_up),
            "resolved_at": Field(_resolution, "resolved fixed fixedat isresolved isfixed resolvedon resolution"),
            "state": Field(state_in, "status action"),
            "first_seen": Field(_time, _FIRST, min),
            "last_seen": Field(_time, f"{_LAST} updatedat", max, is_mark=False),
            "first_session": Field(_whole, "", min),
            "resolved_session": Field(_whole),
        },
    ),
    API_SCHEMA: _kind(
        document=Name(API_SCHEMA, "schema"), listed_as="endpoints", named_by="endpoint", plain="endpoint",
        most="endpoints", time="last_seen", session="session", always=words("endpoint last_seen session"),
        wanted='expected an endpoint, as {"endpoint": "GET /users"} or {"method": "GET", "path": "/users"}',
        wrappers="endpoint endpoints paths routes api apis entries items",
        marks="summary description responses",
        fields=_TARGET | {
            "shape": Field(_anything, "schema fields returns output"),
            "body": Field(_anything, "response responsebody responseshape responseschema example"),
            "status": Field(_status, "statuscode httpstatus responsestatus responsecode"),
            "seen": Field(_whole, f"occurrences {_COUNT}", add_up, is_mark=False),
            "last_seen": Field(_time, f"{_LAST} updatedat firstseen {_FIRST}", max, is_mark=False),
            "session": Field(_whole, "", max, is_mark=False),
            "merged": Field(_whole, "", add_up, is_mark=False),
        },
    ),
    PERFORMANCE: _kind(
        document=Name(PERFORMANCE, "endpoints"), listed_as="endpoints", named_by="endpoint", plain="endpoint",
        most="timings", age="performance_age", time="updated_at", session="session",
        always=words("endpoint updated_at session session_ms session_samples"),
        wanted='expected an endpoint and milliseconds, as {"endpoint": "GET /users", "avg_ms": 150}',
        wrappers="endpoints timings latency latencies latencyms avgms durations routes entries items metrics",
        fields=_TARGET | {
            "session_ms": Field(milliseconds, f"ms milliseconds value time timems {' '.join(_TIMES)} "
                                + " ".join(f"{time}ms" for time in _TIMES)
                                + " timing timings latencies percentiles stats"),
            "seconds": Field(_seconds, "s sec " + " ".join(f"{t}s {t}sec {t}seconds" for t in _TIMES)),
            **{f"{p}_ms": Field(milliseconds, f"{p} {p}latency {p}latencyms latency{p} latency{p}ms")
               for p in _TAILS},
            "samples_ms": Field(_samples, "samples times durations values measurements", is_mark=False),
            "unit": Field(_unit, "units", is_mark=False),
            "session_samples": Field(_whole, f"samples requests occurrences {_COUNT} seen", is_mark=False),
            "updated_at": Field(_time, f"lastseen {_LAST} firstseen {_FIRST}", is_mark=False),
            "before_ms": Field(
                milliseconds, "was wasms before baseline baselinems previous previousms", is_mark=False
            ),
            "before_samples": Field(_whole, is_mark=False),
            "session": Field(_whole, "", max, is_mark=False),
        },
    ),
    NOISE: _kind(
        document=Name(NOISE, "config"), listed_as="rules", named_by="pattern", plain="pattern",
        most="noise_rules", always=("pattern",),
        wanted='expected a pattern, as {"pattern": "ResizeObserver*", "reason": "browser noise"}',
        wrappers="rules rule pattern patterns ignore noise filters entries items add remove",
        fields={
            "pattern": Field(_text, "match matches regex contains text message rule ignore filter url value add"),
            "reason": Field(_text, "why note comment description"),
            "auto": Field(_automatic, "autodetected source origin detectedby"),
            "filtered": Field(_whole, "count", max, is_mark=False),
            "remove": Field(_removal, "delete removed disabled action", is_mark=False),
            "enabled": Field(_flag, "active", is_mark=False),
        },
    ),
}  # fmt: skip
"""The namespaces whose entries are collected in one document."""
SESSIONS: Final = ("first_session", "resolved_session", "session")
"""The fields that hold the number of a session."""


def fields_of(namespace: str, item: Entry, only: Container[str] | None = None) -> tuple[Entry, Entry]:
    """The known fields of *item* under their stored names (those in *only*), and the remaining ones."""
    kind = KINDS[namespace]
    found: Entry = {}
    rest: Entry = {}
    for name, value in item.items():  # the stored form needs no search
        about = kind.fields.get(name) if only is None or name in only else None
        read = about.read(value) if about and value is not None else None
        if read is not None:
            found[name] = read
        elif value is not None:
            rest[name] = value
    if not rest:
        return found, rest
    names = {plain(name): name for name in reversed(rest)}
    for _, field, alias in sorted((*meaning, name) for name in names for meaning in kind.meanings.get(name, ())):
        if field not in found and names[alias] in rest and (only is None or field in only):
            value = kind.fields[field].read(rest[names[alias]])
            if value is not None:
                found[field] = value
                del rest[names[alias]]
    return found, rest


_EXPECTED: Final[dict[Callable[[Any], Any], str]] = {
    _time: "a time as 2026-11-10 or 2026-11-10T12:00:00Z", _whole: "a number",
    milliseconds: 'a time as 150 or "150ms"', _seconds: "a number of seconds",
    _resolution: "true, or a date as 2026-11-10",
}  # fmt: skip


def expected(namespace: str, name: str) -> str | None:
    """How a value of the field that *name* means is written; None if it means none, or if any value would do."""
    fields = (field for _, field in KINDS[namespace].meanings.get(plain(name), ()))
    return next((_EXPECTED.get(KINDS[namespace].fields[field].read) for field in fields), None)
