"""Parse errors, endpoints, timings and noise rules in the forms that agents and people write.

An agent may send one entry or many; as a list, a map by name, plain text, or below a field such as ``errors``; with
any usual name for a field (``count`` for ``occurrences``), as listed in `kinds`. Nothing is dropped silently:
`Understood.ignored` names what was not understood, and `Understood.better` says how to write it next time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from snapshot_plugin.memory.files import API_SCHEMA, ERRORS, NOISE, PERFORMANCE
from snapshot_plugin.memory.kinds import (
    KINDS,
    METHODS,
    TAILS,
    Entry,
    fields_of,
    milliseconds,
    plain,
    state_in,
    without_unit,
    words,
)
from snapshot_plugin.memory.shapes import shape_of
from snapshot_plugin.model.times import rfc3339

__all__ = ["Understood", "understand"]

_MOST_EXTRA: Final = 300
_GENERIC: Final = frozenset(words(
    "all api apischema config current data default endpoint endpoints entries error errors history items latest"
    " list log main noise noiseconfig performance routes rules schema timings"
))  # fmt: skip
"""Keys that say where an entry is kept, and so are not its name."""
_SAID: Final = {"resolved": {"resolved": True}, "resolvedrecently": {"resolved": True}, "remove": {"remove": True}}
"""Fields that apply to every entry below them."""


class Understood(NamedTuple):
    """Entries in their stored form; the times that came with endpoints; what was ignored, and what to do better."""

    entries: list[Entry]
    timings: list[Entry]
    ignored: list[str]
    better: list[str]
    unread: list[Any]


def understand(namespace: str, key: str, data: Any, at: datetime) -> Understood:
    """Parse *data* that was saved as *key* of *namespace*, one of `KINDS`."""
    result = Understood([], [], [], [], [])
    read, now = _READERS[namespace], rfc3339(at)
    for given, item in _items(namespace, None if plain(key) in _GENERIC else key, data, result):
        name = (given or "").strip() or None
        entry = read(name, item, now, result)
        if entry is None:
            result.unread.append(item if name is None else {name: item})
            result.ignored.append(f"{_shown(result.unread[-1])}: {KINDS[namespace].wanted}")
        else:
            result.entries.append(entry)
    return result


# Many entries ------------------------------------------------------------------------------------------------

_Items = Iterator[tuple[str | None, Any]]
"""Single entries, each with the name from the enclosing map or key."""


def _items(namespace: str, name: str | None, data: Any, notes: Understood) -> _Items:
    kind = KINDS[namespace]
    if isinstance(data, list) and (namespace != PERFORMANCE or name is None or milliseconds(data) is None):
        yield from (_pair(namespace, item) for item in data)
    elif isinstance(data, str) and namespace == API_SCHEMA and name is None:
        yield from ((None, line) for line in re.split(r"[\n,;]\s*(?=/|[A-Z]+ /)", data))
    elif not isinstance(data, dict):
        yield name, data
    elif any(plain(field) in kind.wrappers and isinstance(v, list | dict) and v for field, v in data.items()):
        yield from _wrapped(namespace, name, data, notes)
    elif not _is_entry(namespace, data):
        yield from _named(namespace, data)
    else:
        yield from _several(namespace, name, data)


def _pair(namespace: str, item: Any) -> tuple[str | None, Any]:
    """An item of a list; ``["GET", "/users"]`` and ``["GET /users", 150]`` are a name and a value."""
    if not isinstance(item, list):
        return None, item
    match item:
        case [str(name), str() | int() | float() as value] if namespace == PERFORMANCE:
            return name, value
        case [str(method), str(path)] if namespace == API_SCHEMA and method.upper() in METHODS:
            return f"{method} {path}", {}
    return None, {"": item}


def _several(namespace: str, name: str | None, data: Entry) -> _Items:
    """One entry; or one for each of its ``methods``, or of the alternatives of its ``regex``."""
    field, each, values = {
        API_SCHEMA: ("methods", "method", data.get("methods")),
        NOISE: ("regex", "regex", re.split(r"\|(?![^(]*\))", str(data.get("regex", "")))),
    }.get(namespace, ("", "", None))
    if field in data and isinstance(values, list) and values:
        yield from ((name, {**{f: v for f, v in data.items() if f != field}, each: value}) for value in values)
    else:
        yield name, data


def _is_entry(namespace: str, data: Entry) -> bool:
    return any(plain(field) in KINDS[namespace].marks and field.upper() not in METHODS for field in data)


def _wrapped(namespace: str, name: str | None, data: Entry, notes: Understood) -> _Items:
    """The entries below fields such as ``errors``. Fields next to a single entry, or noise rules, belong to it."""
    kind = KINDS[namespace]
    inside = {f: v for f, v in data.items() if plain(f) in kind.wrappers and isinstance(v, list | dict) and v}
    beside = {f: v for f, v in data.items() if f not in inside and v is not None}
    shared = fields_of(NOISE, beside, only=("reason", "auto", "remove", "enabled"))[0] if namespace == NOISE else {}
    for field, value in inside.items():
        if isinstance(value, dict) and _is_entry(namespace, value):
            shared, beside = beside, {}
        said = {**_SAID.get(plain(field), {}), **shared}
        for inner, item in _items(namespace, name, value, notes):
            if said and not isinstance(item, dict):
                yield inner, {**said, (kind.plain if isinstance(item, str) else "count"): item}
            else:
                yield inner, {**said, **item} if said else item
    if beside and not shared:
        notes.ignored.append(f"{', '.join(map(repr, beside))}: no meaning beside a list of entries")


def _named(namespace: str, data: Entry) -> _Items:
    """The entries of a map by name. Endpoints may be grouped by path or method, errors by anything."""
    for name, item in data.items():
        if plain(name) in KINDS[namespace].wrappers:  # a list of entries was expected there
            yield None, {name: item}
        elif namespace == NOISE and not isinstance(item, dict):  # {"favicon": "dev server", "[HMR]": true}
            yield None, {"pattern": name, ("reason" if isinstance(item, str) else "enabled"): item}
        elif namespace == ERRORS and isinstance(item, list):
            yield from (_pair(namespace, each) for each in item)
        elif namespace in (ERRORS, NOISE) or not isinstance(item, dict | list) or not item:
            yield name, item
        elif name.upper() in METHODS or all(isinstance(each, str) and each.upper() in METHODS for each in item):
            for other, each in item.items() if isinstance(item, dict) else ((other, {}) for other in item):
                method, path = (name, other) if name.upper() in METHODS else (other, name)
                yield f"{method.upper()} {path}", each
        else:
            yield name, item


# Single entries ----------------------------------------------------------------------------------------------


def _kept(namespace: str, rest: Entry, notes: Understood) -> Entry:
    """Unknown fields: kept with the entry if they are small, and reported either way."""
    large = [name for name, value in rest.items() if len(json.dumps(value)) > _MOST_EXTRA]
    small = [name for name in rest if name not in large]
    if large:
        notes.ignored.append(f"{', '.join(map(repr, large))}: more than {_MOST_EXTRA} bytes, so not kept here")
    if small:
        notes.ignored.append(f"{', '.join(map(repr, small))}: no meaning here; kept with the entry as it is")
    return {name: rest[name] for name in small if name not in KINDS[namespace].fields}


def _error(name: str | None, item: Any, now: str, notes: Understood) -> Entry | None:
    if not isinstance(item, dict):
        says_state = name is not None and state_in(item) is not None
        name = None if isinstance(item, list) else name
        item = {"state" if says_state else "message" if isinstance(item, str) else "occurrences": item}
    inner = item.get("location")
    found, rest = fields_of(ERRORS, {**item, "location": None, **inner} if isinstance(inner, dict) else item)
    state = found.pop("state", None)
    resolved = found.pop("resolved_at", state)
    named = rest.get("resolved")
    if name is None and isinstance(named, str) and named.strip():  # the name of an error, not a date
        name, resolved = rest.pop("resolved"), True
    resolved = now if resolved is True else resolved or None
    fingerprint, message, kind = found.get("fingerprint") or name, found.get("message"), found.get("type")
    if fingerprint is None and (message or kind):
        fingerprint = _fingerprint(found, str(rest.get("stack") or rest.get("traceback") or ""))
        notes.better.append(f'give "fingerprint" to choose the name yourself; here it is {fingerprint!r}')
    if fingerprint is None:
        return None
    first, last = found.get("first_seen"), found.get("last_seen")
    found |= {
        "fingerprint": fingerprint,
        "first_seen": min(first or last or now, resolved or now),
        "last_seen": last or min(now, resolved or now),
        "occurrences": found.get("occurrences", 0 if resolved else 1),
    }
    message = message or (kind if kind and kind not in fingerprint else None)
    stated = {"message": message, "resolved_at": resolved}
    return _kept(ERRORS, rest, notes) | found | {field: value for field, value in stated.items() if value}


def _fingerprint(found: Entry, trace: str) -> str:
    """A fingerprint such as ``TypeError_app.js:42``; the message itself if type and place are missing."""
    text = found.get("message", "")
    if re.fullmatch(r"\w*(?:Error|Exception|Warning)_\S+", text):
        return str(text)
    typed = re.search(r"(?m)^\s*(?:Uncaught\s+)?([A-Za-z_]\w*(?:Error|Exception|Warning))\b", text)
    placed = re.findall(r'File "[^"]*?([^"/]+)", line (\d+)', f"{text}\n{trace}")[-1:]  # Python's format
    placed += re.findall(r"([\w.-]+\.[A-Za-z]\w{0,4}):(\d+)", f"{text}\n{trace}")
    kind, where, line = found.get("type") or (typed[1] if typed else None), found.get("file"), found.get("line")
    if where is None and placed:
        where, line = placed[0]
    if where:
        place = where if "/api" in where or "://" in where else where.rpartition("/")[2] or where
        return f"{kind or 'Error'}_{place}{'' if line is None else f':{line}'}"
    words = " ".join(text.split())[:120]
    return words if words and (not kind or kind in words) else ": ".join(filter(None, (kind, words)))


def _endpoint(name: str | None, item: Any, now: str, notes: Understood) -> Entry | None:
    if isinstance(item, str) and name is None:  # "GET /users -> 200"
        said = re.fullmatch(r"([A-Za-z]+ /\S*)\s+(?:->|=>|→|-|:)?\s*(.+)", item.strip())
        name, item = (said[1], said[2]) if said else (name, item)
    if isinstance(item, str):  # "GET /users"; under a name, a description
        item, name = ({"summary": item}, name) if name and "/" in name else ({}, item)
    found, rest = fields_of(API_SCHEMA, item if isinstance(item, dict) else {"shape": item})
    endpoint = _target(found, name)
    if endpoint is None:
        return None
    if " " not in endpoint:
        notes.better.append(f'name the method too: "GET {endpoint}"')
    _, left = fields_of(PERFORMANCE, rest, only=_TIMED)
    timed = {field: value for field, value in rest.items() if field not in left}
    timing = _timing(endpoint, timed, now, notes) if timed else None
    if timing is not None:
        notes.timings.append(timing)
        rest = left
    body = found.pop("body", None)
    shape = found.pop("shape", None if body is None else shape_of(body))
    entry = found | {"endpoint": endpoint, "seen": found.get("seen") or 1, "last_seen": found.get("last_seen", now)}
    return _kept(API_SCHEMA, rest, notes) | entry | ({} if shape in (None, {}, []) else {"shape": shape})


_TIMED: Final = ("session_ms", "seconds", "unit", "session_samples", "before_ms", *TAILS)


def _timing(name: str | None, item: Any, now: str, notes: Understood) -> Entry | None:
    if isinstance(item, list):
        item = {"ms": milliseconds(item), "samples": len(item)}
    elif isinstance(item, int | float) and name is not None:
        name, unit = without_unit(name)
        item = {"ms": item * unit}
    elif isinstance(item, str) and name is None:  # "GET /users: 150ms", "POST /login took 80 ms"
        said = re.fullmatch(r"(.+?)\s*(?::|=|\s+took)?\s+([\d.,]+\s*[a-zµ]*)", item.strip())
        name, item = (said[1], said[2]) if said else (None, item)
    found, rest = fields_of(PERFORMANCE, item if isinstance(item, dict) else {"ms": item})
    endpoint, seconds, unit = _target(found, name, any_name=True), found.pop("seconds", None), found.pop("unit", 1)
    took = found["session_ms"] * unit if "session_ms" in found else seconds
    tail = next((tail for tail in TAILS if tail in found), None)
    if took is None and tail:
        took = found[tail]
        notes.better.append(f"give the mean as well (avg_ms); {tail} stands for it now")
    if endpoint is None or took is None or "unit" in rest:  # not a unit of time
        return None
    found |= {"endpoint": endpoint, "session_ms": took, "session_samples": found.get("session_samples") or 1}
    found.setdefault("updated_at", now)
    before = {"before_samples": found.get("before_samples", 1)} if "before_ms" in found else {}
    return _kept(PERFORMANCE, rest, notes) | found | before


def _rule(name: str | None, item: Any, _now: str, notes: Understood) -> Entry | None:
    if not isinstance(item, str | dict):
        return None
    found, rest = fields_of(NOISE, {"pattern": item} if isinstance(item, str) else item)
    named = rest.get("remove")
    if name is None and "pattern" not in found and isinstance(named, str) and named.strip():
        name, found["remove"] = rest.pop("remove"), True
    pattern = found.get("pattern") or name
    if pattern is None:
        return None
    bare = re.sub(r"^/(.+)/[a-z]*$", r"\1", pattern).removeprefix("^").removesuffix("$")
    text = re.sub(r"\\(.)", r"\1", bare.replace(".*", "*").replace(".+", "*"))
    if not text.strip():  # from a pattern such as "^$", which would match everything or nothing
        return None
    if text != pattern:
        notes.better.append(
            f"a pattern is plain text in which * stands for anything; {pattern!r} is read as {text!r}"
        )
    found |= {"remove": True} if found.pop("enabled", None) is False else {}
    return _kept(NOISE, rest, notes) | {field: value for field, value in found.items() if value} | {"pattern": text}


_READERS: Final = {ERRORS: _error, API_SCHEMA: _endpoint, PERFORMANCE: _timing, NOISE: _rule}


def _target(found: Entry, name: str | None, *, any_name: bool = False) -> str | None:
    """An endpoint as ``GET /users``; a URL is reduced to its path."""
    method, target = found.pop("method", ""), found.get("endpoint") or name
    if not target:
        return None
    first, space, rest = target.strip().partition(" ")
    if space and first.upper() in METHODS:
        method, target = first, rest.strip()
    if not (method.upper() in METHODS or "/" in target or any_name):
        return None
    path = urlsplit(target).path if "://" in target else target.partition("?")[0]
    return f"{method.upper()} {path or '/'}".strip()


def _shown(data: Any) -> str:
    text = json.dumps(data, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:79]}…"  # noqa: PLR2004 — fits a line
