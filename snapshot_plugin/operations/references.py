"""Resolve a reference: an id or its beginning, a name, ``latest``, ``latest~2``, ``tag:x``, ``session@seq``.

``~N`` counts sessions back from the newest one; ``@N`` is a snapshot of the session. An id typed in full always
wins, so a session may be called ``latest`` and still be reached. Damaged sessions can be referred to as well.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from snapshot_plugin.errors import InvalidInput, SnapshotNotFound
from snapshot_plugin.model.ids import AT_SNAPSHOT, COMPANIONS, LATEST, TAG
from snapshot_plugin.operations.text import several

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Target", "find", "going_on", "resolve", "short_ids"]

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
        at = AT_SNAPSHOT.match(text)
        for name, seq in ((text, None), *([(at["session"], int(at["seq"]))] if at else [])):
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
    from snapshot_plugin.operations.session_rows import every_row

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


def resolve(text: str, metas: Sequence[SnapshotMeta]) -> Target:
    """Resolve a reference among *metas*, which are newest first. Pure."""
    exact = [meta for meta in metas if meta.session_id == text]
    if exact:
        return Target(exact[0])
    if at := AT_SNAPSHOT.match(text):
        try:
            return Target(_session(at["session"], metas), int(at["seq"]))
        except SnapshotNotFound:
            if not any(_has_name(meta, text) for meta in metas):  # an agent may use this as an id
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
            run=f"asnap fork {shlex.quote(f'{target.session_id}@{target.seq}')}",
        )
    return target


def _session(text: str, metas: Sequence[SnapshotMeta]) -> SnapshotMeta:
    if latest := LATEST.match(text):
        return _latest(int(latest["back"] or 0), metas)
    if text.startswith(TAG):
        return _tagged(text.removeprefix(TAG), metas)
    for fits in (_has_id, _has_name, _begins, _has_name_in_any_case) if text else ():
        found = [meta for meta in (metas if fits is _has_id else _own(metas)) if fits(meta, text)]
        if len(found) > 1:
            raise _ambiguous(text, found)
        if found:
            return found[0]
    raise _unknown(text, metas)


def _own(metas: Sequence[SnapshotMeta]) -> list[SnapshotMeta]:
    """Drop the working memories of other sessions: those are named only by their whole id."""
    return [meta for meta in metas if not meta.session_id.endswith(COMPANIONS)]


def _has_id(meta: SnapshotMeta, text: str) -> bool:
    return meta.session_id == text


def _has_name(meta: SnapshotMeta, text: str) -> bool:
    return meta.title == text


def _begins(meta: SnapshotMeta, text: str) -> bool:
    return meta.session_id.lower().startswith(text.lower())


def _has_name_in_any_case(meta: SnapshotMeta, text: str) -> bool:
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
    names = [f"{meta.session_id} ({meta.title})" if meta.title else meta.session_id for meta in found]
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
    """For each id, or each *of* them, the shortest prefix that no other id shares."""
    ordered = sorted(ids, key=str.lower)
    short = {}
    for n, name in enumerate(ordered):
        if of is not None and name not in of:
            continue
        neighbours = [*ordered[max(0, n - 1) : n], *ordered[n + 1 : n + 2]]
        shared = max((_common(name, other) for other in neighbours), default=0)
        short[name] = name[: max(_SHORTEST, shared + 1)]
    return short


def _common(one: str, other: str) -> int:
    pairs = zip(one.lower(), other.lower(), strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
