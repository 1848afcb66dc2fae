"""Resolve a reference: an id or its beginning, a name, ``latest``, ``latest~2``, ``tag:x``, ``name@3``, ``id:x``.

``~N`` counts sessions back from the newest one; ``@N`` is a snapshot of the session. These always mean the same: a
session whose id reads like one of them is named by ``id:`` and its whole id. Damaged sessions can be referred to as
well.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from snapshot_plugin.errors import InvalidInput, SnapshotNotFound
from snapshot_plugin.model.ids import AT_SNAPSHOT, EXACTLY, LATEST, TAG, as_reference, is_companion, is_reference
from snapshot_plugin.operations.text import several

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Target", "exactly", "find", "going_on", "resolve", "short_ids"]

_SHORTEST = 6
_CANDIDATES = 5


class Target(NamedTuple):
    """The session a reference resolves to, as listed, and the snapshot if one was named."""

    meta: SnapshotMeta
    seq: int | None = None

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.meta.session_id


async def find(store: SnapshotStore, text: str) -> Target:
    """Resolve a reference against the store.

    Raises:
        SnapshotNotFound: nothing fits; the hint names what is spelled alike.
        InvalidInput: several sessions fit; the hint names them.
    """
    if store.capabilities.several_machines:  # an id in full needs no list, which may be long and far away
        for name, seq in _whole_ids(text):
            if exact := await _newest(store, name):
                return Target(exact, seq)
    metas = await store.list()
    try:
        return resolve(text, metas)
    except SnapshotNotFound:
        if text.startswith(TAG) and (earlier := await _tagged_before(text, store, metas)):
            return earlier
        if unsaved := await _unsaved(text, store, metas):
            raise unsaved from None
        raise


async def _unsaved(text: str, store: SnapshotStore, metas: Sequence[SnapshotMeta]) -> SnapshotNotFound | None:
    """Explain that a session has no snapshot yet, if *text* is the beginning of its id."""
    from snapshot_plugin.operations.sessions import every_row

    rows = [row for row in await every_row(store, metas) if not row.seq and row.session_id.startswith(text)]
    if len(rows) != 1 or not text:
        return None
    name = rows[0].session_id
    hint = "free space if its disk is full: it is saved as soon as that works" if rows[0].live else "recover it"
    told = f"session {name} has no snapshot yet, only a spool"
    return SnapshotNotFound(told, session_id=name, hint=hint, run=rows[0].next or "asnap list --all")


async def _tagged_before(text: str, store: SnapshotStore, metas: Sequence[SnapshotMeta]) -> Target | None:
    """The newest snapshot with a tag, where no session's newest one has it. Reads the history of every session."""
    tag = text.removeprefix(TAG)
    found = []
    for meta in _own(metas):
        if meta.state == "ok":
            tagged = [each.seq for each in await store.history(meta.session_id) if tag in each.snapshot_tags]
            found += [Target(meta, max(tagged))] if tagged else []
    if len(found) > 1:
        raise _ambiguous(text, [target.meta for target in found])
    return found[0] if found else None


async def _newest(store: SnapshotStore, name: str) -> SnapshotMeta | None:
    look = getattr(store, "newest", None)
    return await look(name) if look and _is_whole_id(name) else None


def _is_whole_id(text: str) -> bool:
    from snapshot_plugin.errors import InvalidSessionId
    from snapshot_plugin.model.ids import check_session_id

    try:
        return bool(check_session_id(text))
    except InvalidSessionId:
        return False


def _whole_ids(text: str) -> list[tuple[str, int | None]]:
    """The sessions, and their snapshots, that *text* can only mean if they exist."""
    if not is_reference(text):
        return [(text, None)]
    if text.startswith(EXACTLY):
        return _exact_ids(text.removeprefix(EXACTLY))
    return _exact_ids(text)[1:]


def _exact_ids(text: str) -> list[tuple[str, int | None]]:
    """What *text* means if it is a whole id: that session, or a snapshot."""
    at = AT_SNAPSHOT.match(text)
    return [(text, None), *([(at["session"], int(at["seq"]))] if at else [])]


def resolve(text: str, metas: Sequence[SnapshotMeta]) -> Target:
    """Resolve a reference among *metas*, which are newest first. Pure."""
    if text.startswith(EXACTLY) and (exact := _exact(text.removeprefix(EXACTLY), metas)):
        return exact
    whole = next((Target(meta) for meta in metas if meta.session_id == text), None)
    if whole and not is_reference(text):
        return whole
    try:
        if at := AT_SNAPSHOT.match(text):
            if whole and not any(_has_id(meta, at["session"]) or _has_name(meta, at["session"]) for meta in metas):
                return whole  # an id typed in full, and the beginning of another one
            return _at_snapshot(text, at["session"], int(at["seq"]), metas)
        return Target(_session(text, metas))
    except SnapshotNotFound:
        if whole is None:
            raise
        return whole


def exactly(text: str, metas: Sequence[SnapshotMeta]) -> Target:
    """As `resolve`, for programs, which name sessions by their ids: a whole id wins over everything else."""
    return _exact(text, metas) or resolve(text, metas)


def _exact(text: str, metas: Sequence[SnapshotMeta]) -> Target | None:
    known = {meta.session_id: meta for meta in metas}
    return next((Target(known[name], seq) for name, seq in _exact_ids(text) if name in known), None)


def _at_snapshot(text: str, session: str, seq: int, metas: Sequence[SnapshotMeta]) -> Target:
    try:
        return Target(_session(session, metas), seq)
    except SnapshotNotFound:
        if not any(_has_name(meta, text) for meta in metas):  # an agent may use this as a name
            raise
    return Target(_session(text, metas))


def going_on(target: Target) -> Target:
    """Return *target* if it can be resumed: sessions resume only from their newest snapshot.

    Raises:
        InvalidInput: an older one was named.
    """
    if target.seq not in (None, target.meta.seq):
        raise InvalidInput(
            f"session {target.session_id} resumes from its newest snapshot, {target.meta.seq}",
            session_id=target.session_id,
            hint=f"branch it at snapshot {target.seq} and resume the branch",
            run=f"asnap fork {shlex.quote(f'{as_reference(target.session_id)}@{target.seq}')}",
        )
    return target


def _session(text: str, metas: Sequence[SnapshotMeta]) -> SnapshotMeta:
    if latest := LATEST.match(text):
        return _latest(int(latest["back"] or 0), metas)
    if text.startswith(TAG):
        return _tagged(text.removeprefix(TAG), metas)
    if exact := [meta for meta in metas if _has_id(meta, text)]:
        return exact[0]
    # Together: a name, which an agent or an import may give, does not hide an id that begins alike.
    own = [meta for meta in _own(metas) if text]
    found = [meta for meta in own if _has_name(meta, text) or _begins(meta, text)]
    found = found or [meta for meta in own if _has_any_case(meta, text)]
    if len(found) > 1:
        raise _ambiguous(text, found)
    if found:
        return found[0]
    raise _unknown(text, metas)


def _own(metas: Sequence[SnapshotMeta]) -> list[SnapshotMeta]:
    """Drop the working memories of other sessions: those are named only by their whole id."""
    return [meta for meta in metas if not is_companion(meta.session_id)]


def _has_id(meta: SnapshotMeta, text: str) -> bool:
    return meta.session_id == text


def _has_name(meta: SnapshotMeta, text: str) -> bool:
    return meta.title == text


def _begins(meta: SnapshotMeta, text: str) -> bool:
    return meta.session_id.lower().startswith(text.lower())


def _has_any_case(meta: SnapshotMeta, text: str) -> bool:
    return meta.title is not None and meta.title.lower() == text.lower()


def _latest(back: int, metas: Sequence[SnapshotMeta]) -> SnapshotMeta:
    whole = [meta for meta in _own(metas) if meta.state == "ok"]  # latest means the latest readable session
    if back < len(whole):
        return whole[back]
    name = f"latest~{back}" if back else "latest"
    raise SnapshotNotFound(f"there is no {name}: the store has {several(len(whole), 'intact session')}", hint="")


def _tagged(tag: str, metas: Sequence[SnapshotMeta]) -> SnapshotMeta:
    found = [meta for meta in _own(metas) if tag in meta.tags or tag in meta.snapshot_tags]
    if len(found) > 1:
        raise _ambiguous(f"tag:{tag}", found)
    if found:
        return found[0]
    tags = sorted({name for meta in metas for name in (*meta.tags, *meta.snapshot_tags)})
    raise SnapshotNotFound(f"no session has the tag {tag!r}", hint=_close(tag, tags))


def _ambiguous(text: str, found: Sequence[SnapshotMeta]) -> InvalidInput:
    ids = [(as_reference(meta.session_id), meta.title) for meta in found]
    names = [f"{name} ({title})" if title else name for name, title in ids]
    more = f" and {len(names) - _CANDIDATES} more" if len(names) > _CANDIDATES else ""
    return InvalidInput(
        f"{text!r} could be {len(names)} sessions",
        hint=f"say which: {', '.join(names[:_CANDIDATES])}{more}",
        run="asnap list --all",
    )


def _unknown(text: str, metas: Sequence[SnapshotMeta]) -> SnapshotNotFound:
    names = [meta.session_id for meta in metas] + [meta.title for meta in metas if meta.title]
    told = f"there is no session {text!r}"
    return SnapshotNotFound(told, session_id=text, hint=_close(text, names), run="asnap list --all")


def _close(text: str, names: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(text, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else ""


def short_ids(ids: Sequence[str], *, of: Collection[str] | None = None) -> dict[str, str]:
    """For each id, or each *of* them, the shortest prefix that no other id shares and that means nothing else."""
    ordered = sorted(ids, key=str.lower)
    short = {}
    for n, name in enumerate(ordered):
        if of is not None and name not in of:
            continue
        neighbours = [*ordered[max(0, n - 1) : n], *ordered[n + 1 : n + 2]]
        shared = max((_common(name, other) for other in neighbours), default=0)
        length = max(_SHORTEST, shared + 1)
        while length < len(name) and is_reference(name[:length]):
            length += 1
        short[name] = name[:length] if length < len(name) else as_reference(name)
    return short


def _common(one: str, other: str) -> int:
    pairs = zip(one.lower(), other.lower(), strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
