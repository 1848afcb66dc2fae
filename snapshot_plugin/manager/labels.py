"""Names of sessions: title, tags, pin and note, changed without touching the conversation.

The snapshot itself is the one place that holds them. A session that nobody runs is edited under its lease, for a
moment; one that is live is its owner's, who is asked through its control socket and carries the label from then on.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio.to_thread

from snapshot_plugin.errors import InvalidInput, SessionLocked, SnapshotError
from snapshot_plugin.manager.control import Answer, ask_owner
from snapshot_plugin.manager.lease import Lease, Owner, owner_of
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.manager.recovery import LocalStore
from snapshot_plugin.model.ids import dirname_of
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.value import JsonObject, Value, rfc3339
from snapshot_plugin.store.base import SnapshotStore

__all__ = [
    "LABELS",
    "TRIGGER",
    "Change",
    "Labelled",
    "apply_label",
    "carried_over",
    "checked_label",
    "label",
    "label_of",
]

LABELS: Final = ("title", "tags", "pinned", "note")
TRIGGER: Final = "label"

Change = Callable[[SessionSnapshot], Mapping[str, Any]]
"""What to change, given the session as it is: some of `LABELS` with their new values."""

_NOTE: Final = "note"
_MAX_NAME: Final = 200
_MAX_TAGS: Final = 100
_MAX_NOTE: Final = 16_000
_UNSEEN: Final = re.compile(r"[\x00-\x1f\x7f]")


class Labelled(Value):
    """What became of a label: as it was, as it is, the snapshot that holds it, and who was asked if it is live."""

    session_id: str
    before: JsonObject
    after: JsonObject
    seq: int
    owner: Owner | None = None

    @property
    def changed(self) -> bool:
        """Whether anything is different now."""
        return self.before != self.after

    @property
    def step(self) -> dict[str, Any]:
        """How to take it back, for the operation log: the values that were there."""
        old = {name: value for name, value in self.before.items() if self.after[name] != value}
        return {"do": "label", "session_id": self.session_id, **old}


# Pure ------------------------------------------------------------------------------------------------------------


def label_of(snapshot: SessionSnapshot) -> dict[str, Any]:
    """The label a snapshot carries: each of `LABELS`."""
    note = snapshot.metadata.get(_NOTE)
    return {
        "title": snapshot.title,
        "tags": list(snapshot.tags),
        "pinned": snapshot.pinned,
        "note": note if isinstance(note, str) else None,
    }


def apply_label(snapshot: SessionSnapshot, request: Mapping[str, Any]) -> SessionSnapshot:
    """*snapshot* with those of `LABELS` that *request* names; everything else in *request* means nothing here.

    A title or note of None, or without a visible character, is taken away. When the session last changed stays: a
    new name makes an old session no younger. Returns *snapshot* itself if nothing is different.

    Raises:
        InvalidInput: a value is of the wrong kind, too long, or holds control characters.
    """
    wanted = checked_label(request)
    before = label_of(snapshot)
    changes = {name: value for name, value in wanted.items() if before[name] != value}
    if "note" in changes:
        others = {name: value for name, value in snapshot.metadata.items() if name != _NOTE}
        note = changes.pop("note")
        changes["metadata"] = {**others, _NOTE: note} if note else others
    return snapshot.evolve(**changes) if changes else snapshot


def carried_over(before: SessionSnapshot, now: SessionSnapshot) -> dict[str, Any]:
    """The part of the label of *before* that *now* lacks altogether: its maker knows nothing of labels."""
    old, new = label_of(before), label_of(now)
    return {name: value for name, value in old.items() if value and not new[name]}


def checked_label(request: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `LABELS` that *request* names, as they are stored. Raises as `apply_label`."""
    checks = {"title": _title, "tags": _tags, "pinned": _pinned, "note": _note}
    return {name: check(request[name]) for name, check in checks.items() if name in request}


def _title(value: Any) -> str | None:
    return _line("name", value) or None if value is not None else None


def _tags(value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or len(value) > _MAX_TAGS:
        raise InvalidInput(f"tags are a list of at most {_MAX_TAGS} words")
    tags = [_line("tag", tag) for tag in value]
    if "" in tags:
        raise InvalidInput("a tag has at least one visible character")
    return list(dict.fromkeys(tags))


def _pinned(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput("a session is pinned or not: true or false")
    return value


def _note(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or len(value) > _MAX_NOTE):
        raise InvalidInput(f"a note is text of at most {_MAX_NOTE} characters")
    return value.strip() or None if value is not None else None


def _line(what: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MAX_NAME or _UNSEEN.search(value):
        raise InvalidInput(f"a {what} is one line of at most {_MAX_NAME} characters")
    return value.strip()


# On a store ------------------------------------------------------------------------------------------------------


async def label(
    store: SnapshotStore,
    session_id: str,
    change: Change,
    *,
    clock: Clock = utc_now,
    timeout: float = 10.0,  # noqa: ASYNC109 — how long an owner may take to answer
) -> Labelled:
    """Change a session's label. Durable on return, in a new snapshot; nothing is written if nothing changes.

    Raises:
        SnapshotNotFound, Damaged: there is no such session, or its newest snapshot is not whole.
        SessionLocked: another process has the session and cannot be asked; the text says who and since when.
        InvalidInput: as `apply_label`.
    """
    async with _borrowed(store, session_id, clock) as owner:
        found = await store.read(session_id, strict=True)
        before = label_of(found.snapshot)
        wanted = change(found.snapshot)
        changed = apply_label(found.snapshot, wanted)
        done = Labelled(session_id=session_id, before=before, after=label_of(changed), seq=found.ref.seq)
        if changed is found.snapshot:
            return done
        if owner is not None:
            seq = await _ask(owner, session_id, wanted, timeout)
            return done.evolve(seq=seq, owner=owner)
        ref = await store.save(changed, trigger=TRIGGER, base=found.ref.seq)
        return done.evolve(seq=ref.seq)


@asynccontextmanager
async def _borrowed(store: SnapshotStore, session_id: str, clock: Clock) -> AsyncIterator[Owner | None]:
    """Hold the session for a moment. Yields its owner instead, if it has one."""
    held: Lease | Owner | None = None
    if isinstance(store, LocalStore):
        held = await anyio.to_thread.run_sync(_lease_or_owner, store, session_id, Owner.this_process(since=clock()))
    try:
        yield held if isinstance(held, Owner) else None
    finally:
        if isinstance(held, Lease):
            held.hand_back()


def _lease_or_owner(store: LocalStore, session_id: str, us: Owner) -> Lease | Owner | None:
    if not (store.path / "sessions" / dirname_of(session_id)).is_dir():
        return None
    directory = store.session_dir(session_id)
    try:
        return Lease.acquire(directory, us)
    except SessionLocked:
        owner = owner_of(directory)
        if owner is None:  # it ended just now
            raise
        return owner


async def _ask(owner: Owner, session_id: str, wanted: Mapping[str, Any], timeout: float) -> int:  # noqa: ASYNC109 — as above
    request = {"op": "label", "session_id": session_id, **{name: wanted[name] for name in LABELS if name in wanted}}
    answer = await ask_owner(owner, request, timeout=timeout)
    seq = answer.result.get("seq")
    if answer.outcome == "done" and answer.result.get("status") == "saved" and isinstance(seq, int):
        return seq
    if answer.outcome == "done" and answer.result.get("status") == "failed":
        raise SnapshotError(f"its process could not save session {session_id!r}: {answer.result.get('problem')}")
    raise _locked(owner, session_id, answer)


def _locked(owner: Owner, session_id: str, answer: Answer) -> SessionLocked:
    why = answer.reason or "it does not have the session any more"
    return SessionLocked(
        f"session {session_id!r} belongs to process {owner.pid} on {owner.host} since {rfc3339(owner.since)}, "
        f"which could not be asked: {why}",
        session_id=session_id,
        hint="try again when that process has ended",
    )
