"""Before a deploy: every live session is saved under a tag, and the report is plain about those that are not."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore, InvalidInput, MemoryStore, SnapshotManager, StoreUnavailable
from snapshot_plugin.live.lease import FilePlace, Owner
from snapshot_plugin.live.outcome import Outcome, SnapshotAllReport
from snapshot_plugin.manager.predeploy import answer_request
from snapshot_plugin.testing import Fault, FaultyCall, FaultyStore
from tests.manager.processes import PATIENCE, heard, python
from tests.manager.sessions import AsyncChat, Chat, managing

pytestmark = pytest.mark.anyio
_SLOW = {"snapshot_interval": 600, "event_debounce": 600}

_ELSEWHERE = """
    import sys, anyio
    sys.path.insert(0, sys.argv[2])
    from snapshot_plugin.manager.manager import SnapshotManager
    from snapshot_plugin.store.filesystem import FilesystemStore
    from tests.manager.sessions import Chat, quick

    async def main():
        async with FilesystemStore(sys.argv[1]) as store:
            async with SnapshotManager(store, quick(snapshot_interval=600, event_debounce=600)) as manager:
                for name in ("far", "unsaved"):
                    await manager.start_auto_snapshot(Chat(name, "one"))
                print("ready", flush=True)
                await anyio.sleep_forever()

    anyio.run(main)
"""


def _fates(report: SnapshotAllReport) -> dict[str, str]:
    return {outcome.session_id: outcome.status for outcome in report.outcomes}


@pytest.mark.requirement("MANAGER-ALL-EACH", "ORBIT-USE-DEPLOY")
async def test_every_live_session_is_saved_under_the_tag() -> None:
    store = MemoryStore()
    async with managing(store, **_SLOW) as (manager, _):
        await manager.snapshot(Chat("not-live", "one"))
        for name in ("a", "b"):
            await manager.start_auto_snapshot(Chat(name, "one"))
        await manager.snapshot_all()
        report = await manager.snapshot_all(tag="release-7", timeout=PATIENCE)
        tags = {name: (await store.history(name))[0].snapshot_tags for name in ("a", "b")}
    assert report.ok
    assert [(outcome.session_id, outcome.seq) for outcome in report.outcomes] == [("a", 2), ("b", 2)]
    assert tags == {"a": ("release-7",), "b": ("release-7",)}
    assert str(report).splitlines()[0] == "2 of 2 live sessions saved as 'release-7'"


@pytest.mark.requirement("MANAGER-ALL-TIMEOUT")
async def test_unsaved_session_is_reported_and_the_others_are_saved() -> None:
    def one_fails(call: FaultyCall) -> Fault | None:
        return Fault(error=StoreUnavailable("full")) if call.session_id == "b-fails" else None

    stuck = AsyncChat("c-hangs")
    async with managing(FaultyStore(MemoryStore(), one_fails), snapshot_timeout=60, **_SLOW) as (manager, _):
        for session in (Chat("a-fine", "one"), Chat("b-fails", "one"), stuck):
            await manager.start_auto_snapshot(session)
        stuck.hold = anyio.Event()
        with anyio.fail_after(PATIENCE):
            report = await manager.snapshot_all(timeout=2)
        stuck.hold.set()
    assert _fates(report) == {"a-fine": "saved", "b-fails": "failed", "c-hangs": "timeout"}
    assert not report.ok
    assert [outcome.session_id for outcome in report.not_saved] == ["b-fails", "c-hangs"]
    assert report.outcomes[1].code == "store_unavailable"
    assert "b-fails: failed: full" in str(report)


async def test_no_live_session_reports_nothing_to_save() -> None:
    async with managing(MemoryStore()) as (manager, _):
        assert (await manager.snapshot_all()).ok


@pytest.mark.requirement("MANAGER-CONTROL-ASK")
async def test_sessions_of_other_processes_are_saved_by_asking_their_owner(tmp_path: Path) -> None:
    with python(_ELSEWHERE, tmp_path, Path(__file__).parents[2]) as process:
        assert heard(process) == "ready"
        async with FilesystemStore(tmp_path) as store, managing(store, **_SLOW) as (manager, _):
            await manager.start_auto_snapshot(Chat("near", "one"))
            report = await manager.snapshot_all(tag="pre-deploy", timeout=PATIENCE)
            history = await store.history("far")
    assert _fates(report) == {"far": "saved", "near": "saved", "unsaved": "saved"}
    assert history[0].snapshot_tags == ("pre-deploy",)
    owner = report.outcomes[0].owner
    assert owner is not None
    assert owner.pid == process.pid


@pytest.mark.requirement("MANAGER-CONTROL-SILENT")
async def test_an_owner_that_does_not_answer_is_reported_as_not_reachable(tmp_path: Path) -> None:
    with python(_ELSEWHERE, tmp_path, Path(__file__).parents[2]) as process:
        assert heard(process) == "ready"
        process.send_signal(signal.SIGSTOP)
        async with FilesystemStore(tmp_path) as store, managing(store) as (manager, _):
            with anyio.fail_after(PATIENCE):
                report = await manager.snapshot_all(timeout=0.3)
    assert _fates(report) == {"far": "not_reachable", "unsaved": "not_reachable"}
    assert [outcome.owner.pid for outcome in report.not_saved if outcome.owner] == [process.pid] * 2
    assert f"far: not reachable (process {process.pid} on" in str(report)


async def test_unreadable_lease_is_reported_and_the_others_are_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(place: FilePlace, session_id: str) -> Owner | None:
        if session_id == "odd":
            raise StoreUnavailable("permission denied")
        return owner(place, session_id)

    owner = FilePlace.owner
    async with FilesystemStore(tmp_path) as store, managing(store, **_SLOW) as (manager, _):
        await store.save(Chat("odd", "one").snapshot())
        await manager.start_auto_snapshot(Chat("near", "one"))
        monkeypatch.setattr(FilePlace, "owner", refuse)
        report = await manager.snapshot_all(timeout=PATIENCE)
    assert _fates(report) == {"near": "saved", "odd": "not_reachable"}


async def test_dead_owner_is_not_asked(tmp_path: Path) -> None:
    with python(_ELSEWHERE, tmp_path, Path(__file__).parents[2]) as process:
        assert heard(process) == "ready"
        process.kill()
        process.wait(PATIENCE)
    async with FilesystemStore(tmp_path) as store, managing(store) as (manager, _):
        assert (await manager.snapshot_all(timeout=1)).outcomes == ()


async def test_another_manager_of_this_process_is_asked_like_any_other(tmp_path: Path) -> None:
    async with (
        FilesystemStore(tmp_path) as store,
        FilesystemStore(tmp_path) as again,
        managing(store, **_SLOW) as (first, _),
        managing(again, **_SLOW) as (second, _),
    ):
        await first.start_auto_snapshot(Chat("chat", "one"))
        report = await second.snapshot_all(timeout=PATIENCE)
    assert _fates(report) == {"chat": "saved"}


async def test_an_owner_without_a_socket_is_not_reachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FilesystemStore(tmp_path) as store:
        silent = SnapshotManager(store)  # never opened: it has no task to answer with
        async with silent.leasing("chat") as managed:
            await managed.take()
            async with managing(store) as (manager, _):
                report = await manager.snapshot_all(timeout=PATIENCE)
    assert _fates(report) == {"chat": "not_reachable"}


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"op": "stop", "session_id": "chat", "tag": "x"},
        {"op": "snapshot", "session_id": 5, "tag": "x"},
        {"op": "snapshot", "session_id": "chat", "tag": 5},
    ],
)
async def test_malformed_request_is_refused(request_: dict[str, object]) -> None:
    manager = SnapshotManager(MemoryStore())
    with pytest.raises(InvalidInput):
        await answer_request(manager._sessions.get, request_)


async def test_a_request_for_a_session_that_has_ended_says_so() -> None:
    manager = SnapshotManager(MemoryStore())
    answer = await answer_request(manager._sessions.get, {"op": "snapshot", "session_id": "gone", "tag": "x"})
    assert Outcome.model_validate(answer).status == "not_live"
