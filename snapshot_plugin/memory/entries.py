"""The four kinds of entries that the memory counts: errors, endpoints, timings and noise rules.

Each kind is one model: its fields, two or three other names for a field, and the types of the values. The MCP tools
publish the same fields as their input schemas, so a language model is told by the protocol what to send. `parse`
reads one entry, a list of them, a map of them by name, or plain text. It does not guess: data that fits no model is
reported together with one example of what would.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from snapshot_plugin.memory.files import API_SCHEMA, ERRORS, NOISE, PERFORMANCE, Name
from snapshot_plugin.memory.shapes import shape_of
from snapshot_plugin.model.times import rfc3339

__all__ = [
    "KINDS", "SESSIONS", "EndpointEntry", "Entry", "ErrorEntry", "Kind", "NoiseEntry", "ParsedEntries",
    "TimingEntry", "add_up", "moment_in", "normalize_key", "parse",
]  # fmt: skip

Entry = dict[str, Any]
"""An entry as it is stored."""
_MOST_EXTRA: Final = 300
_UNITS: Final = {"us": 0.001, "µs": 0.001, "ms": 1.0, "": 1.0, "s": 1000.0, "sec": 1000.0, "min": 60_000.0}
_DURATION: Final = re.compile(r"~?\s*([\d.]+)\s*([a-zµ]*)")
_METHODS: Final = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "WS"))
_REGEX: Final = re.compile(r"\\|\.[*+]|^\^|\$$|\(\?|^/.*[*+?|].*/[a-z]*$")
_ERROR_NAME: Final = r"[A-Za-z_]\w*(?:Error|Exception|Warning)"
_CLOSED: Final = ("true", "yes", "resolved", "fixed", "closed")
_OPEN: Final = ("false", "no", "open", "unresolved", "new")
_STORED_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")

# Values ------------------------------------------------------------------------------------------------------


def moment_in(value: Any) -> datetime | None:
    """Parse an ISO date or time, or a Unix time; a time without a zone is UTC. None if it is neither."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value.strip().replace("/", "-"))
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        seconds = value / 1000 if value > 1e11 else value  # noqa: PLR2004 — JavaScript counts milliseconds
        return datetime.fromtimestamp(seconds, UTC) if seconds > 1e9 else None  # noqa: PLR2004 — since 2001
    except (ValueError, OverflowError, OSError):
        return None


def _time(value: Any) -> str:
    moment = moment_in(value)
    if moment is None:
        raise ValueError("expected a time as 2026-11-10 or 2026-11-10T12:00:00Z")
    return rfc3339(moment)


def _resolution(value: Any) -> str | bool:
    said = value.strip().lower() if isinstance(value, str) else value
    if isinstance(said, bool) or said in _CLOSED or said in _OPEN:
        return said is True or said in _CLOSED
    if not isinstance(value, str) or moment_in(value) is None:
        raise ValueError("expected true, or a date as 2026-11-10")
    return _time(value)


def _duration(value: Any) -> float:
    """Milliseconds: a number of them, or a text with a unit such as ``150ms`` or ``1.2s``."""
    said = _DURATION.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    number, unit = (said[1], _UNITS.get(said[2])) if said else (value, 1.0)
    if isinstance(number, bool) or not isinstance(number, int | float | str) or unit is None:
        raise ValueError('expected milliseconds as 150, or a time as "150ms"')
    try:
        milliseconds = float(number) * unit
    except (ValueError, OverflowError):
        milliseconds = math.nan
    if not 0 <= milliseconds < 1e12:  # noqa: PLR2004 — thirty years; false for nan
        raise ValueError('expected milliseconds as 150, or a time as "150ms"')
    return milliseconds


def _text(value: Any) -> str:
    text = value
    if isinstance(value, dict | list) or (isinstance(value, int) and not isinstance(value, bool)):
        text = json.dumps(value, ensure_ascii=False)  # MCP's SDK parses a text that is JSON
    if not isinstance(text, str) or not text.strip():
        raise ValueError("expected a text")
    return text.strip()


def _pattern(value: Any) -> str:
    text = _text(value)
    if _REGEX.search(text) or not text.strip("* "):
        raise ValueError("expected plain text in which * stands for anything, not a regular expression")
    return text


_Text = Annotated[str, BeforeValidator(_text)]
_Time = Annotated[str, BeforeValidator(_time)]
_Duration = Annotated[float, BeforeValidator(_duration)]
_Count = Annotated[int, Field(ge=0, lt=1 << 53)]
_Status = Annotated[int, Field(ge=100, lt=600)]


def _named(*names: str, description: str | None = None) -> Any:
    """A field that may be left out, and is read under each of *names*. A field with a description is published."""
    return Field(default=None, validation_alias=AliasChoices(*names), description=description)


# Models ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def normalize_key(name: str) -> str:
    """*name* in snake case, so that ``firstSeen`` and ``first-seen`` are ``first_seen``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()


class _Model(BaseModel):
    """What the four kinds have in common. Fields without a meaning are kept with the entry."""

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)
    text_field: ClassVar[str]
    """The field that a plain text stands for."""
    number_field: ClassVar[str | None] = None
    """The field that a plain number under a name stands for."""

    @classmethod
    def names(cls) -> frozenset[str]:
        """All names of all fields."""
        return _names(cls)

    @model_validator(mode="before")
    @classmethod
    def _with_usual_names(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return {cls.text_field: data} if isinstance(data, str) else data
        given = {(key if (key := normalize_key(name)) in cls.names() else name): v for name, v in data.items()}
        for name in _names_of(cls, cls.text_field):  # {"error": {"message": …}, "count": 2}
            inner = given.get(name)
            if isinstance(inner, dict) and not cls.names().isdisjoint(map(normalize_key, inner)):
                given = {**given, name: None, **{normalize_key(n): v for n, v in inner.items()}}
        return {name: value for name, value in given.items() if value is not None}

    def known(self, *left_out: str) -> Entry:
        """The fields that were given, under their stored names, without *left_out*."""
        return {name: value for name, value in self if value is not None and name not in left_out}


@lru_cache(maxsize=64)
def _names_of(model: type[BaseModel], field: str) -> tuple[str, ...]:
    alias = model.model_fields[field].validation_alias
    return tuple(map(str, alias.choices)) if isinstance(alias, AliasChoices) else ()


@lru_cache(maxsize=8)
def _names(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(name for field in model.model_fields for name in _names_of(model, field))


class ErrorEntry(_Model):
    """An error that occurred, or that is resolved."""

    text_field = "message"
    message: _Text | None = _named(
        "message", "error", "msg", "error_message", "description", description="What it says."
    )
    fingerprint: _Text | None = _named(
        "fingerprint", "id", "error_id", description="Its name; made from type, file and line if left out."
    )
    type: _Text | None = _named("type", "error_type", "exception", description='As "TypeError".')
    file: _Text | None = _named("file", "path", "source_file", "location", description="Where it was raised.")
    line: _Count | None = _named("line", "line_number", "lineno", description="The line there.")
    stack: _Text | None = _named("stack", "stack_trace", "traceback", description="The stack trace.")
    occurrences: _Count | None = _named("count", "occurrences", "times", description="How often; 1 if left out.")
    resolved_at: Annotated[bool | str | None, BeforeValidator(_resolution)] = _named(
        "resolved", "resolved_at", "fixed", "status", description="true or a date once it is fixed."
    )
    first_seen: _Time | None = _named("first_seen", "since")
    last_seen: _Time | None = _named("last_seen", "timestamp", "date")
    first_session: _Count | None = _named("first_session")
    resolved_session: _Count | None = _named("resolved_session")

    @model_validator(mode="after")
    def _has_a_name(self) -> ErrorEntry:
        if not (self.fingerprint or self.message or self.type):
            raise ValueError("expected a message or a fingerprint")
        return self

    def stored(self, now: str) -> Entry:
        """The entry as it is stored; it was seen at *now* unless it says when."""
        resolved = now if self.resolved_at is True else self.resolved_at or None
        first, last = self.first_seen, self.last_seen
        entry = self.known("stack", "resolved_at") | {
            "fingerprint": self.fingerprint or self._fingerprint(),
            "first_seen": min(first or last or now, resolved or now),
            "last_seen": last or min(now, resolved or now),
            "occurrences": (0 if resolved else 1) if self.occurrences is None else self.occurrences,
        }
        if not self.message and self.type and self.type not in entry["fingerprint"]:
            entry["message"] = self.type
        return entry | ({"resolved_at": resolved} if resolved else {})

    def _fingerprint(self) -> str:
        """A name such as ``TypeError_app.js:42``; the message itself if type and place are missing."""
        text = self.message or ""
        said = f"{text}\n{self.stack or ''}"
        frames = re.findall(r'File "[^"]*?([^"/]+)", line (\d+)', said)  # Python's: the last one raised it
        typed = re.findall(rf"\b{_ERROR_NAME}\b", said)[-1 if frames else 0 :]
        placed = frames[-1:] + re.findall(r"([\w.-]+\.[A-Za-z]\w{0,4})[:(](\d+)", said)
        kind, where, line = self.type or next(iter(typed), None), self.file, self.line
        if where is None and placed:
            where, line = placed[0]
        if where:
            place = where.rpartition("/")[2] if "://" not in where else where
            return f"{kind or 'Error'}_{place}{'' if line is None else f':{line}'}"
        words = " ".join(text.split())[:120]
        return words if words and (not kind or kind in words) else ": ".join(filter(None, (kind, words)))


class _Endpoint(_Model):
    """What names an endpoint: ``GET /users``, or a method and a path. Of a URL only the path counts."""

    text_field = "endpoint"
    endpoint: _Text | None = _named("endpoint", "name", "route", description='As "GET /api/users".')
    method: _Text | None = _named("method", "verb", description='As "GET", with path instead of endpoint.')
    path: _Text | None = _named("path", "url", "uri", description='As "/api/users", with method.')
    session: _Count | None = _named("session")

    @property
    def target(self) -> str:
        """The name under which it is stored."""
        method, target = self.method or "", self.endpoint or self.path or ""
        first, space, rest = target.partition(" ")
        if space and first.upper() in _METHODS:
            method, target = first, rest.strip()
        path = urlsplit(target).path if "://" in target else target.partition("?")[0]
        return f"{method.upper()} {path or '/'}".strip()


class EndpointEntry(_Endpoint):
    """An endpoint of the project's API that was seen."""

    response: Any = _named("response", "body", "example", description="What it answered; only its shape is kept.")
    shape: Any = _named("shape", "schema", "fields", description="The shape of its answer, instead of response.")
    status: _Status | None = _named("status", "status_code", description="The HTTP status.")
    ms: _Duration | None = _named(
        "ms",
        "avg_ms",
        "latency_ms",
        "duration_ms",
        "took",
        description='How long it took: milliseconds, or "1.2s".',
    )
    seen: _Count | None = _named("seen", "count", "occurrences")
    last_seen: _Time | None = _named("last_seen", "timestamp", "date")
    merged: _Count | None = _named("merged")

    @model_validator(mode="after")
    def _has_a_name(self) -> EndpointEntry:
        if not re.fullmatch(r"(?:[A-Z]+ )?\S*/\S*", self.target) or not (self.endpoint or self.path):
            raise ValueError('expected an endpoint as "GET /api/users"')
        return self

    def stored(self, now: str) -> Entry:
        """The entry as it is stored; it was seen at *now* unless it says when."""
        entry = self.known("method", "path", "response", "shape", "ms")
        entry |= {"endpoint": self.target, "seen": self.seen or 1, "last_seen": self.last_seen or now}
        shape = shape_of(self.response) if self.shape is None and self.response is not None else self.shape
        return entry | ({} if shape in (None, {}, []) else {"shape": shape})


class TimingEntry(_Endpoint):
    """How long a request, or anything else with a name, took."""

    number_field = "session_ms"
    session_ms: _Duration | None = _named(
        "avg_ms", "ms", "session_ms", "latency_ms", "duration_ms", "response_time_ms", "latency", "duration", "mean"
    )
    p95_ms: _Duration | None = _named("p95_ms", "p95")
    session_samples: _Count | None = _named("samples", "session_samples", "count")
    before_ms: _Duration | None = _named("before_ms", "was_ms", "was")
    before_samples: _Count | None = _named("before_samples")
    updated_at: _Time | None = _named("updated_at", "timestamp", "date")

    @model_validator(mode="after")
    def _is_timed(self) -> TimingEntry:
        if not (self.endpoint or self.path) or (self.session_ms is None and self.p95_ms is None):
            raise ValueError("expected an endpoint and milliseconds")
        return self

    def stored(self, now: str) -> Entry:
        """The entry as it is stored; it was measured at *now* unless it says when."""
        entry = self.known("method", "path") | {
            "endpoint": self.target,
            "session_ms": self.p95_ms if self.session_ms is None else self.session_ms,
            "session_samples": self.session_samples or 1,
            "updated_at": self.updated_at or now,
        }
        return entry | ({} if self.before_ms is None else {"before_samples": self.before_samples or 1})


class NoiseEntry(_Model):
    """What is not worth looking at: any text that contains the pattern."""

    text_field = "pattern"
    pattern: Annotated[str, BeforeValidator(_pattern)] = Field(
        validation_alias=AliasChoices("pattern", "match", "text"),
        description="Plain text that noise contains; * stands for anything.",
    )
    reason: _Text | None = _named("reason", "why", "note", description="Why it is noise.")
    auto: bool | None = _named("auto", description="true if it was detected, not chosen by a person.")
    filtered: _Count | None = _named("filtered")
    remove: bool | None = _named("remove", "delete", description="true to remove the rule.")

    def stored(self, _now: str) -> Entry:
        """The rule as it is stored."""
        return {name: value for name, value in self.known().items() if value not in (False, 0)}


# Kinds -------------------------------------------------------------------------------------------------------


def add_up(one: float, other: float) -> float:
    """The merge rule for counts. `documents` replaces it for an entry that was loaded and is saved again."""
    return one + other


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_duration(value: Any) -> bool:
    return type(value) in (int, float) and value >= 0


@lru_cache(maxsize=4096)
def _is_stored_time(value: Any) -> bool:
    return isinstance(value, str) and _STORED_TIME.fullmatch(value) is not None and moment_in(value) is not None


class Kind(NamedTuple):
    """How the entries of one namespace are read, stored, merged and limited."""

    document: Name
    """The entry in which they are collected, and the field that holds them."""
    listed_as: str
    named_by: str
    model: type[ErrorEntry | EndpointEntry | TimingEntry | NoiseEntry]
    example: str
    """One entry as an agent would write it."""
    most: str
    """The limits for their number and age, and the field that says how old one is."""
    age: str
    time: str
    session: str
    """A field that only the memory sets; it marks entries that were loaded before."""
    always: dict[str, Callable[[Any], bool]]
    """The fields that every stored entry has, and whether a value is as the memory writes it."""
    sometimes: dict[str, Callable[[Any], bool]]
    merge: dict[str, Callable[[Any, Any], Any]]
    """How two values of a field are merged; of other fields the newer one is kept."""

    def is_stored(self, item: Any) -> bool:
        """Whether *item* is an entry as the memory writes it, so that it need not be parsed."""
        return (
            isinstance(item, dict)
            and all(name in item and is_right(item[name]) for name, is_right in self.always.items())
            and all(is_right(item[name]) for name, is_right in self.sometimes.items() if name in item)
        )


KINDS: Final = {
    ERRORS: Kind(
        document=Name(ERRORS, "history"), listed_as="entries", named_by="fingerprint", model=ErrorEntry,
        example='{"message": "TypeError: x is undefined", "file": "app.js", "line": 42, "count": 3}',
        most="errors", age="error_age", time="last_seen", session="first_session",
        always={"fingerprint": _is_text, "first_seen": _is_stored_time, "last_seen": _is_stored_time,
                "first_session": _is_count, "occurrences": _is_count},
        sometimes={"message": _is_text, "resolved_at": _is_stored_time, "resolved_session": _is_count,
                   "line": _is_count},
        merge={"occurrences": add_up, "first_seen": min, "last_seen": max, "first_session": min},
    ),
    API_SCHEMA: Kind(
        document=Name(API_SCHEMA, "schema"), listed_as="endpoints", named_by="endpoint", model=EndpointEntry,
        example='{"endpoint": "GET /api/users", "response": {"id": 7}, "status": 200}',
        most="endpoints", age="", time="last_seen", session="session",
        always={"endpoint": _is_text, "last_seen": _is_stored_time, "session": _is_count},
        sometimes={"seen": _is_count, "merged": _is_count},
        merge={"seen": add_up, "merged": add_up, "last_seen": max, "session": max},
    ),
    PERFORMANCE: Kind(
        document=Name(PERFORMANCE, "endpoints"), listed_as="endpoints", named_by="endpoint", model=TimingEntry,
        example='{"endpoint": "GET /api/users", "avg_ms": 150}',
        most="timings", age="performance_age", time="updated_at", session="session",
        always={"endpoint": _is_text, "updated_at": _is_stored_time, "session": _is_count,
                "session_ms": _is_duration, "session_samples": _is_count},
        sometimes={"before_ms": _is_duration, "before_samples": _is_count},
        merge={"session": max},
    ),
    NOISE: Kind(
        document=Name(NOISE, "config"), listed_as="rules", named_by="pattern", model=NoiseEntry,
        example='{"pattern": "ResizeObserver*", "reason": "browser noise"}',
        most="noise_rules", age="", time="", session="",
        always={"pattern": _is_text}, sometimes={"filtered": _is_count}, merge={"filtered": max},
    ),
}  # fmt: skip
"""The namespaces whose entries are collected in one document."""
SESSIONS: Final = ("first_session", "resolved_session", "session")
"""The fields that hold the number of a session."""

# Parsing -----------------------------------------------------------------------------------------------------


class ParsedEntries(NamedTuple):
    """Entries in their stored form, the times that came with endpoints, what was ignored, what fits no model."""

    entries: list[Entry]
    timings: list[Entry]
    ignored: list[str]
    unread: list[Any]


def parse(namespace: str, key: str, data: Any, now: str) -> ParsedEntries:
    """Read *data* that was saved as *key* of *namespace*, one of `KINDS`, at the RFC 3339 time *now*.

    Nothing is dropped silently: `ParsedEntries.ignored` names every item and every field that was not used.
    """
    kind, parsed = KINDS[namespace], ParsedEntries([], [], [], [])
    for item in _items(namespace, kind, key, data, parsed):
        entry = _validated(kind, item, parsed)
        if entry is None:
            parsed.unread.append(item)
            parsed.ignored.append(f"{_shown(item)}: not counted; write it as {kind.example}")
            continue
        stored = entry.stored(now)
        parsed.entries.append(_without_large_fields(kind, stored, parsed))
        if isinstance(entry, EndpointEntry) and entry.ms is not None:
            parsed.timings.append(TimingEntry(endpoint=entry.target, ms=entry.ms).stored(now))
    return parsed


def _items(namespace: str, kind: Kind, key: str, data: Any, parsed: ParsedEntries) -> Iterator[Any]:
    """The entries of a list, of a document, or of a map by name; or the one entry that *data* is."""
    if isinstance(data, list):
        yield from data
        return
    if not isinstance(data, dict):
        is_number = isinstance(data, int | float) and kind.model.number_field and key != kind.document.key
        yield {kind.named_by: key, kind.model.number_field: data} if is_number else data
        return
    inside = next((f for f in (kind.listed_as, namespace) if isinstance(data.get(f), list | dict)), None)
    names = {normalize_key(name) for name in data} & kind.model.names()
    if inside is not None and not names:
        beside = [name for name in data if name != inside]
        parsed.ignored.extend(f"{name!r}: no meaning beside a list of entries" for name in beside)
        yield from _items(namespace, kind, kind.document.key, data[inside], parsed)
    elif not names and data and all(_may_be_named(kind, value) for value in data.values()):
        for name, value in data.items():
            about = value if isinstance(value, dict) else {str(kind.model.number_field): value}
            yield {kind.named_by: name, **about}
    else:  # the key names the entry, unless it is the document's, or the entry has a name of its own
        is_named = (
            key == kind.document.key or not names or not names.isdisjoint(_names_of(kind.model, kind.named_by))
        )
        yield data if is_named else {**data, kind.named_by: key}


def _may_be_named(kind: Kind, value: Any) -> bool:
    """Whether *value* may stand under a name in a map of entries."""
    is_number = isinstance(value, int | float | str) and not isinstance(value, bool)
    return isinstance(value, dict) or (is_number and kind.model.number_field is not None)


def _validated(kind: Kind, item: Any, parsed: ParsedEntries) -> Any:
    """*item* as a model; without the fields whose values are wrong, which are reported. None if it does not fit."""
    try:
        return kind.model.model_validate(item)
    except ValidationError as error:
        if not isinstance(item, dict):
            return None
        why = {str(each["loc"][0]): _reason(each["msg"]) for each in error.errors() if each["loc"]}
    wrong = [name for name in item if normalize_key(name) in why]
    try:
        entry = kind.model.model_validate({name: value for name, value in item.items() if name not in wrong})
    except ValidationError:
        return None
    for name in wrong:
        parsed.ignored.append(f"{name!r}: {_shown(item[name])} was not used; {why[normalize_key(name)]}")
    return entry


def _reason(message: str) -> str:
    """Pydantic's words for what is wrong, as the end of a sentence."""
    return message.removeprefix("Value error, ").replace("Input should be", "expected")


def _without_large_fields(kind: Kind, entry: Entry, parsed: ParsedEntries) -> Entry:
    """*entry* without fields that have no meaning here and are too large to be kept with it."""
    large = [
        name for name, value in entry.items()
        if name not in kind.model.model_fields and len(json.dumps(value, default=str)) > _MOST_EXTRA
    ]  # fmt: skip
    parsed.ignored.extend(f"{name!r}: more than {_MOST_EXTRA} bytes, so not kept here" for name in large)
    return {name: value for name, value in entry.items() if name not in large}


def _shown(data: Any) -> str:
    text = json.dumps(data, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:79]}…"  # noqa: PLR2004 — fits a line
