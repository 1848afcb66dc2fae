"""Metadata of a stored snapshot, read without its conversation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from snapshot_plugin.model.times import moment_of, rfc3339

if TYPE_CHECKING:
    from snapshot_plugin.model.snapshot import Parent, SessionSnapshot

__all__ = ["CURRENT_VERSION", "LoadedFrom", "SnapshotMeta", "SnapshotRef", "SnapshotState", "summary_of"]

CURRENT_VERSION = 2
"""The schema version this release writes. `snapshot_plugin.migrate` reads every version before it."""

_OPENING = 80
"""How many characters of the first prompt are shown in lists."""
_EARLY = 8
"""How many messages are searched for the first prompt. Bounded, because every save does this."""

SnapshotState = Literal["ok", "damaged", "encrypted", "too_new"]
"""Why a snapshot cannot be read: it is damaged, no available key opens it, or a newer release wrote it."""

# Dataclasses, not pydantic models: a list creates thousands, and a command that only lists loads no pydantic.


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRef:
    """The receipt of a save: this snapshot is durable, under this number, with this content digest.

    Keep ``(seq, root)`` outside the store to notice a rollback of its tail.
    """

    session_id: str
    seq: int
    """The number of the snapshot in its session, from 1."""
    root: str
    """The digest of the content."""
    size_bytes: int
    """The size of the stored frame."""
    written: bool = True
    """False if the newest snapshot already had this content."""
    notices: tuple[str, ...] = ()
    """Limits that were exceeded; nothing was cut."""


@dataclass(frozen=True, kw_only=True)
class SnapshotMeta:
    """The list entry of a stored snapshot. A damaged or encrypted snapshot is listed as such, never left out."""

    session_id: str
    seq: int
    """The number of the snapshot in its session, from 1."""
    saved_at: datetime
    state: SnapshotState = "ok"
    """``ok``, ``damaged``, or ``encrypted`` (the key is missing)."""
    problem: str | None = None
    """What is wrong with a damaged snapshot."""
    root: str = ""
    """The digest of the content."""
    version: int = CURRENT_VERSION
    """The version of the stored data."""
    trigger: str = "manual"
    """Why it was saved: ``manual``, ``interval``, ``event``, ``exit``, ``recovered``, …"""
    snapshot_tags: tuple[str, ...] = ()
    """Tags of this snapshot, such as ``pre-deploy``."""
    size_bytes: int = 0
    """The size of the stored frame."""
    created_at: datetime | None = None
    """When the session was created."""
    updated_at: datetime | None = None
    """When the session last changed."""
    title: str | None = None
    opening: str | None = None
    """The beginning of the first prompt, for sessions without a title."""
    restored: str | None = None
    """The grade of the last restore; None if the session was never restored."""
    agent: str | None = None
    """The name of the agent."""
    provider_type: str | None = None
    cwd: str | None = None
    tags: tuple[str, ...] = ()
    """Tags of the session."""
    pinned: bool = False
    parent: Parent | None = None
    """Where the session was forked from."""
    messages: int = 0
    """How many messages the session has."""
    turns: int = 0
    tokens: int = 0
    """Input and output tokens together."""
    cost: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Keys and values by which an adapter finds the snapshot. Labels are not tags."""

    @property
    def changed_at(self) -> datetime:
        """When the session last changed or, if that is unknown, when it was saved. Lists are sorted by this."""
        return self.updated_at or self.saved_at

    @classmethod
    def told(cls, data: Mapping[str, Any], **known: Any) -> Self:
        """Read the entry from JSON. Null and unknown fields are ignored; *known* fields are not validated.

        Raises:
            ValueError: a field is missing or has the wrong type.
        """
        try:
            read: dict[str, Any] = {
                field.name: value if type(value) is field.plain else field.read(value)
                for name, value in data.items()
                if value is not None and (field := _FIELDS.get(name)) and name not in known
            }
            return cls._made(read | known)
        except TypeError as error:
            raise ValueError(str(error)) from error

    @classmethod
    def _made(cls, values: dict[str, Any]) -> Self:
        """Like ``cls(**values)``, but three times as fast: missing fields are class attributes."""
        if not values.keys() >= _REQUIRED:
            raise TypeError(f"{', '.join(sorted(_REQUIRED - values.keys()))} missing")
        made = object.__new__(cls)
        made.__dict__.update(values if "labels" in values else {**values, "labels": {}})
        return made

    def evolve(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return replace(self, **changes)


def summary_of(snapshot: SessionSnapshot) -> dict[str, Any]:
    """The fields of `SnapshotMeta` that depend on the content. Every frame repeats them for lists."""
    listed = {
        "created_at": rfc3339(snapshot.created_at),
        "updated_at": rfc3339(snapshot.updated_at),
        "title": snapshot.title,
        "opening": None if snapshot.title else _opening(snapshot),
        "restored": _restored(snapshot),
        "agent": snapshot.agent.name if snapshot.agent else None,
        "provider_type": snapshot.provider_type,
        "cwd": snapshot.config.cwd,
        "tags": list(snapshot.tags),
        "pinned": snapshot.pinned,
        "parent": snapshot.parent.raw() if snapshot.parent else None,
        "messages": len(snapshot.messages),
        "turns": snapshot.metrics.turns,
        "tokens": snapshot.metrics.total_tokens,
        "cost": snapshot.metrics.cost,
    }
    return {name: value for name, value in listed.items() if value or value == ""}


def _opening(snapshot: SessionSnapshot) -> str:
    """The beginning of the first prompt, on one line; empty if it is not among the first messages."""
    said = (message.text for message in snapshot.messages[:_EARLY] if message.role == "user")
    words = next((text[: 4 * _OPENING].split() for text in said if text.strip()), [])
    line = " ".join(words)
    return line if len(line) <= _OPENING else f"{line[:_OPENING].rstrip()}…"


def _restored(snapshot: SessionSnapshot) -> str | None:
    """The last restore, as recorded by the ACP hosts."""
    acp = snapshot.metadata.get("acp")
    report = acp.get("restored") if acp and isinstance(acp, Mapping) else None
    grade = report.get("grade") if report and isinstance(report, Mapping) else None
    return grade if isinstance(grade, str) else None


def _kind(kinds: tuple[type, ...], value: Any) -> Any:
    if type(value) not in kinds:
        raise ValueError(f"{value!r} is no {kinds[0].__name__}")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_kind((str,), each) for each in _kind((list, tuple), value))


def _labels(value: Any) -> dict[str, str]:
    return {_kind((str,), key): _kind((str,), text) for key, text in _kind((dict,), value).items()}


def _parent(value: Any) -> Parent:
    from snapshot_plugin.model.snapshot import Parent  # noqa: PLC0415 — brings pydantic; few sessions are forks

    return Parent.model_validate(value)


_REQUIRED = frozenset({"session_id", "seq", "saved_at"})


class _Field(NamedTuple):
    name: str
    """The interned name: assigning strings parsed from JSON would be slower."""
    plain: type | None
    """Values of this type need no conversion."""
    read: Callable[[Any], Any]


_PLAIN: dict[str, type] = {
    **dict.fromkeys(("session_id", "state", "problem", "root", "trigger", "title", "opening", "restored"), str),
    **dict.fromkeys(("agent", "provider_type", "cwd"), str),
    **dict.fromkeys(("seq", "version", "size_bytes", "messages", "turns", "tokens"), int),
    "pinned": bool,
}
_READ: dict[str, Callable[[Any], Any]] = {
    **{name: partial(_kind, (kind,)) for name, kind in _PLAIN.items()},
    **dict.fromkeys(("saved_at", "created_at", "updated_at"), moment_of),
    **dict.fromkeys(("snapshot_tags", "tags"), _texts),
    "cost": partial(_kind, (float, int)),
    "parent": _parent,
    "labels": _labels,
}
_FIELDS = {name: _Field(name, _PLAIN.get(name), read) for name, read in _READ.items()}
"""How each field is read."""


class LoadedFrom(NamedTuple):
    """The frame that a save of a loaded snapshot builds on: its session, number and id, and the store it is in.

    It is never stored, and does not take part in comparisons.
    """

    session_id: str
    seq: int
    id: str
    store: str = ""
    """The id of the store; empty if it has none."""
