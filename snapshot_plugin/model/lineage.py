"""Forks: make one, and build the family tree of many sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

from snapshot_plugin.errors import InvalidInput, InvalidSessionId
from snapshot_plugin.model.ids import check_new_id
from snapshot_plugin.model.snapshot import Metrics, Parent, SessionSnapshot
from snapshot_plugin.model.value import Value

__all__ = ["ORIGINS", "Branch", "ancestors", "family_tree", "fork", "origins"]

ORIGINS = "origins"
"""In the metadata of a branch of a branch: the sessions that its parent came from, as those may be deleted."""


def fork(
    snapshot: SessionSnapshot, *, session_id: str, seq: int, now: datetime, messages: int | None = None
) -> SessionSnapshot:
    """A new session with the first *messages* messages of *snapshot*; by default, all of them.

    *seq* is the number under which *snapshot* is stored; together they become the fork's `parent`. The fork is a
    separate session: it has no agent session id, is not pinned, and its metrics start at zero, so that sums over
    sessions count each turn once. Task and plan describe the end of the conversation; a fork from an earlier point
    does not copy them.

    Raises:
        InvalidInput: it has fewer messages.
        InvalidSessionId: *session_id* cannot be used, or is the parent's own.
    """
    taken = len(snapshot.messages) if messages is None else messages
    if not 0 <= taken <= len(snapshot.messages):
        raise InvalidInput(
            f"session {snapshot.session_id!r} cannot be forked at message {taken}: it has {len(snapshot.messages)}",
            session_id=snapshot.session_id,
            hint=f"choose 0 to {len(snapshot.messages)}",
        )
    if check_new_id(session_id) == snapshot.session_id:
        raise InvalidSessionId(f"{session_id!r} cannot be its own fork", session_id=session_id, hint="use a new id")
    earlier = sorted(origins(snapshot) - {snapshot.session_id})
    forked = snapshot.evolve(
        session_id=session_id,
        parent=Parent(session_id=snapshot.session_id, seq=seq, message_index=taken),
        agent_session_id=None,
        created_at=now,
        updated_at=now,
        pinned=False,
        metrics=Metrics(),
        metadata={**snapshot.metadata, ORIGINS: earlier} if earlier else snapshot.metadata,
    )
    if taken == len(snapshot.messages):
        return forked
    return forked.evolve(messages=snapshot.messages[:taken], current_task=None, plan=())


Break = Literal["parent missing", "cycle"]


class Branch(Value):
    """A session's place in the family tree. `broken` says why a session with a parent is listed as a root."""

    session_id: str
    depth: int
    parent: Parent | None = None
    broken: Break | None = None


Pairs = Iterable[tuple[str, Parent | None]]


def family_tree(pairs: Pairs) -> tuple[Branch, ...]:
    """Sessions and their parents as a tree, depth first: a fork follows its parent.

    Siblings keep their order. Every session is listed exactly once: a session whose parent is missing is a root,
    and so is each session of a cycle.
    """
    parents = dict(pairs)
    broken = _broken(parents)
    children: dict[str | None, list[str]] = {}
    for session_id, parent in parents.items():
        above = parent.session_id if parent and session_id not in broken else None
        children.setdefault(above, []).append(session_id)
    branches = []
    waiting = [(root, 0) for root in reversed(children.get(None, []))]
    while waiting:
        session_id, depth = waiting.pop()
        branches.append(
            Branch(session_id=session_id, depth=depth, parent=parents[session_id], broken=broken.get(session_id))
        )
        waiting += [(child, depth + 1) for child in reversed(children.get(session_id, []))]
    return tuple(branches)


def ancestors(session_id: str, pairs: Pairs) -> tuple[Parent, ...]:
    """The ancestors of *session_id*, nearest first, as far back as they are known.

    The last one may be a session that no longer exists. A cycle ends before it repeats.
    """
    parents = dict(pairs)
    chain: list[Parent] = []
    seen = {session_id}
    parent = parents.get(session_id)
    while parent is not None and parent.session_id not in seen:
        chain.append(parent)
        seen.add(parent.session_id)
        parent = parents.get(parent.session_id)
    return tuple(chain)


def origins(snapshot: SessionSnapshot, pairs: Pairs = ()) -> set[str]:
    """The ids of a session and of all sessions that it was forked or merged from.

    Branches of releases before 0.2.1 did not note them all; *pairs* has the parents that are still stored.
    """
    noted = snapshot.metadata.get(ORIGINS)
    merged = snapshot.metadata.get("merge")  # see `model.merge.SECTION`
    sources = merged.get("sources") if isinstance(merged, Mapping) else ()
    found = {snapshot.session_id} | ({snapshot.parent.session_id} if snapshot.parent else set())
    found |= {each for each in _items(noted) if isinstance(each, str)}
    found |= {str(each.get("session_id")) for each in _items(sources) if isinstance(each, Mapping)}
    parents = dict(pairs)
    return found.union(*([each.session_id for each in ancestors(name, parents.items())] for name in found))


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _broken(parents: Mapping[str, Parent | None]) -> dict[str, Break]:
    broken: dict[str, Break] = dict.fromkeys(_on_cycles(parents), "cycle")
    for child, parent in parents.items():
        if parent and parent.session_id not in parents:
            broken[child] = "parent missing"
    return broken


def _on_cycles(parents: Mapping[str, Parent | None]) -> set[str]:
    """The sessions that are their own ancestors. Each session is visited once."""
    done: set[str] = set()
    cyclic: set[str] = set()
    for start in parents:
        path: list[str] = []
        here: str | None = start
        while here is not None and here in parents and here not in done:
            done.add(here)
            path.append(here)
            parent = parents[here]
            here = parent.session_id if parent else None
        if here in path:
            cyclic.update(path[path.index(here) :])
    return cyclic
