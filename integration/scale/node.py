"""One node: ``python -m integration.scale.node URL MODE [MUTATION [SKEW]]``. It prints what it was promised.

``hold``: take the session, print ``has`` and its words. ``stream``: the same, then record a word after the other;
``said`` once a word is recorded, ``refused`` if it is not, ``fenced`` when another node has the session. Every
seventh word asks for a tool: ``tool`` and when it was asked for, once the record is durable. ``save``: save
snapshots; ``acked`` once a word is durable. A mutation takes one protection away: the proof must notice.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Self

from snapshot_plugin.errors import Conflict, SnapshotError, SnapshotNotFound
from snapshot_plugin.live.ports import Record
from snapshot_plugin.live.session import LiveSession
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.model.snapshot import Message, SessionSnapshot
from snapshot_plugin.store import ledgers, open_store
from snapshot_plugin.store.keyed import KeyedStore
from snapshot_plugin.store.postgres import live_rows

SESSION = "session"
SAVES_AFTER = 20
MUTATIONS = ("no-epoch-in-saves", "no-epoch-in-appends", "no-conditional-writes")


class Words:
    """A reducer whose messages are the words of its events."""

    running = False
    is_long = False

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
    if name == "no-conditional-writes":
        import obstore  # noqa: PLC0415 — only the mutation needs it

        put = obstore.put
        setattr(obstore, "put", lambda *given, mode=None, **named: put(*given, mode="overwrite", **named))  # noqa: ARG005, B010 — not for mypy
        setattr(ledgers.Ledgers, "make_sure_that_conditions_count", lambda _self: None)  # noqa: B010 — as above
        setattr(ledgers.Ledgers, "race", lambda _self: None)  # noqa: B010 — as above
    elif name in MUTATIONS:  # nor does the node find out in another way
        for method, answer in (("_renew_all", None), ("is_current", True), ("is_overtaken", False)):
            setattr(live_rows.LiveRows, method, lambda *_given, answer=answer: answer)


def opened(url: str, *, background: bool = True) -> KeyedStore:
    store = open_store(url, background=background)
    assert isinstance(store, KeyedStore)
    return store


def set_clock(seconds: float) -> None:
    """Have this process believe that it is so many seconds later."""
    if not seconds:
        return

    class Skewed(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(time.time() + seconds, tz)

    for module in [module for name, module in list(sys.modules.items()) if name.startswith("snapshot_plugin")]:
        if getattr(module, "datetime", None) is datetime:
            setattr(module, "datetime", Skewed)  # noqa: B010 — not for mypy


def hold(store: KeyedStore) -> None:
    stream(store, is_silent=True)


def stream(store: KeyedStore, *, is_silent: bool = False) -> None:
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
        is_tool, asked = number % 7 == 0, time.monotonic()
        is_recorded = live.record({"word": word}, durable=is_tool) and not fenced.is_set()
        say("said" if is_recorded else "refused", word)
        if is_recorded and is_tool:
            say("tool", str(asked))
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


def save(store: KeyedStore) -> None:
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


def _loaded(store: KeyedStore) -> SessionSnapshot:
    try:
        return store.sync.load(SESSION)
    except SnapshotNotFound:
        return empty()


if __name__ == "__main__":
    logging.disable()
    mutate(sys.argv[3] if len(sys.argv) > 3 else "")
    set_clock(float(sys.argv[4]) if len(sys.argv) > 4 else 0.0)
    {"stream": stream, "hold": hold, "save": save}[sys.argv[2]](opened(sys.argv[1]))
    os._exit(0)
