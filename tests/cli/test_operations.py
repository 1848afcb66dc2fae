"""Every command that changes something can be taken back, from the outside: one line here, one ``undo``."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore, SessionSnapshot
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.codec.sources import EnvironmentKey, KeySource
from snapshot_plugin.model.lineage import fork
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import START, session

TOKEN = "ghp_" + "a1B2" * 9

Contents = dict[str, dict[int, SessionSnapshot]]


def contents(place: Path, key: KeySource | None = None) -> Contents:
    """The newest of every session, and all its snapshots."""

    async def read() -> Contents:
        found: Contents = {}
        async with FilesystemStore(place, key=key, background=False) as store:
            for meta in await store.list():
                name = meta.session_id
                found[name] = {0: await store.load(name)}
                for each in await store.history(name):
                    found[name][each.seq] = await store.load(name, at=each.seq)
        return found

    return anyio.run(read)


def newest(found: Contents) -> dict[str, SessionSnapshot]:
    return {name: snapshots[0] for name, snapshots in found.items()}


def furnished(place: Path, key: KeySource | None = None) -> None:
    first = session("01aaaa", "one", "two", title="old", tags=("x",))
    saved(
        place,
        session("01aaaa", "one"),
        first,
        session("01aaaa", "one", "two", TOKEN, title="old", tags=("x",)),
        key=key,
    )
    branch = fork(first, session_id="02bbbb", seq=2, now=START)
    saved(place, branch.append(*session("x", "other way").messages), key=key)


LINES = [
    ("rename", "01", "new"),
    ("tag", "01", "new", "--remove", "x"),
    ("pin", "01"),
    ("note", "01", "new"),
    ("fork", "01"),
    ("merge", "01", "02"),
    ("import", "bundle.asnap"),
    ("forget", "01", "--yes"),
    ("forget", "01", "--keep-last", "1", "--yes"),
    ("forget", "01@1", "--yes"),
    ("secrets", "scan", "--all", "--fix", "--yes"),
]


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_operation_can_be_undone(asnap: Asnap, place: Path, line: tuple[str, ...], home: Path) -> None:
    furnished(place)
    if line[0] == "import":
        elsewhere = home / "elsewhere"
        saved(elsewhere, session("03cccc", "from elsewhere"))
        assert asnap("export", "03", "--store", elsewhere, "-o", "bundle.asnap").code == 0
    before = contents(place)

    assert asnap(*line).code == 0
    after = contents(place)
    assert after != before
    assert asnap("undo").code == 0

    now = contents(place)
    assert newest(now) == newest(before)
    for name, snapshots in before.items():
        assert {seq: now[name][seq] for seq in snapshots} == snapshots
    if line[0] != "secrets":
        undo = asnap("undo", "--list", "--json").json["operations"][0]["id"]
        assert asnap("undo", undo).code == 0
        assert newest(contents(place)) == newest(after)


@pytest.mark.parametrize("line", [line for line in LINES if line[0] != "import"], ids=" ".join)
def test_encrypted_store_operations_are_undone_without_leaking_text(
    asnap: Asnap, place: Path, line: tuple[str, ...], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASNAP_KEY", generate_key())
    key = EnvironmentKey("ASNAP_KEY", os.environ)
    furnished(place, key)
    before = contents(place, key)

    assert asnap(*line).code == 0
    written = b"".join(path.read_bytes() for path in (home / "state").rglob("*") if path.is_file())
    assert written
    assert not any(word in written for word in (b"01aaaa", b'"old"', b'"new"', b"undelete"))
    assert asnap("undo").code == 0
    assert newest(contents(place, key)) == newest(before)
