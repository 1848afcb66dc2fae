from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import FilesystemStore, RetentionPolicy, SessionSnapshot
from snapshot_plugin.cli.listing import is_plain, rows_in
from snapshot_plugin.cli.sessions import SessionRow, rows_at
from snapshot_plugin.codec.frame import encode_frame, open_frame
from snapshot_plugin.manager.lease import Lease, Owner
from snapshot_plugin.testing import make_snapshot
from tests.cli.conftest import Asnap, saved

NOW = datetime(2026, 11, 16, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
PARENT = {"session_id": "plain", "seq": 1, "message_index": 1}
SESSIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "Named": {"title": "Fährte \u202e 日本", "agent": {"name": "codex"}, "config": {"cwd": "/home/me/ü"}},
    "untitled": {"title": "", "created_at": LATER, "updated_at": NOW},
    "tagged": {"tags": ("a", "b c"), "pinned": True, "parent": PARENT},
    "costly": {"metrics": {"turns": 3, "total_tokens": 10**12, "cost": 2.0, "currency": "EUR"}},
    "kept+memory": {"metadata": {"note": "n"}},
}
ORDINARY = {*SESSIONS, "long", "packed"} - {"kept+memory"}


def stored(place: Path) -> None:
    """A store with one session of each kind, and with snapshots, tags, triggers, packs and forgotten ranges."""

    async def save() -> None:
        async with FilesystemStore(place, background=False) as store:
            for name, fields in SESSIONS.items():
                defaults = {"created_at": NOW, "updated_at": NOW, "provider_type": "acp"}
                await store.save(make_snapshot("one", session_id=name, **{**defaults, **fields}))
            for text in ("two", "three", "four"):
                await store.save(make_snapshot("one", text, session_id="long"), tags=["mark"], trigger="recovered")
            await store.forget("long", RetentionPolicy(keep_last=1))
            await store.save(make_snapshot("one", session_id="packed"))
            await store.save(make_snapshot("one", "two", session_id="packed"))
            await store.compact("packed")

    anyio.run(save)


def by_the_store(place: Path) -> list[SessionRow]:
    return rows_at(place, FilesystemStore(place, create=False, background=False).listed())


def test_the_list_is_the_one_the_store_itself_gives(place: Path) -> None:
    stored(place)

    rows = rows_in(place)

    assert rows == by_the_store(place)
    assert {row.session_id for row in rows or ()} == {*ORDINARY, "kept+memory"}


def test_who_has_a_session_or_died_with_it_is_told_as_well(place: Path) -> None:
    stored(place)
    lease = Lease.acquire(place / "sessions" / "plain", Owner.this_process(since=NOW))
    try:
        rows = rows_in(place)
        assert rows == by_the_store(place)
        assert [row.session_id for row in rows or () if row.live] == ["plain"]
    finally:
        lease.release()


# What is out of the ordinary is left to the store --------------------------------------------------------


def marked(**changes: Any) -> Callable[[Path], None]:
    def mark(place: Path) -> None:
        marker = place / "STORE.json"
        marker.write_text(json.dumps({**json.loads(marker.read_bytes()), **changes}))

    return mark


UNUSUAL_STORES: dict[str, Callable[[Path], Any]] = {
    "encrypted": marked(encrypted=True),
    "not known to be encrypted": marked(encrypted=0),
    "newer": marked(format=2),
    "nameless": marked(id=5),
    "no object": lambda place: (place / "STORE.json").write_text("[]"),
    "damaged": lambda place: (place / "STORE.json").write_text("{"),
    "missing": lambda place: (place / "STORE.json").unlink(),
    "with keys": lambda place: (place / "keys").mkdir(),
}


@pytest.mark.parametrize("change", UNUSUAL_STORES.values(), ids=UNUSUAL_STORES)
def test_a_store_that_is_not_known_to_be_plain_is_opened(place: Path, change: Callable[[Path], Any]) -> None:
    stored(place)
    assert is_plain(place)

    change(place)

    assert not is_plain(place)


def newest(place: Path, session_id: str) -> Path:
    return max((place / "sessions" / session_id).glob("*.snap.gz"))


def damaged(place: Path) -> None:
    file = newest(place, "plain")
    file.write_bytes(file.read_bytes()[:-9] + b"x" + file.read_bytes()[-8:])


UNUSUAL_SESSIONS: dict[str, Callable[[Path], Any]] = {
    "damaged": damaged,
    "cut off": lambda place: newest(place, "plain").write_bytes(newest(place, "plain").read_bytes()[:-1]),
    "elsewhere": lambda place: newest(place, "plain").write_bytes(newest(place, "costly").read_bytes()),
    "no directory": lambda place: (place / "sessions" / "stray").write_text(""),
    "no session": lambda place: (place / "sessions" / "Stray").mkdir(),
    "no session, of the name of one": lambda place: (place / "sessions" / "Named").mkdir(),
}


@pytest.mark.parametrize("change", UNUSUAL_SESSIONS.values(), ids=UNUSUAL_SESSIONS)
def test_a_session_that_is_not_whole_is_left_to_the_store(
    asnap: Asnap, place: Path, change: Callable[[Path], Any]
) -> None:
    stored(place)
    change(place)

    assert rows_in(place) is None
    told = [(row["session_id"], row["state"]) for row in asnap("list", "--all", "--json").json["sessions"]]
    expected = [(row.session_id, row.state) for row in by_the_store(place) if not row.is_memory]
    assert told == expected
    assert set(told) != {(name, "ok") for name in ORDINARY}


WRONG_SUMMARIES = [
    {"title": 5}, {"agent": ["a"]}, {"tags": "ab"}, {"tags": [1]}, {"pinned": 1}, {"parent": "plain"},
    {"parent": {"session_id": 1}}, {"parent": {"seq": 1}}, {"messages": True}, {"turns": 1.5}, {"cost": "1"},
    {"updated_at": "yesterday"}, {"updated_at": 0}, {"created_at": "2026-11-16T00:00:00"},
    {"updated_at": "2026-11-16T00:00:00+02:00"},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_SUMMARIES, ids=json.dumps)
def test_a_summary_that_is_not_as_we_write_them_is_left_to_the_store(place: Path, wrong: dict[str, Any]) -> None:
    saved(place, session())
    file = newest(place, "one")
    header, payload = open_frame(file.read_bytes(), session_id="one", keys=None)
    first, _, rest = payload.partition(b"\n")
    line = json.loads(first)
    line["meta"] |= wrong

    file.write_bytes(encode_frame(header, json.dumps(line).encode() + b"\n" + rest, None))

    assert rows_in(place) is None


def session() -> SessionSnapshot:
    return make_snapshot("hello", session_id="one")


def test_a_key_for_a_store_that_has_none_is_refused(
    asnap: Asnap, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(place, session())
    monkeypatch.setenv("ASNAP_PASSPHRASE", "words")

    done = asnap("list", "--json")

    assert (done.code, done.error["code"]) == (2, "invalid_input")
