"""Merge two branches of one conversation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.model.align import Pair, align
from snapshot_plugin.model.frozen import FrozenDict
from snapshot_plugin.model.ids import check_new_id
from snapshot_plugin.model.lineage import ORIGINS, ancestors, origins
from snapshot_plugin.model.snapshot import Message, Metrics, Parent, SessionSnapshot
from snapshot_plugin.model.three_way import ABSENT, Clash, three_way
from snapshot_plugin.model.value import Value

__all__ = ["FROM", "OTHER", "Kinship", "MergeSide", "Merged", "kinship", "merge"]

FROM = "merged_from"
"""In a message's metadata: the session, snapshot and position of a message that only one branch has."""
OTHER = "merge_conflict"
"""In a message's metadata: the other branch's version, and its origin."""
SECTION = "merge"
"""In the snapshot's metadata: the two branches, and their conflicting settings."""

_EXCHANGE = 2
_OWN = ("session_id", "created_at", "updated_at", "version", "agent_session_id", "metrics", "parent", "pinned")
_SETTLED = (*_OWN, "messages", "tags")


class MergeSide(NamedTuple):
    """A branch: its snapshot, and the sequence number of that snapshot."""

    snapshot: SessionSnapshot
    seq: int


class Kinship(NamedTuple):
    """The common ancestor of two branches (perhaps one of them), and how many messages each inherited."""

    ancestor: Parent
    """The ancestor session, at the earlier of the two fork points."""
    first: int
    second: int


class Merged(Value):
    """The merged session, and where its parts came from."""

    snapshot: SessionSnapshot
    shared: int
    from_first: int
    from_second: int
    clashes: tuple[Clash, ...] = ()


def kinship(first: MergeSide, second: MergeSide, pairs: Iterable[tuple[str, Parent | None]]) -> Kinship | None:
    """The nearest common ancestor of two branches, if any. *pairs* are sessions with their parents."""
    known = dict(pairs)
    lines = [_descent(side, known) for side in (first, second)]
    shared = next((name for name in lines[0] if name in lines[1]), None)
    if shared is None:
        return None
    one, other = (line[shared] for line in lines)
    left = min(one, other, key=lambda parent: (parent.message_index, parent.seq))
    return Kinship(left, one.message_index, other.message_index)


def _descent(side: MergeSide, known: Mapping[str, Parent | None]) -> dict[str, Parent]:
    """The session and its ancestors, nearest first, each with the fork point and the shared messages."""
    name, taken = side.snapshot.session_id, len(side.snapshot.messages)
    line = {name: Parent(session_id=name, seq=side.seq, message_index=taken)}
    for parent in ancestors(name, {**known, name: side.snapshot.parent}.items()):
        taken = min(taken, parent.message_index)
        line[parent.session_id] = parent.evolve(message_index=taken)
    return line


def merge(
    first: MergeSide,
    second: MergeSide,
    *,
    session_id: str,
    now: datetime,
    kin: Kinship | None = None,
    base: SessionSnapshot | None = None,
    title: str | None = None,
) -> Merged:
    """Merge two branches into a new session that contains all messages of both.

    Shared messages appear once. Where the branches differ, the first branch's messages come before the second's, in
    order, each with its origin in its metadata. Two messages are the same if they have the same id, or if both
    branches inherited them from their ancestor. Where both changed the same message, setting, plan or title, the
    first branch wins, and the other version is kept in the metadata; the common snapshot *base* shows which branch
    changed it. Tags are united. Metrics start at zero, as for a fork.

    Raises:
        InvalidInput: the sessions are not branches of one conversation: they have no *kin*, and do not begin with
            the same exchange.
    """
    _check_related(first, second, kin)
    shared = _shared(first.snapshot.messages, second.snapshot.messages, kin)
    messages, clashes = _conversation(first, second, shared, base)
    sections, differing = _sections(first.snapshot, second.snapshot, base, title)
    clashes += differing
    metadata = {**sections.pop("metadata", {}), SECTION: _record(first, second, differing)}
    sides = {first.snapshot.session_id, second.snapshot.session_id}
    if earlier := (origins(first.snapshot) | origins(second.snapshot)) - sides:
        metadata[ORIGINS] = sorted(earlier)
    merged = SessionSnapshot.model_validate(
        {
            **sections,
            "session_id": check_new_id(session_id),
            "created_at": now,
            "updated_at": now,
            "parent": _parent(first, second, shared),
            "tags": tuple(dict.fromkeys((*first.snapshot.tags, *second.snapshot.tags))),
            "metadata": metadata,
        }
    ).evolve(messages=messages, metrics=Metrics())
    return Merged(
        snapshot=merged,
        shared=len(shared),
        from_first=len(first.snapshot.messages) - len(shared),
        from_second=len(second.snapshot.messages) - len(shared),
        clashes=tuple(clashes),
    )


def _check_related(first: MergeSide, second: MergeSide, kin: Kinship | None) -> None:
    a, b = first.snapshot, second.snapshot
    if (a.session_id, first.seq) == (b.session_id, second.seq):
        raise InvalidInput(f"{a.session_id!r} cannot be merged with itself", hint="name two branches")
    if kin is None and _prefix(_bare(a.messages), _bare(b.messages)) < _EXCHANGE:
        raise InvalidInput(
            f"{a.session_id!r} and {b.session_id!r} are not branches of one conversation: neither comes from the "
            "other, they have no ancestor in common, and they do not begin alike",
            session_id=a.session_id,
            hint="only branches can be merged; compare unrelated sessions with asnap diff",
        )


# Messages --------------------------------------------------------------------------------------------------


def _bare(messages: Sequence[Message]) -> list[Message]:
    """The messages without the metadata of earlier merges."""
    return [_without_notes(message) for message in messages]


def _without_notes(message: Message) -> Message:
    if not message.metadata.keys() & {FROM, OTHER}:
        return message
    return message.evolve(metadata={k: v for k, v in message.metadata.items() if k not in (FROM, OTHER)})


def _prefix(one: Sequence[Message], other: Sequence[Message]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _shared(first: Sequence[Message], second: Sequence[Message], kin: Kinship | None) -> list[Pair]:
    """The positions, ascending on both sides, of messages that are the same.

    Beyond the inherited part, equal text does not count: two answers "yes" may answer different questions.
    """
    one, other = _bare(first), _bare(second)
    found = align(one, other)
    alone, added = set(found.removed), set(found.added)
    paired = zip(
        (i for i in range(len(one)) if i not in alone),
        (j for j in range(len(other)) if j not in added),
        strict=True,
    )
    until = (kin.first, kin.second) if kin else (found.common_prefix, found.common_prefix)
    return [
        (i, j)
        for i, j in paired
        if (i < until[0] and j < until[1]) or i == j < found.common_prefix or one[i].id == other[j].id is not None
    ]


def _conversation(
    first: MergeSide, second: MergeSide, shared: Sequence[Pair], base: SessionSnapshot | None
) -> tuple[tuple[Message, ...], list[Clash]]:
    original = frozenset(_bare(base.messages)) if base else frozenset()
    messages: list[Message] = []
    clashes: list[Clash] = []
    i = j = 0
    for pair in [*shared, (len(first.snapshot.messages), len(second.snapshot.messages))]:
        messages += _own(first, range(i, pair[0]))
        messages += _own(second, range(j, pair[1]))
        if pair[0] < len(first.snapshot.messages):
            message, clash = _one_of(first, second, pair, original)
            clashes += [clash.evolve(path=f"messages[{len(messages)}]")] if clash else []
            messages.append(message)
        i, j = pair[0] + 1, pair[1] + 1
    return tuple(messages), clashes


def _own(side: MergeSide, places: range) -> Iterator[Message]:
    for place in places:
        message = side.snapshot.messages[place]
        yield message.evolve(metadata={FROM: _origin(side, place), **message.metadata})


def _origin(side: MergeSide, place: int) -> FrozenDict:
    return FrozenDict({"session_id": side.snapshot.session_id, "seq": side.seq, "index": place})


def _one_of(
    first: MergeSide, second: MergeSide, pair: Pair, original: frozenset[Message]
) -> tuple[Message, Clash | None]:
    mine, yours = first.snapshot.messages[pair[0]], second.snapshot.messages[pair[1]]
    bare_mine, bare_yours = _without_notes(mine), _without_notes(yours)
    if bare_mine == bare_yours or bare_yours in original:
        return mine, None
    if bare_mine in original:
        return yours, None
    other = {**_origin(second, pair[1]), "message": bare_yours.raw()}
    kept = mine.evolve(metadata={**mine.metadata, OTHER: other})
    return kept, Clash(path="", kept=bare_mine.raw(), other=bare_yours.raw())


# Everything else -------------------------------------------------------------------------------------------


def _sections(
    first: SessionSnapshot, second: SessionSnapshot, base: SessionSnapshot | None, title: str | None
) -> tuple[dict[str, Any], list[Clash]]:
    one, other, before = (_settings(side, title) if side else ABSENT for side in (first, second, base))
    return three_way(before, one, other, "")


def _settings(snapshot: SessionSnapshot, title: str | None) -> dict[str, Any]:
    """The settings to merge: without messages, and without the records of where the session came from."""
    settings = snapshot.evolve(messages=(), **({} if title is None else {"title": title})).raw()
    for name in _SETTLED:
        settings.pop(name, None)
    metadata = settings.pop("metadata", {})
    if kept := {name: value for name, value in metadata.items() if name not in (SECTION, ORIGINS)}:
        settings["metadata"] = kept
    return settings


def _record(first: MergeSide, second: MergeSide, clashes: Sequence[Clash]) -> dict[str, Any]:
    sources = [{"session_id": side.snapshot.session_id, "seq": side.seq} for side in (first, second)]
    return {"sources": sources, "conflicts": [clash.raw() for clash in clashes]}


def _parent(first: MergeSide, second: MergeSide, shared: Sequence[Pair]) -> Parent:
    """The parent of the merged session: the first branch, up to the end of the shared beginning."""
    ends = (len(first.snapshot.messages), len(second.snapshot.messages))
    following = 0
    for i, j in [*shared, ends]:
        if j > following:  # here the second branch's own messages begin
            return Parent(session_id=first.snapshot.session_id, seq=first.seq, message_index=i)
        following = j + 1
    return Parent(session_id=first.snapshot.session_id, seq=first.seq, message_index=ends[0])
