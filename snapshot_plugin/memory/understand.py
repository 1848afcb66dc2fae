"""Read errors, endpoints, timings and noise rules in the shapes that agents and people write them.

An agent may send one entry or many; as a list, a map by name, plain text, or below a field such as ``errors``; with
any usual name for a field (``count`` for ``occurrences``): `kinds` lists them. What is not understood is never
dropped silently: `Understood.ignored` names it, and `Understood.better` says how to write it next time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from snapshot_plugin.memory import kinds
from snapshot_plugin.memory.files import API_SCHEMA, ERRORS, NOISE, PERFORMANCE
from snapshot_plugin.memory.kinds import GENERIC, KINDS, METHODS, TAILS, Entry, fields_of, plain, words
from snapshot_plugin.memory.shapes import shape_of
from snapshot_plugin.model.times import rfc3339

__all__ = ["StoredEntry", "Understood", "understand"]

_MOST_EXTRA: Final = 300
_STORED_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_NUMBERS: Final = words("occurrences seen session_ms session_samples before_ms before_samples session merged")
_OURS: Final = words("message resolved_at first_session resolved_session session merged seen shape filtered")
"""Fields of stored entries: one of another type is not taken over."""
_SAID: Final = {"resolved": {"resolved": True}, "resolvedrecently": {"resolved": True}, "remove": {"remove": True}}
"""Fields that say something about every entry below them."""


class StoredEntry(dict[str, Any]):
    """An entry that came in the stored form, as `load` returns it: saved again, it is no new sighting."""


class Understood(NamedTuple):
    """Entries in their stored form; the times that came with endpoints; what was ignored, and what to do better."""

    entries: list[Entry]
    timings: list[Entry]
    ignored: list[str]
    better: list[str]
    unread: list[Any]


def understand(namespace: str, key: str, data: Any, at: datetime) -> Understood:
    """Read *data* that was saved as *key* of *namespace*, one of `KINDS`."""
    result = Understood([], [], [], [], [])
    read, wanted = _READERS[namespace], KINDS[namespace].wanted
    for given, item in _items(namespace, None if plain(key) in GENERIC else key, data, result):
        name = (given or "").strip() or None
        is_stored = isinstance(item, dict) and _is_stored(namespace, item)
        entry = StoredEntry(item) if is_stored else read(name, item, at, result)
        if entry is None:
            result.unread.append(item if name is None else {name: item})
            result.ignored.append(f"{_shown(result.unread[-1])}: {wanted}")
        else:
            result.entries.append(entry)
    return result


def _is_stored(namespace: str, item: Entry) -> bool:
    """Whether *item* is in the stored form already, as `load` returns it."""
    kind = KINDS[namespace]
    times = [item.get(field, "") for field in kind.times]
    return bool(
        times
        and isinstance(item.get(kind.named_by), str)
        and item[kind.named_by].strip()
        and all(isinstance(time, str) and _STORED_TIME.fullmatch(time) for time in times)
        and _STORED_TIME.fullmatch(str(item.get("resolved_at") or times[0]))
        and all(isinstance(item.get(field, 0), int | float) for field in _NUMBERS)
        and (namespace != PERFORMANCE or "session_ms" in item)
    )


def _items(namespace: str, name: str | None, data: Any, notes: Understood) -> Iterator[tuple[str | None, Any]]:
    """Each single entry in *data*, and the name it was given from outside."""
    kind = KINDS[namespace]
    if isinstance(data, list) and (namespace != PERFORMANCE or name is None or _mean(data) is None):
        yield from ((None, {"": item} if isinstance(item, list) else item) for item in data)
    elif not isinstance(data, dict):
        yield name, data
    elif any(plain(field) in kind.wrappers and isinstance(v, list | dict) and v for field, v in data.items()):
        yield from _wrapped(namespace, name, data, notes)
    elif _is_entry(namespace, data):
        methods = data.get("methods")
        if namespace == API_SCHEMA and isinstance(methods, list) and methods:
            rest = {field: value for field, value in data.items() if field != "methods"}
            yield from ((name, {**rest, "method": method}) for method in methods)
        else:
            yield name, data
    else:
        yield from _named(namespace, data)


def _is_entry(namespace: str, data: Entry) -> bool:
    return any(plain(field) in KINDS[namespace].marks and field.upper() not in METHODS for field in data)


def _wrapped(namespace: str, name: str | None, data: Entry, notes: Understood) -> Iterator[tuple[str | None, Any]]:
    """The entries below fields such as ``errors``. What stands beside a single entry, or noise rules, is theirs."""
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


def _named(namespace: str, data: Entry) -> Iterator[tuple[str | None, Any]]:
    """The entries of a map by name; endpoints may also be grouped by path or by method."""
    for name, item in data.items():
        if plain(name) in KINDS[namespace].wrappers:  # a list of entries was expected there
            yield None, {name: item}
        elif namespace == NOISE and not isinstance(item, dict):  # {"favicon": "dev server", "[HMR]": true}
            yield None, {"pattern": name, ("reason" if isinstance(item, str) else "enabled"): item}
        elif namespace in (ERRORS, NOISE) or not isinstance(item, dict | list) or not item:
            yield name, item
        elif name.upper() in METHODS or all(isinstance(each, str) and each.upper() in METHODS for each in item):
            for other, each in item.items() if isinstance(item, dict) else ((other, {}) for other in item):
                method, path = (name, other) if name.upper() in METHODS else (other, name)
                yield f"{method.upper()} {path}", each
        else:
            yield name, item


def _kept(rest: Entry, notes: Understood) -> Entry:
    """The fields without a meaning: kept with the entry where they are small, and reported either way."""
    rest = {name: value for name, value in rest.items() if name not in _OURS or type(value) is int}
    large = [name for name, value in rest.items() if len(json.dumps(value)) > _MOST_EXTRA]
    small = [name for name in rest if name not in large]
    if large:
        notes.ignored.append(f"{', '.join(map(repr, large))}: more than {_MOST_EXTRA} bytes, so not kept here")
    if small:
        notes.ignored.append(f"{', '.join(map(repr, small))}: no meaning here; kept with the entry as it is")
    return {name: rest[name] for name in small if name not in ("message", "resolved_at", "shape")}


def _error(name: str | None, item: Any, at: datetime, notes: Understood) -> Entry | None:
    if not isinstance(item, dict):
        name = None if isinstance(item, list) else name
        item = {"message" if isinstance(item, str) else "occurrences": item}
    found, rest = fields_of(ERRORS, item)
    fingerprint, message, kind = found.get("fingerprint") or name, found.get("message"), found.get("type")
    if fingerprint is None and (message or kind):
        fingerprint = _fingerprint(message, kind, found.get("file"), found.get("line"))
        notes.better.append(f'give "fingerprint" to choose the name yourself; here it is {fingerprint!r}')
    if fingerprint is None:
        return None
    resolved = at if found.get("resolved") is True else found.get("resolved") or None
    first, last = found.get("first"), found.get("last")
    entry = {
        "fingerprint": fingerprint,
        "first_seen": rfc3339(min(first or last or at, resolved or at)),
        "last_seen": rfc3339(last or min(at, resolved or at)),
        "occurrences": found.get("occurrences", 0 if resolved else 1),
        "message": message or (kind if kind and kind not in fingerprint else None),
        "resolved_at": rfc3339(resolved) if resolved else None,
    } | {field: found.get(field) for field in ("type", "file", "line")}
    return _kept(rest, notes) | {field: value for field, value in entry.items() if value is not None}


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
    found, rest = fields_of(API_SCHEMA, item if isinstance(item, dict) else {"shape": item})
    endpoint = _target(found, name)
    if endpoint is None:
        return None
    if " " not in endpoint:
        notes.better.append(f'name the method too: "GET {endpoint}"')
    timed, left = fields_of(PERFORMANCE, rest, only=("ms", "seconds", "samples", "before", *TAILS))
    timing = _timing(endpoint, timed, at, notes) if timed else None
    if timing is not None:
        notes.timings.append(timing)
        rest = left
    shape = found["shape"] if "shape" in found else shape_of(found["body"]) if "body" in found else None
    last_seen = rfc3339(found.get("last_seen") or at)
    entry = {"endpoint": endpoint, "seen": found.get("seen") or 1, "last_seen": last_seen}
    return _kept(rest, notes) | entry | ({} if shape in (None, {}, []) else {"shape": shape})


def _timing(name: str | None, item: Any, at: datetime, notes: Understood) -> Entry | None:
    if isinstance(item, list):
        item = {"ms": _mean(item), "samples": len(item)}
    found, rest = fields_of(PERFORMANCE, item if isinstance(item, dict) else {"ms": item})
    endpoint = _target(found, name, any_name=True)
    tails = {f"{tail}_ms": found[tail] for tail in TAILS if tail in found}
    took = found.get("ms", found["seconds"] * 1000 if "seconds" in found else None)
    if took is None and tails:
        took = next(iter(tails.values()))
        notes.better.append(f"give the mean as well (avg_ms); {next(iter(tails))} stands for it now")
    if endpoint is None or took is None:
        return None
    entry = {"endpoint": endpoint, "session_ms": took, "session_samples": found.get("samples") or 1}
    entry["updated_at"] = rfc3339(found.get("updated_at") or at)
    before = {"before_ms": found["before"], "before_samples": 1} if "before" in found else {}
    return _kept(rest, notes) | tails | entry | before


def _mean(items: list[Any]) -> float | None:
    times = [kinds.milliseconds(item) for item in items if not isinstance(item, dict)]
    return None if None in times or not items or len(times) < len(items) else sum(filter(None, times)) / len(times)


def _rule(name: str | None, item: Any, _at: datetime, notes: Understood) -> Entry | None:
    if not isinstance(item, str | dict):
        return None
    found, rest = fields_of(NOISE, {"pattern": item} if isinstance(item, str) else item)
    pattern = found.get("pattern") or name
    if pattern is None:
        return None
    text = re.sub(
        r"\\(.)", r"\1", pattern.removeprefix("^").removesuffix("$").replace(".*", "*").replace(".+", "*")
    )
    if text != pattern:
        notes.better.append(
            f"a pattern is plain text in which * stands for anything; {pattern!r} is read as {text!r}"
        )
    found |= {"remove": True} if found.get("enabled") is False else {}
    entry = {field: found[field] for field in ("auto", "reason", "filtered", "remove") if found.get(field)}
    return _kept(rest, notes) | {"pattern": text, **entry}


_READERS: Final = {ERRORS: _error, API_SCHEMA: _endpoint, PERFORMANCE: _timing, NOISE: _rule}


def _target(found: Entry, name: str | None, *, any_name: bool = False) -> str | None:
    """An endpoint as ``GET /users``: of a URL only the path stays."""
    method, target = found.get("method") or "", found.get("target") or name
    if not target or not (method or "/" in target or any_name):
        return None
    first, space, rest = target.strip().partition(" ")
    if space and first.upper() in METHODS:
        method, target = first, rest.strip()
    path = urlsplit(target).path if "://" in target else target.partition("?")[0]
    return f"{method.upper()} {path or '/'}".strip()


def _shown(data: Any) -> str:
    text = json.dumps(data, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:79]}…"  # noqa: PLR2004 — fits a line
