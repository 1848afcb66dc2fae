"""``session/list``: merge our sessions with the agent's, in pages; look up the agent's ids of our sessions."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from snapshot_plugin.acp.actions import AgentRefused, Ask, Do, Say, Steps
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.messages import Message, Pending
from snapshot_plugin.acp.replay import split_notes
from snapshot_plugin.acp.state import PROVIDER, agent_names
from snapshot_plugin.errors import InvalidInput, SnapshotError
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.store.base import Trashed

if TYPE_CHECKING:
    from snapshot_plugin.live.sessions import LiveSessions

__all__ = ["PAGE", "BadCursor", "ListMethod", "deleted", "merged_list", "names_of", "page"]

PAGE = 50
_CURSOR = "asnap"
_AGENT_PAGES = 20
_NAMES = "acp.names"


class BadCursor(InvalidInput):
    """The cursor was not issued by us."""


class ListMethod:
    """Answers ``session/list``.

    Args:
        only_own: list only recorded sessions of this agent; do not ask the agent for its list.
    """

    def __init__(self, *, only_own: bool) -> None:
        self._only_own = only_own
        self._names: dict[tuple[str, int], tuple[str, ...]] = {}
        """The agent's ids of each session, by session and the number of its newest snapshot."""
        self._trashed: dict[str, Mapping[str, str]] = {}
        """The labels of each session in the trash; each is read once."""

    def list(self, core: Core, pending: Pending) -> Steps[Message]:
        """List our sessions and the agent's, each once and under our id."""
        cwd, cursor = pending.params.get("cwd"), pending.params.get("cursor")
        if not isinstance(cwd, str | None):
            raise InvalidInput("cwd is not text")
        own: list[Message] = [] if self._only_own else (yield from _agents_own(core, cwd))
        name = core.agent.name if self._only_own else None
        sessions, gone = yield Do(lambda live: self._merged(live, own, cwd, name))
        for agent_id in gone if core.can("delete") else ():  # some agents recreate a session after deleting it
            with suppress(AgentRefused):
                yield Ask("session/delete", {"sessionId": agent_id})
        return page(sessions, cursor)

    def _merged(
        self, live: LiveSessions, own: Sequence[Message], cwd: str | None, name: str | None
    ) -> tuple[Sequence[Message], Sequence[str]]:
        """Return the list, and the agent's ids of deleted sessions that it still lists."""
        metas = [meta for meta in live.list() if meta.provider_type == PROVIDER and name in (None, meta.agent)]
        stored = {meta.session_id for meta in metas}
        listed = {str(info.get("sessionId")) for info in own}
        known: dict[str, str] = {}
        if not listed <= stored:  # the agent may have its own ids for our sessions
            before, heads = self._names, [(meta.session_id, meta.seq) for meta in metas]
            self._names = {head: before.get(head) or names_of(live, head[0]) for head in heads}
            known = {name: session_id for (session_id, _), names in self._names.items() for name in names}
        gone = listed - stored - known.keys()
        gone &= self._deleted(live) if gone else frozenset()
        return merged_list(metas, own, known, cwd, deleted=gone), sorted(gone)

    def _deleted(self, live: LiveSessions) -> frozenset[str]:
        """Return the ids of deleted sessions, ours and the agent's."""
        read, self._trashed = self._trashed, {}
        trash = live.store.trash()
        for entry in trash:
            labels = read.get(entry.token)
            with suppress(SnapshotError, OSError, AttributeError):  # not all stores keep them
                labels = live.store.trashed_labels(entry) if labels is None else labels
            self._trashed[entry.token] = labels or {}
        names = [json.loads(labels[_NAMES]) for labels in self._trashed.values() if _NAMES in labels]
        return frozenset(entry.session_id for entry in trash).union(*names)


def _agents_own(core: Core, cwd: str | None) -> Steps[list[Message]]:
    sessions: list[Message] = []
    if not core.can("list"):
        return sessions
    params: Message = {"cwd": cwd} if cwd else {}
    try:
        for _ in range(_AGENT_PAGES):
            result = yield Ask("session/list", params)
            listed = result.get("sessions")
            sessions += [info for info in listed if isinstance(info, dict)] if isinstance(listed, list) else []
            if not isinstance(result.get("nextCursor"), str):
                break
            params = {**params, "cursor": result["nextCursor"]}
    except AgentRefused as refused:
        yield Say("the agent cannot list its sessions", str(refused))
    return sessions


def merged_list(
    ours: Sequence[SnapshotMeta],
    agents: Sequence[Message],
    known: dict[str, str],
    cwd: str | None,
    *,
    deleted: AbstractSet[str] = frozenset(),
) -> list[Message]:
    """Merge our sessions and the agent's as `SessionInfo`, newest first, each once and under our id.

    *known* maps agent ids to ours. *deleted* sessions are left out, even if the agent still lists them. If both
    have a session, our entry is used, with the agent's title if ours has none. A session without a title gets the
    beginning of its first prompt.
    """
    out = {meta.session_id: _info(meta) for meta in ours if meta.cwd is not None}
    for info in agents:
        session_id = info.get("sessionId")
        if not isinstance(session_id, str) or not isinstance(info.get("cwd"), str):
            continue
        public = known.get(session_id, session_id)
        if public in deleted and public not in out:
            continue
        title = {"title": own} if (own := _without_notes(info.get("title"))) else {}
        out[public] = {**title, **out[public]} if public in out else {**info, **title, "sessionId": public}
    for meta in ours:
        if meta.opening and meta.session_id in out:
            out[meta.session_id].setdefault("title", meta.opening)
    wanted = (info for info in out.values() if cwd in (None, info["cwd"]))
    return sorted(wanted, key=_place, reverse=True)


def _without_notes(title: object) -> str:
    """Return the agent's title without a restoration note: agents derive titles from the first prompt."""
    if not isinstance(title, str):
        return ""
    return " ".join(piece.strip() for is_note, piece in split_notes(title) if not is_note).strip()


def _info(meta: SnapshotMeta) -> Message:
    info = {"sessionId": meta.session_id, "cwd": meta.cwd, "updatedAt": rfc3339(meta.changed_at)}
    return {**info, "title": meta.title} if meta.title else info


def _place(info: Message) -> tuple[str, str]:
    """Return the sort key of a session: its time, normalized because agents format it differently, then its id."""
    try:
        moment = datetime.fromisoformat(info["updatedAt"])
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return rfc3339(aware), info["sessionId"]
    except (KeyError, TypeError, ValueError, OverflowError):
        return "", info["sessionId"]


def page(sessions: Sequence[Message], cursor: Any) -> Message:
    """Return one page of a merged list, and an opaque cursor to the next.

    The cursor is a position in the sort order: sessions that are added, removed or moved up between two pages cause
    neither an error nor duplicates of other sessions.

    Raises:
        BadCursor: the cursor was not issued here.
    """
    if cursor is not None:
        last = _decoded(cursor)
        sessions = [info for info in sessions if _place(info) < last]
    chunk = list(sessions[:PAGE])
    more = len(sessions) > PAGE
    return {"sessions": chunk, **({"nextCursor": _encoded(_place(chunk[-1]))} if more else {})}


def _encoded(place: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps([_CURSOR, *place]).encode()).decode()


def _decoded(cursor: Any) -> tuple[str, str]:
    try:
        mark, moment, session_id = json.loads(base64.urlsafe_b64decode(cursor))
    except (ValueError, TypeError, RecursionError) as error:
        raise BadCursor("that cursor is not one of ours") from error
    if mark != _CURSOR or not isinstance(moment, str) or not isinstance(session_id, str):
        raise BadCursor("that cursor is not one of ours")
    return moment, session_id


# The agent's ids of our sessions --------------------------------------------------------------------------


def names_of(sessions: LiveSessions, session_id: str) -> tuple[str, ...]:
    """Return the agent's ids of a session, live or stored; our id if there are none."""
    try:
        live = sessions.open.get(session_id)
        snapshot = live.snapshot() if live else sessions.newest(session_id).snapshot
    except (SnapshotError, OSError):
        return (session_id,)
    return agent_names(snapshot) or (session_id,)


def deleted(sessions: LiveSessions, session_id: str, names: Sequence[str]) -> Trashed | None:
    """Move a session to the trash, with the agent's ids of it in *names*; None if there is no such session."""
    sessions.finish(session_id)  # the final save comes first, so that an undo restores everything
    others = [name for name in names if name != session_id]
    return sessions.delete(session_id, {_NAMES: json.dumps(others)} if others else None)
