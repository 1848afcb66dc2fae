"""Parse errors, endpoints, timings and noise rules in the forms that agents and people write.

An agent may send one entry or many; as a list, a map by name, plain text, or below a field such as ``errors``; with
any usual name for a field (``count`` for ``occurrences``), as listed in `kinds`. Nothing is dropped silently:
`Understood.ignored` names what was not understood, and `Understood.better` says how to write it next time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from snapshot_plugin.memory.files import API_SCHEMA, ERRORS, NOISE, PERFORMANCE
from snapshot_plugin.memory.kinds import (
    KINDS,
    METHODS,
    TAILS,
    Entry,
    expected,
    fields_of,
    milliseconds,
    plain,
    state_in,
    without_unit,
    words,
)
from snapshot_plugin.memory.shapes import shape_of
from snapshot_plugin.memory.texts import TOOK, fingerprint_in, pattern_in, request_in

__all__ = ["Understood", "understand"]

_MOST_EXTRA: Final = 300
_GENERIC: Final = frozenset(words(
    "all api apischema config current data default endpoint endpoints entries error errors history items latest"
    " list log main noise noiseconfig performance routes rules schema timings"
))  # fmt: skip
"""Keys that say where an entry is kept, and so are not its name."""
_METHOD: Final = frozenset(words("method methods verb verbs httpmethod httpmethods"))
_STACKS: Final = frozenset(words("stack stacktrace traceback trace backtrace callstack"))
_NAMED_BY_MESSAGE: Final = (
    'the message is its name; give "type", "file" and "line", or a "fingerprint", if the message varies'
)
_SAID: Final = {"resolved": {"resolved": True}, "resolvedrecently": {"resolved": True}, "remove": {"remove": True}}
"""Fields that apply to every entry below them."""


class Understood(NamedTuple):
    """Entries in their stored form; the times that came with endpoints; what was ignored, and what to do better."""

    entries: list[Entry]
    timings: list[Entry]
    ignored: list[str]
    better: list[str]
    unread: list[Any]


def understand(namespace: str, key: str, data: Any, now: str) -> Understood:
    """Parse *data* that was saved as *key* of *namespace*, one of `KINDS`, at the RFC 3339 time *now*."""
    result = Understood([], [], [], [], [])
    read = _READERS[namespace]
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
        for inner, item in (_pair(namespace, item) for item in data):
            yield from _several(namespace, inner, item) if isinstance(item, dict) else ((inner, item),)
    elif isinstance(data, str) and namespace != ERRORS and name is None:
        yield from ((None, line) for line in re.split(r"\s*\n\s*|[,;]\s*(?=/|[A-Z]+ /)", data.strip()))
    elif not isinstance(data, dict):
        yield name, data
    elif any(plain(field) in kind.wrappers and isinstance(v, list | dict) and v for field, v in data.items()):
        yield from _wrapped(namespace, name, data, notes)
    elif not _is_entry(namespace, data):
        yield from _named(namespace, data, notes)
    else:
        yield from _several(namespace, name, data)


def _pair(namespace: str, item: Any) -> tuple[str | None, Any]:
    """An item of a list; ``["GET", "/users"]`` and ``["GET /users", 150]`` are a name and a value."""
    if not isinstance(item, list):
        return None, item
    match item:
        case [str(name), str() | int() | float() as value] if namespace == PERFORMANCE:
            return name, value
        case [str(name), int(count)] if namespace == ERRORS:
            return name, count
        case [str(method), str(path)] if namespace == API_SCHEMA and method.upper() in METHODS:
            return f"{method} {path}", {}
    return None, {"": item}


def _several(namespace: str, name: str | None, data: Entry) -> _Items:
    """One entry; or one for each of its methods, or of the alternatives of its ``regex``."""
    for field, value in data.items():
        each: list[str] = []
        if namespace == API_SCHEMA and plain(field) in _METHOD:
            each = _methods(value)
        elif namespace == NOISE and field == "regex":
            each = re.split(r"\|(?![^(]*\))", str(value))
        if len(each) > 1 or (each and isinstance(value, list)) or (each and field == "methods"):
            rest = {other: about for other, about in data.items() if other != field}
            yield from ((name, {**rest, ("method" if namespace == API_SCHEMA else field): one}) for one in each)
            return
    yield name, data


def _methods(value: Any) -> list[str]:
    """The methods in a list or in text such as ``GET, POST``; none if it holds anything else."""
    each = [str(one) for one in (value if isinstance(value, list) else re.split(r"[\s,|/]+", str(value)))]
    return each if all(one.upper() in METHODS for one in each) else []


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


def _named(namespace: str, data: Entry, notes: Understood, group: str = "") -> _Items:
    """The entries of a map by name. Endpoints may be grouped by path or method, all entries by anything."""
    units = [field for field in data if namespace == PERFORMANCE and plain(field) in ("unit", "units")]
    for name, item in data.items():
        if name in units:
            continue
        if units and isinstance(item, int | float):  # {"build": 12.5, "unit": "s"}
            yield f"{group}{name}", {"value": item, "unit": data[units[0]]}
        elif plain(name) in KINDS[namespace].wrappers:  # a list of entries was expected there
            yield None, {name: item}
        elif namespace in (ERRORS, NOISE) and isinstance(item, list):
            yield from (_pair(namespace, each) for each in item)
        elif namespace == NOISE and not isinstance(item, dict):  # {"favicon": "dev server", "[HMR]": true}
            yield None, {"pattern": name, ("reason" if isinstance(item, str) else "enabled"): item}
        elif namespace == API_SCHEMA:
            yield from _routes(name, item, notes)
        elif namespace == PERFORMANCE and isinstance(item, dict) and item and not _is_entry(namespace, item):
            yield from _named(namespace, item, notes, f"{name} ")
        else:
            yield f"{group if '/' not in name else ''}{name}", item


def _routes(name: str, item: Any, notes: Understood) -> _Items:
    """The endpoints under a method, a path, or the name of a group."""
    if name.upper() in METHODS:  # {"GET": ["/users"]}, {"GET": {"/users": {}}}, {"GET": "/users"}
        for path in item if isinstance(item, dict | list) else [item]:
            yield f"{name.upper()} {path}", item[path] if isinstance(item, dict) else {}
    elif "/" not in name and isinstance(item, dict | list) and item:
        yield from _items(API_SCHEMA, None, item, notes)
    elif isinstance(item, dict) and any(field.upper() in METHODS for field in item):  # as in OpenAPI
        found = {field: each for field, each in item.items() if field.upper() in METHODS}
        if len(found) < len(item):
            notes.ignored.append(f"{', '.join(repr(f) for f in item if f not in found)}: no meaning beside methods")
        yield from ((f"{method.upper()} {name}", each) for method, each in found.items())
    elif isinstance(item, dict):
        yield from _several(API_SCHEMA, name, item)
    elif isinstance(item, list | str) and item and _methods(item):
        yield from ((f"{method.upper()} {name}", {}) for method in _methods(item))
    else:
        yield name, item


# Single entries ----------------------------------------------------------------------------------------------


def _kept(namespace: str, rest: Entry, notes: Understood) -> Entry:
    """Fields that were not understood: kept with the entry if they are small, and reported either way."""
    stored, kept = KINDS[namespace].fields, {}
    for name, value in rest.items():
        wanted = expected(namespace, name)
        if wanted:
            notes.ignored.append(f"{name!r}: {_shown(value)} was not understood; expected {wanted}")
        if len(json.dumps(value)) > _MOST_EXTRA:
            notes.ignored.append(f"{name!r}: more than {_MOST_EXTRA} bytes, so not kept here")
        elif name not in stored:
            kept[name] = value
    if plain_ones := [name for name in kept if not expected(namespace, name)]:
        notes.ignored.append(f"{', '.join(map(repr, plain_ones))}: no meaning here; kept with the entry as it is")
    return kept


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
    if named is True:  # beside a date
        del rest["resolved"]
    is_named = name or any(field in found for field in ("fingerprint", "message", "type"))
    if not is_named and isinstance(named, str) and named.strip():  # the name of an error, not a date
        name, resolved = rest.pop("resolved"), True
    resolved = now if resolved is True else resolved or None
    fingerprint, message, kind = found.get("fingerprint") or name, found.get("message"), found.get("type")
    if fingerprint is None and (message or kind):
        fingerprint = fingerprint_in(found, next((str(rest[f]) for f in rest if plain(f) in _STACKS), ""))
        if message and " ".join(message.split()).startswith(fingerprint):
            notes.better.append(_NAMED_BY_MESSAGE)
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


def _endpoint(name: str | None, item: Any, now: str, notes: Understood) -> Entry | None:
    if isinstance(item, str):  # "GET /users 200 45ms"; under a path, a description
        name, item = (name, {"summary": item}) if name and "/" in name else request_in(item)
    elif _is_status(item):
        item = {"status": item}
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
    if body is None and "shape" not in found and (documented := _documented(rest.get("responses"))) is not None:
        found["shape"] = documented
        del rest["responses"]
    shape = found.pop("shape", None if body is None else shape_of(body))
    entry = found | {"endpoint": endpoint, "seen": found.get("seen") or 1, "last_seen": found.get("last_seen", now)}
    return _kept(API_SCHEMA, rest, notes) | entry | ({} if shape in (None, {}, []) else {"shape": shape})


def _is_status(value: Any) -> bool:
    return isinstance(value, int) and 100 <= value < 600  # noqa: PLR2004 — HTTP's own


def _documented(responses: Any) -> Any:
    """The schema of the successful response in an OpenAPI document."""
    for status, response in responses.items() if isinstance(responses, dict) else ():
        if str(status).startswith("2") and isinstance(response, dict):
            for content in (response.get("content") or {"": response}).values():
                return content.get("schema") if isinstance(content, dict) else None
    return None


_TIMED: Final = ("session_ms", "seconds", "unit", "session_samples", "before_ms", *TAILS)


def _timing(name: str | None, item: Any, now: str, notes: Understood) -> Entry | None:
    if isinstance(item, list):
        item = {"ms": milliseconds(item), "samples": len(item)}
    elif isinstance(item, int | float) and not isinstance(item, bool) and name is not None:
        name, unit = without_unit(name)
        item = {"ms": item * unit}
    elif isinstance(item, str) and name is None:  # "GET /users: 150ms", "build took 80 ms"
        name, line = request_in(item)
        said = None if line else re.fullmatch(r"(.+?)(?:\s+took)?[\s:=→>(-]+([\d.,]+\s*[a-zµ]*)\)?", item.strip())
        name, item = (said[1], said[2]) if said else (name, line.get("ms", item))
    found, rest = fields_of(PERFORMANCE, item if isinstance(item, dict) else {"ms": item})
    endpoint, seconds, unit = _target(found, name, any_name=True), found.pop("seconds", None), found.pop("unit", 1)
    if isinstance(item, dict) and any(isinstance(v, str) and TOOK.search(v) for v in item.values()):
        unit = 1  # "150ms" says it already
    samples = found.pop("samples_ms", None)
    if samples and "session_ms" not in found:
        found |= {"session_ms": milliseconds(samples), "session_samples": len(samples)}
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
    text = pattern_in(pattern, is_regex="regex" in item if isinstance(item, dict) else False)
    if not text.strip("* "):  # it would match everything, or nothing
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
