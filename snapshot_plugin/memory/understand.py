"""Read errors, endpoints, timings and noise rules in the shapes that agents and people write them.

An agent may send one entry or many; as a list, a map by name, plain text, or below a field such as ``errors``; with
any usual name for a field (``count`` for ``occurrences``). What is not understood is never dropped silently: it is
named in `Understood.ignored`, and `Understood.better` says how to write it next time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from snapshot_plugin.memory import vocabulary as v
from snapshot_plugin.memory.names import API_SCHEMA, ERRORS, NOISE, PERFORMANCE
from snapshot_plugin.memory.shapes import shape_of
from snapshot_plugin.model.times import rfc3339

__all__ = ["NAMED_BY", "WANTED", "Entry", "StoredEntry", "Understood", "moment_in", "understand"]

Entry = dict[str, Any]
_MOST_EXTRA: Final = 300
NAMED_BY: Final = {ERRORS: "fingerprint", API_SCHEMA: "endpoint", PERFORMANCE: "endpoint", NOISE: "pattern"}


_OURS: Final = frozenset(
    (
        "message",
        "resolved_at",
        "first_session",
        "resolved_session",
        "session",
        "merged",
        "seen",
        "shape",
        "filtered",
    )
)
"""Fields of stored entries: one of another type is not taken over."""


class StoredEntry(dict[str, Any]):
    """An entry that came in the stored form, as `load` returns it: saved again, it is no new sighting."""


class Understood(NamedTuple):
    """Entries in their stored form; what was ignored and why; what would be better; and what was not understood."""

    entries: list[Entry]
    ignored: list[str]
    better: list[str]
    unread: list[Any]


def understand(namespace: str, key: str, data: Any, at: datetime) -> Understood:
    """Read *data* that was saved as *key* of *namespace*, one of `NAMED_BY`."""
    result = Understood([], [], [], [])
    read = _READERS[namespace]
    for given, item in _items(namespace, None if _plain(key) in v.GENERIC else key, data):
        name = _text(given)
        if isinstance(item, dict) and _is_stored(namespace, item):
            result.entries.append(StoredEntry(item))
            continue
        entry = read(name, item, at, result)
        if entry is None:
            result.unread.append(item if name is None else {name: item})
            result.ignored.append(f"{_shown(result.unread[-1])}: {WANTED[namespace]}")
        else:
            result.entries.append(entry)
    return result


WANTED: Final = {
    ERRORS: 'expected a message or a fingerprint, as {"message": "TypeError: x is undefined at app.js:42"}',
    API_SCHEMA: 'expected an endpoint, as {"endpoint": "GET /users"} or {"method": "GET", "path": "/users"}',
    PERFORMANCE: 'expected an endpoint and milliseconds, as {"endpoint": "GET /users", "avg_ms": 150}',
    NOISE: 'expected a pattern, as {"pattern": "ResizeObserver*", "reason": "browser noise"}',
}
_STORED: Final = {ERRORS: ("first_seen", "last_seen"), API_SCHEMA: ("last_seen",), PERFORMANCE: ("updated_at",)}
_STORED_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_MEASURED: Final = ("session_ms", "session_samples", "before_ms", "before_samples", "session", "merged")


def _is_stored(namespace: str, item: Entry) -> bool:
    """Whether *item* is in the stored form already, as `load` returns it."""
    if namespace not in _STORED or not _text(item.get(NAMED_BY[namespace])):
        return False
    times = [item.get(field, "") for field in _STORED[namespace]]
    return (
        all(isinstance(time, str) and _STORED_TIME.fullmatch(time) for time in times)
        and _STORED_TIME.fullmatch(str(item.get("resolved_at") or times[0])) is not None
        and all(isinstance(item.get(field, 0), int | float) for field in ("occurrences", "seen", *_MEASURED))
        and (namespace != PERFORMANCE or "session_ms" in item)
    )


def _items(namespace: str, name: str | None, data: Any) -> Iterator[tuple[str | None, Any]]:
    """Each single entry in *data*, and the name it was given from outside."""
    if isinstance(data, list):
        for item in data:
            yield (None, item) if not isinstance(item, list) else (None, {"": item})
        return
    if not isinstance(data, dict):
        yield name, data
        return
    wrapped = [
        (field, value) for field, value in data.items()
        if _plain(field) in v.WRAPPERS[namespace] and isinstance(value, list | dict) and value
    ]  # fmt: skip
    if wrapped:
        for field, value in wrapped:
            for inner, item in _items(namespace, name, value):
                yield inner, _as_resolved(item) if _plain(field).startswith("resolved") else item
    elif any(_plain(field) in v.FIELDS[namespace] and field.upper() not in v.METHODS for field in data):
        yield name, data
    else:
        yield from _named(namespace, data)


def _named(namespace: str, data: dict[str, Any]) -> Iterator[tuple[str | None, Any]]:
    """The entries of a map by name; endpoints may also be grouped by path or by method."""
    for name, item in data.items():
        if _plain(name) in v.WRAPPERS[namespace]:  # a list of entries was expected there
            yield None, {name: item}
            continue
        if namespace == NOISE and not isinstance(item, dict):  # {"favicon": "dev server", "[HMR]": true}
            yield None, {"pattern": name, ("reason" if isinstance(item, str) else "enabled"): item}
            continue
        inner = item if isinstance(item, dict | list) and namespace in (API_SCHEMA, PERFORMANCE) else ()
        if isinstance(inner, dict) and inner and all(method.upper() in v.METHODS for method in inner):
            yield from ((f"{method.upper()} {name}", each) for method, each in inner.items())
        elif name.upper() in v.METHODS and inner:
            pairs = inner.items() if isinstance(inner, dict) else ((each, {}) for each in inner)
            yield from ((f"{name.upper()} {path}", each) for path, each in pairs)
        else:
            yield name, item


def _as_resolved(item: Any) -> Any:
    return {"resolved": True, **item} if isinstance(item, dict) else {"message": item, "resolved": True}


class _Fields:
    """The fields of an entry by any of their usual names, and which of them were used."""

    def __init__(self, item: dict[str, Any]) -> None:
        self._item = item
        self._names = {_plain(name): name for name in reversed(item)}
        self._used: set[str] = set()

    def first(self, names: tuple[str, ...], read: Callable[[Any], Any]) -> Any:
        for name in names:
            if name in self._names and self._names[name] not in self._used:
                value = read(self._item[self._names[name]])
                if value is not None:
                    self._used.add(self._names[name])
                    return value
        return None

    def rest(self, notes: Understood) -> Entry:
        """The fields nobody asked for: kept with the entry where they are small, and reported either way."""
        rest = {name: value for name, value in self._item.items() if name not in self._used and value is not None}
        rest = {name: value for name, value in rest.items() if name not in _OURS or type(value) is int}
        small = {name: value for name, value in rest.items() if len(json.dumps(value)) <= _MOST_EXTRA}
        large = [name for name in rest if name not in small]
        if large:
            notes.ignored.append(f"{', '.join(map(repr, large))}: more than {_MOST_EXTRA} bytes, so not kept here")
        if small:
            notes.ignored.append(f"{', '.join(map(repr, small))}: no meaning here; kept with the entry as it is")
        return {name: value for name, value in small.items() if name not in ("message", "resolved_at", "shape")}


def _error(name: str | None, item: Any, at: datetime, notes: Understood) -> Entry | None:
    if not isinstance(item, dict):
        item = {"message": item} if isinstance(item, str) else {"occurrences": item}
        name = None if isinstance(item.get("occurrences"), list) else name
    fields = _Fields(item)
    fingerprint = fields.first(v.FINGERPRINT, _text) or name
    message = fields.first(v.MESSAGE, _text)
    kind, where = fields.first(v.TYPE, _text), fields.first(v.WHERE, _text)
    line = fields.first(v.LINE, _whole)
    if fingerprint is None and (message or kind):
        fingerprint = _fingerprint(message, kind, where, line)
        notes.better.append(f'give "fingerprint" to choose the name yourself; here it is {fingerprint!r}')
    if fingerprint is None:
        return None
    count, resolved = fields.first(v.COUNT, _whole), fields.first(v.RESOLVED, lambda value: _resolved(value, at))
    first, last = fields.first(v.FIRST, moment_in), fields.first(v.LAST, moment_in)
    if message is None and kind is not None and kind not in fingerprint:
        message = kind
    entry: Entry = {
        "fingerprint": fingerprint,
        "first_seen": rfc3339(min(first or last or at, resolved or at)),
        "last_seen": rfc3339(last or min(at, resolved or at)),
        "occurrences": (0 if resolved else 1) if count is None else count,
    }
    if message:
        entry["message"] = message
    if resolved:
        entry["resolved_at"] = rfc3339(resolved)
    located = {"file": where, "line": line}
    return fields.rest(notes) | {n: v for n, v in located.items() if v is not None} | entry


def _fingerprint(message: str | None, kind: str | None, where: str | None, line: int | None) -> str:
    """As people write them: ``TypeError_app.js:42``; without a type and a place, the message itself."""
    text = message or ""
    typed = re.match(r"\s*(?:Uncaught\s+)?([A-Za-z_]\w*(?:Error|Exception|Warning))\b", text)
    placed = re.search(r"([\w.-]+\.[A-Za-z]\w{0,4}):(\d+)", text)
    kind = kind or (typed[1] if typed else None)
    if where is None and placed:
        where, line = placed[1], int(placed[2])
    if where:
        place = where if "/api" in where or "://" in where else where.rpartition("/")[2] or where
        return f"{kind or 'Error'}_{place}{'' if line is None else f':{line}'}"
    return " ".join(text.split())[:120] or str(kind)


def _endpoint(name: str | None, item: Any, at: datetime, notes: Understood) -> Entry | None:
    if isinstance(item, str):  # "GET /users", or under a name of its own a description
        item, name = ({"summary": item}, name) if name and "/" in name else ({}, item)
    fields = _Fields(item if isinstance(item, dict) else {"shape": item})
    endpoint = _target(fields, name)
    if endpoint is None:
        return None
    if " " not in endpoint:
        notes.better.append(f'name the method too: "GET {endpoint}"')
    shape = fields.first(v.SHAPE, lambda value: value)
    if shape is None:
        body = fields.first(v.BODY, lambda value: value)
        shape = None if body is None else shape_of(body)
    if fields.first(v.MEANS + v.TAILS, _milliseconds) is not None:
        notes.better.append('times are compared over sessions in the namespace "performance"; save them there too')
    entry: Entry = {"endpoint": endpoint, "seen": fields.first(v.COUNT, _whole) or 1}
    entry["last_seen"] = rfc3339(fields.first(v.LAST + v.FIRST, moment_in) or at)
    if shape not in (None, {}, []):
        entry["shape"] = shape
    return fields.rest(notes) | entry


def _timing(name: str | None, item: Any, at: datetime, notes: Understood) -> Entry | None:
    fields = _Fields(item if isinstance(item, dict) else {"ms": item})
    endpoint = _target(fields, name)
    took = fields.first(v.MEANS, _milliseconds)
    if took is None:
        seconds = fields.first(v.SECONDS, _number)
        took = None if seconds is None else seconds * 1000
    tails = {tail: fields.first((tail, f"{tail}ms"), _milliseconds) for tail in v.TAILS}
    known = {f"{tail}_ms": value for tail, value in tails.items() if value is not None}
    if took is None and known:
        took = next(iter(known.values()))
        notes.better.append(f"give the mean as well (avg_ms); {next(iter(known))} stands for it now")
    if endpoint is None or took is None:
        return None
    entry: Entry = {"endpoint": endpoint, "session_ms": took}
    entry["session_samples"] = fields.first(v.SAMPLES, _whole) or 1
    entry["updated_at"] = rfc3339(fields.first(("updatedat", *v.LAST, *v.FIRST), moment_in) or at)
    before = fields.first(v.BEFORE, _milliseconds)
    if before is not None:
        entry |= {"before_ms": before, "before_samples": 1}
    return fields.rest(notes) | known | entry


def _rule(name: str | None, item: Any, _at: datetime, notes: Understood) -> Entry | None:
    fields = _Fields({"pattern": item} if isinstance(item, str) else item if isinstance(item, dict) else {})
    pattern = fields.first(v.PATTERN, _text) or name
    if pattern is None or not isinstance(item, str | dict):
        return None
    plain = re.sub(
        r"\\(.)", r"\1", pattern.removeprefix("^").removesuffix("$").replace(".*", "*").replace(".+", "*")
    )
    if plain != pattern:
        notes.better.append(
            f"a pattern is plain text in which * stands for anything; {pattern!r} is read as {plain!r}"
        )
    entry: Entry = {"pattern": plain}
    source = fields.first(("auto", "autodetected", "source", "origin"), lambda value: value)
    if source is True or str(source).lower().startswith("auto"):
        entry["auto"] = True
    reason = fields.first(v.REASON, _text)
    if reason:
        entry["reason"] = reason
    filtered = fields.first(("filtered", "count"), _whole)
    if filtered:
        entry["filtered"] = filtered
    removed = fields.first(("remove", "delete", "disabled"), _flag)
    enabled = fields.first(("enabled", "active"), _flag)
    if removed or enabled is False:
        entry["remove"] = True
    return fields.rest(notes) | entry


_READERS: Final = {ERRORS: _error, API_SCHEMA: _endpoint, PERFORMANCE: _timing, NOISE: _rule}


def _target(fields: _Fields, name: str | None) -> str | None:
    """An endpoint as ``GET /users``: of a URL only the path stays."""
    method = fields.first(v.METHOD, _text) or ""
    target = fields.first(v.TARGET, _text) or name
    if not target or not (method or "/" in target):
        return None
    first, space, rest = target.strip().partition(" ")
    if space and first.upper() in v.METHODS:
        method, target = first, rest.strip()
    parts = urlsplit(target)
    path = parts.path if parts.scheme and parts.netloc else target.partition("?")[0]
    return f"{method.upper()} {path or '/'}".strip()


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _text(value: Any) -> str | None:
    return value.strip() if isinstance(value, str) and value.strip() else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 1 << 53 else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _milliseconds(value: Any) -> float | None:
    """A duration: a number of milliseconds, ``"150ms"``, ``"1.2 s"``; or a map with one inside."""
    if isinstance(value, dict):
        inner: float | None = _Fields(value).first(v.MEANS + v.TAILS, _milliseconds)
        return inner
    if isinstance(value, str):
        found = re.fullmatch(r"\s*~?([\d.]+)\s*(ms|msec|milliseconds|s|sec|seconds)?\s*", value)
        number = _number(found[1]) if found else None
        in_seconds = found is not None and (found[2] or "").startswith("s")
        return number * 1000 if in_seconds and number is not None else number
    number = _number(value)
    return number if number is not None and 0 <= number < 1e12 else None  # noqa: PLR2004 — thirty years


def _resolved(value: Any, at: datetime) -> datetime | None:
    """When an error was resolved: a date, true, or a word such as ``fixed``; None for one that is open."""
    if isinstance(value, str) and value.strip():
        said = value.strip().lower()
        return moment_in(value) or (at if said in v.CLOSED or (" " in said and said not in v.OPEN) else None)
    return at if value is True else None


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


def _shown(data: Any) -> str:
    text = json.dumps(data, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:79]}…"  # noqa: PLR2004 — fits a line
