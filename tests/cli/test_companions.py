"""Working memory and subgraphs share the fate of the session they belong to, whatever the command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore, SnapshotConfig, SnapshotManager
from snapshot_plugin.live.lease import Lease, Owner
from snapshot_plugin.model.ids import COMPANIONS
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import START, session
from tests.cli.stored import loaded, session_ids

TOKEN = "ghp_" + "a1B2" * 9
FAMILY = ["agent", *(f"agent{suffix}" for suffix in COMPANIONS)]


def numbers(place: Path, session_id: str) -> list[int]:
    async def listed() -> list[int]:
        async with FilesystemStore(place, create=False, background=False) as store:
            return [meta.seq for meta in await store.history(session_id)]

    return anyio.run(listed)


def saved_family(place: Path, *words: str) -> None:
    for name in FAMILY:
        saved(place, *(session(name, *words[: n + 1]) for n in range(len(words))))


def opened_with_limit(place: Path, names: Sequence[str]) -> None:
    """Let a manager sweep the store that keeps one session, while *names* are live."""

    async def sweep() -> None:
        async with FilesystemStore(place, background=False) as store:
            owner = Owner.this_process(since=START)
            held = [Lease.acquire(store.session_dir(name), owner) for name in names]
            async with SnapshotManager(store, SnapshotConfig(max_sessions=1)):
                pass
            for lease in held:
                lease.release()

    anyio.run(sweep)


def test_secrets_of_a_named_session_are_removed_from_its_companions(asnap: Asnap, place: Path) -> None:
    saved_family(place, TOKEN)

    assert asnap("secrets", "scan", "agent", "--fix", "--yes").code == 0

    assert asnap("purge", "--yes").code == 0
    assert asnap("secrets", "scan").code == 0
    assert all(TOKEN not in str(loaded(place, name)) for name in FAMILY)


def test_undo_of_an_import_leaves_companions_of_a_session_that_went_on(asnap: Asnap, place: Path) -> None:
    saved_family(place, "hello")
    assert asnap("export", "agent", "-o", "agent.asnap").code == 0
    assert asnap("forget", "agent", "--yes").code == 0
    assert asnap("purge", "--yes").code == 0
    assert asnap("import", "agent.asnap").code == 0
    saved(place, session("agent", "hello", "again"))

    asnap("undo")

    assert session_ids(place) == FAMILY


def test_a_live_session_over_the_limit_keeps_its_companions(asnap: Asnap, place: Path) -> None:
    saved_family(place, "hello")
    saved(place, session("newer", minutes=9))

    opened_with_limit(place, ["agent"])
    assert session_ids(place) == [*FAMILY, "newer"]

    opened_with_limit(place, [])
    assert session_ids(place) == ["newer"]


@pytest.mark.parametrize("name", FAMILY)
def test_no_policy_drops_snapshots_of_a_pinned_session_or_its_companions(
    asnap: Asnap, place: Path, name: str
) -> None:
    saved_family(place, "one", "two", "three")
    assert asnap("pin", "agent").code == 0
    before = numbers(place, name)

    assert asnap("forget", "--all", "--keep-last", "1", "--yes").code == 0

    assert numbers(place, name) == before
    assert "its session is pinned" in asnap("why", f"{name}@1", "--json").json["reasons"]


def test_why_says_that_companions_go_with_their_session(
    asnap: Asnap, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_family(place, "hello")
    saved(place, session("newer", minutes=9))
    monkeypatch.setenv("ASNAP_MAX_SESSIONS", "1")

    goes = {asnap("why", name, "--json").json["session_goes"] for name in FAMILY}

    assert goes == {"not among the 1 that changed last (max_sessions)"}
