from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import FilesystemStore, RetentionPolicy, SessionSnapshot
from snapshot_plugin.codec.frame import encode_frame, open_frame
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


Listed = Callable[[], set[tuple[str, str]]]


@pytest.fixture
def listed(asnap: Asnap) -> Listed:
    """Each session of the list, and its state."""
    return lambda: {(row["session_id"], row["state"]) for row in asnap("list", "--all", "--json").json["sessions"]}


def ok(sessions: Iterable[str]) -> set[tuple[str, str]]:
    return {(session_id, "ok") for session_id in sessions}


def test_every_kind_of_session_is_listed(place: Path, listed: Listed) -> None:
    stored(place)

    assert listed() == ok(ORDINARY)


# What is out of the ordinary --------------------------------------------------------


def marked(**changes: Any) -> Callable[[Path], None]:
    def mark(place: Path) -> None:
        marker = place / "STORE.json"
        marker.write_text(json.dumps({**json.loads(marker.read_bytes()), **changes}))

    return mark


UNUSUAL_STORES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "encrypted": (marked(encrypted=True), "key_missing"),
    "not known to be encrypted": (marked(encrypted=0), "corrupted"),
    "newer": (marked(format=2), "version_unsupported"),
    "nameless": (marked(id=5), "corrupted"),
    "no object": (lambda place: (place / "STORE.json").write_text("[]"), "corrupted"),
    "damaged": (lambda place: (place / "STORE.json").write_text("{"), "corrupted"),
    "missing": (lambda place: (place / "STORE.json").unlink(), "store_not_found"),
    "with keys": (lambda place: (place / "keys").mkdir(), "corrupted"),
}


@pytest.mark.parametrize(("change", "code"), UNUSUAL_STORES.values(), ids=UNUSUAL_STORES)
def test_inconsistent_store_is_reported(
    asnap: Asnap, place: Path, change: Callable[[Path], Any], code: str
) -> None:
    stored(place)

    change(place)

    assert asnap("list", "--json").error["code"] == code


def newest(place: Path, session_id: str) -> Path:
    return max((place / "sessions" / session_id).glob("*.snap.gz"))


def damaged(place: Path) -> None:
    file = newest(place, "plain")
    file.write_bytes(file.read_bytes()[:-9] + b"x" + file.read_bytes()[-8:])


UNUSUAL_SESSIONS: dict[str, tuple[Callable[[Path], Any], str, set[str]]] = {
    "damaged": (damaged, "plain", {"plain"}),
    "elsewhere": (lambda p: newest(p, "plain").write_bytes(newest(p, "costly").read_bytes()), "plain", {"plain"}),
    "no directory": (lambda place: (place / "sessions" / "stray").write_text(""), "stray", set()),
    "no session": (lambda place: (place / "sessions" / "Stray").mkdir(), "Stray", set()),
    "no session, of the name of one": (lambda place: (place / "sessions" / "Named").mkdir(), "Named", set()),
}


@pytest.mark.parametrize(("change", "found", "gone"), UNUSUAL_SESSIONS.values(), ids=UNUSUAL_SESSIONS)
def test_incomplete_session_is_listed_as_damaged(
    place: Path,
    listed: Listed,
    change: Callable[[Path], Any],
    found: str,
    gone: set[str],
) -> None:
    stored(place)

    change(place)

    assert listed() == ok(ORDINARY - gone) | {(found, "damaged")}


def test_session_whose_only_save_was_torn_is_not_listed(place: Path, listed: Listed) -> None:
    stored(place)
    file = newest(place, "plain")

    file.write_bytes(file.read_bytes()[:-1])

    assert listed() == ok(ORDINARY - {"plain"})


WRONG_SUMMARIES = [
    {"title": 5}, {"agent": ["a"]}, {"tags": "ab"}, {"tags": [1]}, {"pinned": 1}, {"parent": "plain"},
    {"parent": {"session_id": 1}}, {"parent": {"seq": 1}}, {"messages": True}, {"turns": 1.5}, {"cost": "1"},
    {"updated_at": "yesterday"}, {"updated_at": 0}, {"created_at": "2026-11-16T00:00:00"},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_SUMMARIES, ids=json.dumps)
def test_foreign_summary_is_damage(place: Path, listed: Listed, wrong: dict[str, Any]) -> None:
    saved(place, session())
    file = newest(place, "one")
    header, payload = open_frame(file.read_bytes(), session_id="one", keys=None)
    first, _, rest = payload.partition(b"\n")
    line = json.loads(first)
    line["meta"] |= wrong

    file.write_bytes(encode_frame(header, json.dumps(line).encode() + b"\n" + rest, None))

    assert listed() == {("one", "damaged")}


def session() -> SessionSnapshot:
    return make_snapshot("hello", session_id="one")


def test_key_for_a_plain_store_is_refused(asnap: Asnap, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(place, session())
    monkeypatch.setenv("ASNAP_PASSPHRASE", "words")

    done = asnap("list", "--json")

    assert (done.code, done.error["code"]) == (2, "invalid_input")
