"""Concurrent writers and failing disks: no displayed output is lost, and the client is warned."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import anyio

from snapshot_plugin.store.filesystem import FilesystemStore
from tests.hosts.stage import HostStage, descendants, linux, load, stored, wait_until, words

__all__ = ["Trouble"]

_BLOCKS = 160
_LONG = "x" * 25_000
_SMALL = 10_000


def _limited(command: Sequence[str]) -> Sequence[str]:
    """The command with a file size limit of 80 KB, which acts like a full disk."""
    return ["sh", "-c", f"ulimit -f {_BLOCKS}; exec {shlex.join(command)}"]


class Trouble(HostStage):
    """No displayed output is lost, and the client is warned."""

    def test_a_foreign_write_does_not_stop_the_recording(self, tmp_path: Path) -> None:
        async def rename() -> None:
            async with FilesystemStore(tmp_path / "store") as store:
                await store.save((await store.load(session_id)).evolve(title="by a script"))

        with self.start(tmp_path) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            wait_until(lambda: _is_stored(tmp_path, session_id), "the first snapshot")
            anyio.run(rename)
            client.prompt(session_id, "say two")
            client.prompt(session_id, "say three")
        snapshot = stored(tmp_path, session_id)
        assert [m.text for m in snapshot.messages if m.role == "assistant"] == ["one", "two", "three"]
        assert snapshot.title == "by a script"

    def test_a_delete_by_another_process_costs_a_live_session_nothing(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            wait_until(lambda: _is_stored(tmp_path, session_id), "the first snapshot")
            anyio.run(_delete, tmp_path, session_id)
            client.prompt(session_id, "say two")
        assert [m.text for m in stored(tmp_path, session_id).messages if m.role == "assistant"] == ["one", "two"]

    @linux
    def test_what_the_client_saw_after_a_delete_by_another_process_survives_kill_9(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            wait_until(lambda: _is_stored(tmp_path, session_id), "the first snapshot")
            anyio.run(_delete, tmp_path, session_id)
            client.begin_prompt(session_id, "stream 400 2")
            client.wait_for_text("part-030.")
            self.kill_everything(client)
            seen = client.said(session_id).removeprefix("one")
        with self.start(tmp_path) as client:
            spoken = words(load(client, session_id)[1])
            assert spoken[:2] == [("user", "say one"), ("agent", "one")]
            assert spoken[3][1].startswith(seen)

    @linux
    def test_a_fork_that_the_disk_refuses_leaves_nothing(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            wait_until(lambda: _is_stored(tmp_path, session_id), "the first snapshot")
            limits = _limit_files(client.process.pid, 0)
            asked = client.begin("session/fork", {"sessionId": session_id, "cwd": "/", "mcpServers": []})
            assert "error" in client.answer_to(asked)
            _limit_files(client.process.pid, limits)
            client.prompt(session_id, "say two")
            listed = client.request("session/list", {})["sessions"]
            assert [info["sessionId"] for info in listed] == [session_id]

    def test_a_disk_that_refuses_the_first_write_is_asked_again_and_the_client_is_told(
        self, tmp_path: Path
    ) -> None:
        sessions, aside = tmp_path / "store" / "sessions", tmp_path / "aside"
        with self.start(tmp_path) as client:
            client.prompt(client.new_session(), "say the store exists")
            sessions.rename(aside)
            sessions.write_text("no directory")
            made = client.request("session/new", {"cwd": "/", "mcpServers": []})
            session_id = made["sessionId"]
            assert made["_meta"]["asnap"]["recorded"] is False
            assert client.prompt(session_id, "say one") == "one"
            sessions.unlink()
            aside.rename(sessions)
            assert client.prompt(session_id, "say two") == "two"
        assert [m.text for m in stored(tmp_path, session_id).messages if m.role == "assistant"] == ["one", "two"]

    @linux
    def test_the_client_is_told_when_the_disk_refuses_in_mid_session_and_when_it_is_well_again(
        self, tmp_path: Path
    ) -> None:
        def said(*, is_recorded: bool) -> bool:
            metas = [update.get("_meta") or {} for update in client.updates(session_id)]
            return any(meta.get("asnap", {}).get("recorded") is is_recorded for meta in metas)

        with self.start(tmp_path) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            limits = _limit_files(client.process.pid, 0)
            assert client.prompt(session_id, "say two") == "two"
            client.prompt(session_id, "say two more")
            wait_until(lambda: said(is_recorded=False), "the client is told")
            assert not said(is_recorded=True)
            _limit_files(client.process.pid, limits)
            wait_until(
                lambda: bool(client.prompt(session_id, "say three")) and said(is_recorded=True), "it is told again"
            )
            self.kill_everything(client)
        with self.start(tmp_path) as client:
            said_then = [text for who, text in words(load(client, session_id)[1]) if who == "agent"]
            assert said_then[:4] == ["one", "two", "two more", "three"]

    def test_a_full_disk_at_the_end_keeps_what_was_spooled_and_says_so(self, tmp_path: Path) -> None:
        with self.start(tmp_path, wrapped=_limited) as client:
            session_id = client.new_session()
            assert client.prompt(session_id, f"say 0{_LONG}") == f"0{_LONG}"
            wait_until(lambda: _is_stored(tmp_path, session_id), "the first snapshot")
            assert client.prompt(session_id, f"say 1{_LONG}") == f"1{_LONG}"
            client.hang_up()
            assert client.exit_status() != 0
            assert session_id in client.stderr
        with self.start(tmp_path) as client:
            said = [text for who, text in words(load(client, session_id)[1]) if who == "agent"]
            assert [text[0] for text in said] == ["0", "1"]


def _limit_files(pid: int, size: int) -> int:
    """Allow the host no file beyond *size* bytes, as if the disk were full; what was allowed before."""
    import resource  # noqa: PLC0415 — not on every system

    before = -1
    for process in (pid, *descendants(pid)):
        before, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (size, hard))
    return before


async def _delete(place: Path, session_id: str) -> None:
    """Delete a session as another process would."""
    async with FilesystemStore(place / "store") as store:
        await store.delete(session_id)


def _is_stored(place: Path, session_id: str) -> bool:
    """Whether a snapshot contains the answer and the spool no longer does."""
    try:
        is_saved = any(message.role == "assistant" for message in stored(place, session_id).messages)
        return is_saved and all(spool.stat().st_size < _SMALL for spool in (place / "store").rglob("live*"))
    except Exception:  # noqa: BLE001 — not yet
        return False
