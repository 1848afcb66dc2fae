"""Reading the documents of the known namespaces, also where an agent or a person wrote them by hand.

Lists may be bare, entries may be plain names, times may be missing. What makes no sense as an entry is kept under
``other``, so that adding to a document never costs what somebody else put there.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import ValidationError

from snapshot_plugin.memory.records import (
    ApiSchema,
    Endpoint,
    EndpointTiming,
    ErrorHistory,
    ErrorRecord,
    NoiseConfig,
    NoiseRule,
    Timings,
)
from snapshot_plugin.model.value import Value

__all__ = ["as_document", "entries_of", "read_document"]

_OTHER: Final = "other"

DocumentT = TypeVar("DocumentT", ErrorHistory, ApiSchema, Timings, NoiseConfig)


class _Kind(NamedTuple):
    entry: type[Value]
    field: str
    name: str
    times: tuple[str, ...]


_KINDS: Final[dict[type[Value], _Kind]] = {
    ErrorHistory: _Kind(ErrorRecord, "entries", "fingerprint", ("first_seen", "last_seen", "resolved_at")),
    ApiSchema: _Kind(Endpoint, "endpoints", "endpoint", ("last_seen",)),
    Timings: _Kind(EndpointTiming, "endpoints", "endpoint", ("updated_at",)),
    NoiseConfig: _Kind(NoiseRule, "rules", "pattern", ()),
}


def read_document(kind: type[DocumentT], raw: Any, *, seen_at: datetime) -> DocumentT:
    """The document in *raw*. Times that are missing become *seen_at*."""
    spec = _KINDS[kind]
    read = [(item, _entry(spec, item, seen_at)) for item in entries_of(kind, raw)]
    understood = tuple(entry for _, entry in read if entry is not None)
    other: list[Any] = [item for item, entry in read if entry is None]
    around: dict[str, Any] = (
        {name: value for name, value in raw.items() if name != spec.field} if isinstance(raw, dict) else {}
    )
    if other:
        around[_OTHER] = [*around.get(_OTHER, ()), *other]
    return kind(**{**around, spec.field: understood})


def entries_of(kind: type[Value], raw: Any) -> list[Any]:
    """The entries of a document as they were written; of a mapping, each under its own name."""
    spec = _KINDS[kind]
    items = raw.get(spec.field) if isinstance(raw, dict) else raw
    if isinstance(items, dict):
        return list(_named(items, spec.name))
    return list(items) if isinstance(items, list) else []


def as_document(kind: type[Value], key: str, raw: Any) -> Any:
    """*raw* as a document of *kind*, where it may also be a single entry that was saved under its own key."""
    spec = _KINDS[kind]
    if isinstance(raw, list) or (isinstance(raw, dict) and spec.field in raw):
        return raw
    return [{spec.name: key, **raw} if isinstance(raw, dict) else {spec.name: key, "value": raw}]


def _named(items: dict[str, Any], field: str) -> Iterator[dict[str, Any]]:
    for name, item in items.items():
        yield {**item, field: name} if isinstance(item, dict) else {field: name, "value": item}


def _entry(spec: _Kind, item: Any, seen_at: datetime) -> Value | None:
    written = {spec.name: item} if isinstance(item, str) else item
    if not isinstance(written, dict):
        return None
    try:
        return spec.entry.model_validate({**_times(spec, written, seen_at), **written})
    except ValidationError:
        return None


def _times(spec: _Kind, written: dict[str, Any], seen_at: datetime) -> dict[str, Any]:
    if all(name in written for name in spec.times):
        return {}
    latest = written.get("last_seen") or written.get("first_seen") or seen_at
    resolved = latest if written.get("resolved") is True else None
    return {name: resolved if name == "resolved_at" else latest for name in spec.times}
