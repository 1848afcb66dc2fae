from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from snapshot_plugin import (
    Conflict,
    FilesystemStore,
    InvalidInput,
    InvalidSessionId,
    MemoryStore,
    SessionLocked,
    SnapshotCorrupted,
    SnapshotManager,
    StoreUnavailable,
)
from snapshot_plugin.codec.frame import encode_frame
from snapshot_plugin.exchange.carrying import Arrival, as_copies, bring, carrier, collect
from snapshot_plugin.exchange.edits import moved, renamed
from snapshot_plugin.exchange.redacting import redacted
from snapshot_plugin.live.spool import Spool
from snapshot_plugin.store.memory import MemoryLog
from snapshot_plugin.store.transfer import Copied, verified
from snapshot_plugin.testing import make_message, make_snapshot
from tests.exchange.sessions import NOW, fill, memory_store

pytestmark = pytest.mark.anyio
SESSION = "Fix/auth"
TOKEN = "ghp_" + "A1b2" * 9


async def exported(*, memory: bool = True) -> list[Sequence[Copied]]:
    async with memory_store() as store:
        await fill(store, memory=memory)
        return await collect(store, SESSION)


async def ids(store: MemoryStore) -> set[str]:
    return {meta.session_id for meta in await store.list()}


def outcomes(arrivals: Sequence[Arrival]) -> list[tuple[str, str, str]]:
    return [(arrival.outcome, arrival.source_id, arrival.session_id) for arrival in arrivals]


# What is there already ---------------------------------------------------------------------------------------


async def test_existing_session_with_the_same_content_is_left_alone() -> None:
    async with memory_store() as store:
        sessions = await exported()
        await bring(store, sessions)
        again = await bring(store, sessions)

        assert outcomes(again) == [("already_there", SESSION, SESSION)]
        assert again[0].made == ()
        assert await ids(store) == {SESSION, f"{SESSION}+memory"}


async def test_session_continued_here_is_left_alone() -> None:
    async with memory_store() as store:
        sessions = await exported()
        await bring(store, sessions)
        await store.save((await store.load(SESSION)).append(make_message("mine")))

        assert outcomes(await bring(store, sessions)) == [("already_there", SESSION, SESSION)]
        assert (await store.load(SESSION)).messages[-1].text == "mine"


async def test_existing_session_with_other_content_is_kept_and_the_import_gets_a_new_id() -> None:
    async with memory_store() as store:
        await store.save(make_snapshot("mine", session_id=SESSION))
        numbers = count(1)
        arrivals = await bring(store, await exported(), make_id=lambda: f"new-{next(numbers)}")

        assert outcomes(arrivals) == [("renamed", SESSION, "new-1")]
        assert arrivals[0].made == ("new-1", "new-1+memory")
        assert (await store.load(SESSION)).messages[0].text == "mine"
        newcomer = await store.load("new-1")
        assert newcomer.metadata["working_memory"]["session_id"] == "new-1+memory"
        assert (await store.check()).findings == ()


@pytest.mark.parametrize("change", [{"title": "Other"}, {}])
async def test_one_differing_snapshot_or_tag_makes_another_session(change: dict[str, str]) -> None:
    snapshot = make_snapshot("x", session_id=SESSION)
    async with memory_store() as store, memory_store() as other:
        await store.save(snapshot)
        await other.save(snapshot.evolve(**change), tags=() if change else ("tagged",))
        arrivals = await bring(store, [await other.take_out(SESSION)], make_id=lambda: "new")

        assert outcomes(arrivals) == [("renamed", SESSION, "new")]


# What goes on with what is there ------------------------------------------------------------------------------


async def gone_on(there: MemoryStore, *, memory: bool = True) -> list[Sequence[Copied]]:
    """The session of `fill`, after another day over there."""
    if memory:
        await there.save((await there.load(f"{SESSION}+memory")).evolve(memory={"k": "later"}))
    snapshot = (await there.load(SESSION)).append(make_message("another day"))
    await there.save(snapshot, trigger="event", tags=["day-2"])
    await there.save(snapshot.append(make_message("evening")), trigger="event")
    return await collect(there, SESSION)


@pytest.mark.parametrize("memory", [True, False])
async def test_session_continued_elsewhere_is_updated(memory: bool) -> None:
    async with memory_store() as there, memory_store() as here:
        await fill(there, memory=memory)
        await bring(here, await collect(there, SESSION))
        (arrival,) = await bring(here, await gone_on(there, memory=memory))

        assert (arrival.outcome, arrival.session_id, arrival.made) == ("updated", SESSION, ())
        assert (arrival.was_at, arrival.snapshots, arrival.with_memory) == (4, 6, memory)
        assert await collect(here, SESSION) == await collect(there, SESSION)
        assert (await here.check()).findings == ()
        again = await bring(here, await collect(there, SESSION))
        assert outcomes(again) == [("already_there", SESSION, SESSION)]


async def test_session_can_move_back_and_forth(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path / "a") as one, FilesystemStore(tmp_path / "b", key="secret") as two:
        await one.save(make_snapshot("0", session_id="s"))
        for number, (here, there) in enumerate([(one, two), (two, one)] * 3):
            await bring(there, await collect(here, "s"))
            await there.save((await there.load("s")).append(make_message(str(number + 1))))
        assert [meta.seq for meta in await one.history("s")] == [7, 6, 5, 4, 3, 2, 1]
        assert [message.text for message in (await one.load("s")).messages] == list("0123456")
        for store in (one, two):
            assert {meta.session_id for meta in await store.list()} == {"s"}
            assert (await store.check()).findings == ()


async def test_snapshots_forgotten_on_one_side_stay_forgotten_there_only() -> None:
    async with memory_store() as there, memory_store() as here:
        await fill(there, memory=False)
        await bring(here, await collect(there, SESSION))
        await here.drop(SESSION, [1, 3])
        await gone_on(there, memory=False)
        await there.drop(SESSION, [2, 5])
        (arrival,) = await bring(here, await collect(there, SESSION))

        assert arrival.outcome == "updated"
        assert [meta.seq for meta in await here.history(SESSION)] == [6, 4, 2]
        assert await here.load(SESSION) == await there.load(SESSION)
        assert (await here.check()).findings == ()


async def test_changes_on_both_sides_give_two_sessions() -> None:
    async with memory_store() as there, memory_store() as here:
        await fill(there)
        await bring(here, await collect(there, SESSION))
        await here.save((await here.load(SESSION)).append(make_message("mine")))
        arrivals = await bring(here, await gone_on(there), make_id=lambda: "new")

        assert outcomes(arrivals) == [("renamed", SESSION, "new")]
        assert (await here.load(SESSION)).messages[-1].text == "mine"


async def test_conflicting_memory_prevents_an_update() -> None:
    async with memory_store() as there, memory_store() as here:
        await fill(there)
        await bring(here, await collect(there, SESSION))
        await here.save((await here.load(f"{SESSION}+memory")).evolve(memory={"k": "mine"}))
        arrivals = await bring(here, await gone_on(there), make_id=lambda: "new")

        assert outcomes(arrivals) == [("renamed", SESSION, "new")]
        assert (await here.load(f"{SESSION}+memory")).memory == {"k": "mine"}


async def test_session_without_memory_gets_the_imported_one() -> None:
    async with memory_store() as there, memory_store() as here:
        await fill(there, memory=False)
        await bring(here, await collect(there, SESSION))
        await there.save(make_snapshot(session_id=f"{SESSION}+memory", memory={"k": 1}))
        (arrival,) = await bring(here, await gone_on(there))

        assert (arrival.outcome, arrival.made) == ("updated", (f"{SESSION}+memory",))
        assert (await here.load(f"{SESSION}+memory")).memory == {"k": "later"}


async def test_import_that_covers_less_of_the_local_spool_is_another_session() -> None:
    """Else what is recorded here next would not be recovered after a crash."""
    noted = make_snapshot("x", session_id="s", metadata={"spool": {"upto": 7}})
    async with memory_store() as there, memory_store() as here:
        await there.save(noted)
        await bring(here, await collect(there, "s"))
        await there.save(noted.append(make_message("y")).evolve(metadata={"spool": {"upto": 3}}))
        arrivals = await bring(here, await collect(there, "s"), make_id=lambda: "new")

        assert outcomes(arrivals) == [("renamed", "s", "new")]


async def test_a_dry_run_updates_nothing() -> None:
    async with memory_store() as there, memory_store() as here:
        await fill(there)
        await bring(here, await collect(there, SESSION))
        before = await collect(here, SESSION)
        (arrival,) = await bring(here, await gone_on(there), dry_run=True)

        assert arrival.outcome == "updated"
        assert await collect(here, SESSION) == before


async def test_a_live_session_is_not_updated(tmp_path: Path) -> None:
    async with memory_store() as there, FilesystemStore(tmp_path) as here:
        await fill(there)
        await bring(here, await collect(there, SESSION))
        async with SnapshotManager(here).leasing(SESSION) as leased:
            await leased.take()
            with pytest.raises(SessionLocked):
                await bring(here, await gone_on(there))
        assert len(await here.history(SESSION)) == 4


async def test_killed_session_is_recovered_before_an_update(tmp_path: Path) -> None:
    async with memory_store() as there, FilesystemStore(tmp_path) as here:
        await fill(there, memory=False)
        await bring(here, await collect(there, SESSION))
        spool = Spool.open(here.session_dir(SESSION), session_id=SESSION)
        spool.append({"message": {"role": "user", "content": "half said"}})
        spool.close()
        with pytest.raises(Conflict):
            await bring(here, await gone_on(there, memory=False))
        assert len(await here.history(SESSION)) == 4


async def test_concurrent_save_is_not_overwritten() -> None:
    class Busy(MemoryStore):
        async def put_in(self, session_id: str, copies: Sequence[Copied], **options: Any) -> None:
            if options.get("instead_of") and not session_id.endswith("+memory"):
                await self.save((await self.load(session_id)).append(make_message("at the same moment")))
            await super().put_in(session_id, copies, **options)

    async with memory_store() as there, Busy() as here:
        await fill(there)
        await bring(here, await collect(there, SESSION))
        with pytest.raises(Conflict):
            await bring(here, await gone_on(there))
        assert (await here.load(SESSION)).messages[-1].text == "at the same moment"
        assert (await here.load(f"{SESSION}+memory")).memory == {"k": "v"}, "taken back"


# What is not what it seems ------------------------------------------------------------------------------------


async def test_memory_alone_can_conflict() -> None:
    async with memory_store() as store:
        await store.save(make_snapshot(session_id=f"{SESSION}+memory", memory={"other": 1}))
        arrivals = await bring(store, await exported(), make_id=lambda: "new")

        assert outcomes(arrivals) == [("renamed", SESSION, "new")]


@pytest.mark.parametrize("gone", [SESSION, f"{SESSION}+memory"])
async def test_partial_session_is_not_treated_as_the_session(gone: str) -> None:
    async with memory_store() as store:
        sessions = await exported()
        await bring(store, sessions)
        await store.delete(gone)
        arrivals = await bring(store, sessions, make_id=lambda: "new")

        assert outcomes(arrivals) == [("renamed", SESSION, "new")]
        assert await ids(store) == {SESSION, f"{SESSION}+memory", "new", "new+memory"} - {gone}


async def test_memory_is_imported_before_its_session() -> None:
    class Watched(MemoryStore):
        async def put_in(self, session_id: str, copies: Sequence[Copied], **options: Any) -> None:
            order.append(session_id)
            await super().put_in(session_id, copies, **options)

    order: list[str] = []
    async with Watched() as store:
        await bring(store, await exported())
    assert order == [f"{SESSION}+memory", SESSION]


async def test_subgraphs_go_with_their_session() -> None:
    async with memory_store() as source, memory_store() as store:
        await fill(source, memory=False)
        await source.save(make_snapshot("inner", session_id=f"{SESSION}+subgraphs"))
        sessions = await collect(source, SESSION)
        await bring(store, sessions)
        await bring(store, sessions, under="mine")

        assert await ids(store) == {SESSION, f"{SESSION}+subgraphs", "mine", "mine+subgraphs"}
        assert (await store.load("mine+subgraphs")).messages[0].text == "inner"


async def test_a_session_can_be_given_an_id() -> None:
    async with memory_store() as store:
        sessions = await exported()
        assert outcomes(await bring(store, sessions, under="mine")) == [("imported", SESSION, "mine")]
        assert outcomes(await bring(store, sessions, under="mine")) == [("already_there", SESSION, "mine")]
        await store.save(make_snapshot("x", session_id="taken"))
        with pytest.raises(Conflict):
            await bring(store, sessions, under="taken")
        with pytest.raises(InvalidSessionId):
            await bring(store, sessions, under="..")


async def test_two_sessions_cannot_get_the_same_id() -> None:
    async with memory_store() as store:
        other = await as_copies(make_snapshot("x", session_id="other"), now=NOW)
        with pytest.raises(InvalidInput):
            await bring(store, [*await exported(), other], under="mine")


async def test_dry_run_reports_the_same_and_changes_nothing() -> None:
    async with memory_store() as store:
        dry = await bring(store, await exported(), dry_run=True)

        assert (dry[0].outcome, dry[0].made, dry[0].snapshots) == ("imported", (SESSION, f"{SESSION}+memory"), 4)
        assert await ids(store) == set()


async def test_one_invalid_session_imports_nothing() -> None:
    good = await as_copies(make_snapshot("x", session_id="good"), now=NOW)
    bad = [copy._replace(payload=copy.payload.replace(b"hello", b"olleh")) for copy in (await exported())[0]]
    async with memory_store() as store:
        with pytest.raises(SnapshotCorrupted):
            await bring(store, [good, bad])
        assert await ids(store) == set()


async def test_disk_error_half_way_rolls_the_import_back() -> None:
    class Full(MemoryStore):
        async def put_in(self, session_id: str, copies: Sequence[Copied], **options: Any) -> None:
            if not session_id.endswith("+memory"):
                raise StoreUnavailable("full")
            await super().put_in(session_id, copies, **options)

    async with Full() as store:
        with pytest.raises(StoreUnavailable):
            await bring(store, await exported())
        assert await ids(store) == set()


async def test_interrupted_import_is_rolled_back() -> None:
    with anyio.CancelScope() as scope:

        class Interrupted(MemoryStore):
            async def put_in(self, session_id: str, copies: Sequence[Copied], **options: Any) -> None:
                if not session_id.endswith("+memory"):
                    scope.cancel()
                    await anyio.lowlevel.checkpoint()
                await super().put_in(session_id, copies, **options)

        store = Interrupted()
        await bring(store, await exported())
    assert scope.cancelled_caught
    assert await ids(store) == set()


async def test_duplicate_session_in_a_file_is_refused() -> None:
    one, other = [await as_copies(make_snapshot(text, session_id="s"), now=NOW) for text in ("a", "b")]
    async with memory_store() as store:
        with pytest.raises(InvalidInput):
            await bring(store, [one, other])
        assert await ids(store) == set()


async def test_session_of_a_newer_release_is_left_alone() -> None:
    frames = MemoryLog()
    (copy,) = await as_copies(make_snapshot("x", session_id="s"), now=NOW)
    newer = copy.header._replace(v=99)
    frames.append("s", encode_frame(newer, copy.payload, None), newer, after=None)
    async with MemoryStore(frames) as store:
        arrivals = await bring(store, [[copy]], make_id=lambda: "new")
        assert outcomes(arrivals) == [("renamed", "s", "new")]


def test_store_without_history_support_is_refused_clearly() -> None:
    with pytest.raises(InvalidInput):
        carrier(object())  # type: ignore[arg-type]


# On the way --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paths", "cwd", "more"),
    [
        ({"/home/ann": "/Users/bob"}, "/Users/bob/shop", ["/Users/bob", "/srv"]),
        ({"/home/ann/": "/Users/bob/"}, "/Users/bob/shop", ["/Users/bob", "/srv"]),
        ({"/home/an": "/x"}, "/home/ann/shop", ["/home/ann", "/srv"]),
        ({"/home": "/h", "/home/ann/shop": "/shop"}, "/shop", ["/h/ann", "/srv"]),
        ({"/": "/mnt"}, "/mnt/home/ann/shop", ["/mnt/home/ann", "/mnt/srv"]),
        ({"/home/ann/shop": "/"}, "/", ["/home/ann", "/srv"]),
    ],
)
async def test_directories_can_be_remapped(paths: dict[str, str], cwd: str, more: list[str]) -> None:
    async with memory_store() as store:
        arrivals = await bring(store, await exported(), paths=paths)
        snapshot = await store.load(SESSION)

        assert snapshot.config.cwd == cwd == arrivals[0].newest.config.cwd
        assert list(snapshot.config.additional_directories) == more
        assert {meta.cwd for meta in await store.history(SESSION)} == {cwd}
        assert (await store.check()).findings == ()


async def test_remapping_changes_no_messages() -> None:
    async with memory_store() as store:
        await store.save(make_snapshot("see /home/ann", session_id="s", title="/home/ann"))
        copies = moved(await store.take_out("s"), {"/home/ann": "/x"})

    assert verified(copies).messages[0].text == "see /home/ann"
    assert verified(copies).title == "/home/ann"


async def test_redaction_removes_secrets_from_every_snapshot_and_nothing_else() -> None:
    async with memory_store() as store:
        first = make_snapshot(
            f"my token is {TOKEN}", "fine", session_id="s", title=f"t {TOKEN}", memory={"k": TOKEN}
        )
        await store.save(first)
        await store.save(first.append(make_message("on")).evolve(memory={}, title="clean"))
        before = await store.take_out("s")
        copies, report = redacted(before)

    assert TOKEN.encode() not in b"".join(payload for _, payload in copies)
    assert sum(report.counts.values()) >= 3
    newest = verified(copies)
    assert [message.text for message in newest.messages[1:]] == ["fine", "on"]
    assert newest.memory == {}
    assert [copy.header.hi for copy in copies] == [1, 2]
    assert copies[1].payload == before[1].payload


async def test_redacting_a_clean_session_changes_nothing() -> None:
    (session, memory) = await exported()
    assert redacted(session)[0] == list(session)
    assert redacted(memory)[0] == list(memory)


async def test_renaming_keeps_the_content() -> None:
    (session, _) = await exported()
    again = renamed(renamed(session, "other"), SESSION)
    assert again == list(session)
    assert verified(renamed(session, "other")).session_id == "other"


# When the disk refuses -----------------------------------------------------------------------------------------


async def test_session_is_imported_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = await exported()

    def refuse(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    async with FilesystemStore(tmp_path) as store:
        assert await store.list() == []  # the store itself is there already
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", refuse)
            with pytest.raises(StoreUnavailable):
                await bring(store, sessions)
        assert await store.list() == []
        assert outcomes(await bring(store, sessions)) == [("imported", SESSION, SESSION)]
        assert (await store.check()).ok


async def test_stored_session_with_only_a_torn_save_is_replaced_by_the_import(tmp_path: Path) -> None:
    sessions = await exported(memory=False)
    async with FilesystemStore(tmp_path) as store:
        directory = anyio.Path(await anyio.to_thread.run_sync(store.session_dir, SESSION))
        await (directory / "0000000001.snap.gz").write_bytes(b"\x1f\x8b\x08\x04")
        assert outcomes(await bring(store, sessions)) == [("imported", SESSION, SESSION)]
        assert len(await store.history(SESSION)) == 4
        assert (await store.check()).ok


async def test_damaged_session_is_left_alone(tmp_path: Path) -> None:
    sessions = await exported(memory=False)
    async with FilesystemStore(tmp_path) as store:
        await bring(store, sessions)
        (file,) = [path async for path in anyio.Path(tmp_path).glob("sessions/*/*.snap.gz")]
        await file.write_bytes((await file.read_bytes())[:-9] + b"?" * 9)
        arrivals = await bring(store, sessions, make_id=lambda: "new")

        assert outcomes(arrivals) == [("renamed", SESSION, "new")]
