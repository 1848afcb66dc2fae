"""What ``rename``, ``tag``, ``pin`` and ``note`` share: change a label, and write down how that is taken back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.document import Document
from snapshot_plugin.cli.output import Output
from snapshot_plugin.cli.text import plain
from snapshot_plugin.errors import InvalidInput

if TYPE_CHECKING:
    from snapshot_plugin.cli.refs import Target
    from snapshot_plugin.manager.labels import Labelled
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.store.base import SnapshotStore, StoredSnapshot

__all__ = ["Label", "label_as_is", "relabel", "whole_session"]


class Label(Document):
    """A session's label as it is now, and what became of the wish to change it."""

    kind: ClassVar[str] = "label"
    session_id: str
    title: str | None
    tags: tuple[str, ...]
    pinned: bool
    note: str | None
    changed: bool
    snapshot: int
    """The snapshot that holds it."""
    live_pid: int | None
    """The process that has the session and was asked; null if nobody has it."""
    operation: str | None
    """What `asnap undo` calls it; null if nothing changed."""
    told: str
    """What was done, in words."""

    def show(self, out: Output) -> None:
        """See `Document`."""
        if not self.changed:
            out.note(f"nothing to change: {plain(self.told)}")
            return
        out.note(plain(self.told))
        if self.live_pid:
            out.note(f"  it is live: process {self.live_pid} carries it from now on")
        out.note(f"  to take it back: {out.run('asnap undo')}")


Told = Callable[["Labelled"], str]


async def relabel(
    call: Call,
    store: SnapshotStore,
    session_id: str,
    change: Callable[[SessionSnapshot], Mapping[str, Any]],
    *,
    kind: str,
    told: Told,
) -> Label:
    """Change a session's label. *told* says what was done, for the user and for the list of operations."""
    from snapshot_plugin.manager.labels import label

    done = await label(store, session_id, change, clock=lambda: call.now)
    operation = None
    if done.changed:
        operation = await call.operations(store).record(kind=kind, summary=told(done), steps=[done.step])
    return Label(
        session_id=session_id,
        **_fields(done.after),
        changed=done.changed,
        snapshot=done.seq,
        live_pid=done.owner.pid if done.owner else None,
        operation=operation.id if operation else None,
        told=told(done),
    )


def label_as_is(stored: StoredSnapshot) -> Label:
    """A session's label, when it was only asked for."""
    from snapshot_plugin.manager.labels import label_of

    return Label(
        session_id=stored.snapshot.session_id,
        **_fields(label_of(stored.snapshot)),
        changed=False,
        snapshot=stored.ref.seq,
        live_pid=None,
        operation=None,
        told="",
    )


def _fields(label: Mapping[str, Any]) -> dict[str, Any]:
    return {**label, "tags": tuple(label["tags"])}


def whole_session(target: Target, what: str) -> str:
    """The id of the session that is meant; a snapshot of it has no label of its own."""
    if target.seq is not None:
        raise InvalidInput(
            f"{what} belongs to a session, not to its snapshot {target.seq}",
            session_id=target.session_id,
            hint=f"leave out @{target.seq}",
        )
    return target.session_id
