"""One node: ``python -m integration.scale.node URL MODE [MUTATION]``. It says on stdout what it was promised.

``hold``: take the session, print ``has`` and its words. ``stream``: the same, then record a word after the other;
``said`` once a word is recorded, ``refused`` if it is not, ``fenced`` when another node has the session. ``save``:
save snapshots; ``acked`` once a word is durable. A mutation takes one protection away: the proof must notice.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from snapshot_plugin.errors import Conflict, SnapshotError, SnapshotNotFound
from snapshot_plugin.live.ports import Record
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.model.snapshot import Message, SessionSnapshot
from snapshot_plugin.store.postgres import live_rows
from snapshot_plugin.store.postgres.store import PostgresStore

SESSION = "session"
SAVES_AFTER = 20
MUTATIONS = ("no-epoch-in-saves", "no-epoch-in-appends")


class Words:
    """A reducer whose messages are the words of its events."""

    running = False

    def __init__(self, snapshot: SessionSnapshot) -> None:
        self._snapshot = snapshot

    def apply(self, event: Mapping[str, Any]) -> None:
        """See `Reducer`."""
        if "word" in event:
            self._snapshot = self._snapshot.append(Message(role="user", content=event["word"]))

    def snapshot(self, now: datetime) -> SessionSnapshot:
        """See `Reducer`."""
        return self._snapshot.evolve(updated_at=now)


def reduce_words(snapshot: SessionSnapshot, records: Sequence[Record]) -> SessionSnapshot:
    words = Words(snapshot.evolve(provider_type="words"))
    for record in records:
        words.apply(record.data)
    return words.snapshot(datetime.now(UTC))


def empty() -> SessionSnapshot:
    now = datetime.now(UTC)
    return SessionSnapshot(session_id=SESSION, provider_type="words", created_at=now, updated_at=now)


def words_of(snapshot: SessionSnapshot) -> list[str]:
    return [message.text for message in snapshot.messages]


def say(*words: str) -> None:
    print(*words, flush=True)


def mutate(name: str) -> None:
    if name == "no-epoch-in-saves":
        setattr(live_rows.LiveRows, "must_not_be_fenced", lambda *_given: None)  # noqa: B010 — not for mypy
    if name == "no-epoch-in-appends":
        live_rows._APPEND = live_rows._APPEND.replace("l.epoch = %s", "%s >= 0")  # noqa: SLF001
    if name in MUTATIONS:  # nor does the node find out in another way
        for method, answer in (("_renew_all", None), ("is_current", True), ("is_overtaken", False)):
            setattr(live_rows.LiveRows, method, lambda *_given, answer=answer: answer)


def hold(store: PostgresStore) -> None:
    stream(store, is_silent=True)


def stream(store: PostgresStore, *, is_silent: bool = False) -> None:
    sessions = LiveSessions(store, Words, reducers={"words": reduce_words})
    fenced = threading.Event()
    sessions.overtaken = lambda _live: fenced.set()
    live = _taken(sessions)
    if live is None:
        say("locked")
        return
    say("has", json.dumps(words_of(live.snapshot())))
    if is_silent:
        threading.Event().wait()
    for number in range(1_000_000):
        word = f"{os.getpid()}-{number}"
        is_recorded = live.record({"word": word}, durable=number % 7 == 0) and not fenced.is_set()
        say("said" if is_recorded else "refused", word)
        if number % SAVES_AFTER == SAVES_AFTER - 1:
            live.save()
        if fenced.is_set():
            say("fenced")
            return


def _taken(sessions: LiveSessions) -> LiveSession | None:
    try:
        return sessions.resume(SESSION)
    except SnapshotNotFound:
        live = sessions.begin(empty(), {"word": "first"})
        live.save()
        return live
    except SnapshotError:
        return None


def save(store: PostgresStore) -> None:
    """Every save is on top of what is there: a conflict is loaded again, an unavailable server asked again."""
    number = 0
    while True:
        word = f"{os.getpid()}-{number}"
        try:
            snapshot = _loaded(store)
            if word not in words_of(snapshot):
                store.sync.save(snapshot.append(Message(role="user", content=word)))
            say("acked", word)
            number += 1
        except Conflict:
            continue
        except SnapshotError as error:
            if not error.retryable:
                raise


def _loaded(store: PostgresStore) -> SessionSnapshot:
    try:
        return store.sync.load(SESSION)
    except SnapshotNotFound:
        return empty()


if __name__ == "__main__":
    logging.disable()
    mutate(sys.argv[3] if len(sys.argv) > 3 else "")
    {"stream": stream, "hold": hold, "save": save}[sys.argv[2]](PostgresStore(sys.argv[1]))
    os._exit(0)
