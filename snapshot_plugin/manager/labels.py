"""Title, tags, pin and note of a session, changed without touching the conversation.

They are stored in the snapshot only. The lease of a session that is not live is taken for the change. The owner of
a live session is asked through its control socket, and keeps the new label.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from snapshot_plugin.errors import InvalidInput, SessionLocked, SnapshotError
from snapshot_plugin.live.label import LABELS, apply_label, label_of, typed_label
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.place import leased_or_owned, place_of
from snapshot_plugin.manager.control import Answer, ask_owner
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.model.ids import is_reference
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.model.value import JsonObject, Value
from snapshot_plugin.store.base import SnapshotStore

__all__ = ["TRIGGER", "Change", "Labelled", "checked_label", "checked_name", "label"]

TRIGGER: Final = "label"

Change = Callable[[SessionSnapshot], Mapping[str, Any]]
"""Returns the changes for a session: some of `LABELS` with their new values."""

_MAX_NAME: Final = 200
_MAX_TAGS: Final = 100
_MAX_NOTE: Final = 16_000
_UNSEEN: Final = re.compile(r"[\x00-\x1f\x7f]")


class Labelled(Value):
    """The result of a label change: before, after, the snapshot that holds it, and the owner if it is live."""

    session_id: str
    before: JsonObject
    after: JsonObject
    seq: int
    owner: Owner | None = None

    @property
    def changed(self) -> bool:
        """Whether the label changed."""
        return self.before != self.after

    @property
    def step(self) -> dict[str, Any]:
        """The undo step for the operation log: the previous values, and the tags afterwards if they changed."""
        old = {name: value for name, value in self.before.items() if self.after[name] != value}
        since = {"tags_after": self.after["tags"]} if "tags" in old else {}
        return {"do": "label", "session_id": self.session_id, **old, **since}


# Pure ------------------------------------------------------------------------------------------------------------


def checked_label(request: Mapping[str, Any]) -> dict[str, Any]:
    """Validate a label: titles and tags on one line, no terminal control characters, limited length.

    A title or note without a visible character counts as empty.

    Raises:
        InvalidInput: the label is invalid.
    """
    wanted = typed_label(request)
    if "title" in wanted:
        wanted["title"] = _line("name", wanted["title"] or "") or None
    if "tags" in wanted:
        wanted["tags"] = list(dict.fromkeys(_line("tag", tag) for tag in wanted["tags"]))
        if "" in wanted["tags"] or len(wanted["tags"]) > _MAX_TAGS:
            raise InvalidInput(f"a session has at most {_MAX_TAGS} tags, each with a visible character")
    if len(wanted.get("note") or "") > _MAX_NOTE:
        raise InvalidInput(f"a note has at most {_MAX_NOTE} characters")
    if "note" in wanted:
        wanted["note"] = (wanted["note"] or "").strip() or None
    return wanted


def checked_name(name: str) -> str | None:
    """Validate the name that a user gives a session; None for an empty one.

    Raises:
        InvalidInput: the name means something else where sessions are named, or is too long.
    """
    checked: str | None = checked_label({"title": name})["title"]
    if checked and is_reference(checked):
        raise InvalidInput(f"{checked!r} cannot be a name: it means something else", hint="see asnap help refs")
    return checked


def _line(what: str, value: str) -> str:
    if len(value) > _MAX_NAME or _UNSEEN.search(value):
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
        SessionLocked: another process owns the session and cannot be asked; the text names it and since when.
        InvalidInput: a value has the wrong type.
    """
    async with leased_or_owned(store, session_id, clock) as owner:
        found = await store.read(session_id, strict=True)
        before = label_of(found.snapshot)
        wanted = change(found.snapshot)
        changed = apply_label(found.snapshot, wanted)
        done = Labelled(session_id=session_id, before=before, after=label_of(changed), seq=found.ref.seq)
        if changed is found.snapshot:
            return done
        if owner is not None:
            seq = await _ask(store, owner, session_id, wanted, timeout)
            return done.evolve(seq=seq, owner=owner)
        ref = await store.save(changed, trigger=TRIGGER, base=found.ref.seq)
        return done.evolve(seq=ref.seq)


async def _ask(
    store: SnapshotStore,
    owner: Owner,
    session_id: str,
    wanted: Mapping[str, Any],
    timeout: float,  # noqa: ASYNC109 — as above
) -> int:
    request = {"op": "label", "session_id": session_id, **{name: wanted[name] for name in LABELS if name in wanted}}
    answer = await ask_owner(owner, request, timeout=timeout, place=place_of(store))
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
