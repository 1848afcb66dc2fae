"""A power cut may leave an empty spool that has forgotten its numbers: what is recorded then is still recovered."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_plugin import FilesystemStore
from snapshot_plugin.live.spool import Spool
from tests.manager.sessions import Chat, managing
from tests.manager.test_durability import die, said

pytestmark = pytest.mark.anyio


async def test_records_are_recovered_after_a_power_cut_that_lost_the_spools_numbers(tmp_path: Path) -> None:
    chat = Chat("chat")
    async with FilesystemStore(tmp_path) as store:
        async with managing(store) as (manager, _):
            await manager.start_auto_snapshot(chat)
            for word in ("a", "b", "c"):
                assert manager.record("chat", said(word))
                chat.say(word)
        # The new length of the file was written, its new header was not.
        live = store.session_dir("chat") / "live"
        live.unlink()
        Spool.open(live.parent, session_id="chat").close()
        async with managing(store) as (manager, _):
            await manager.start_auto_snapshot(Chat("chat", snapshot=await store.load("chat")))
            assert manager.record("chat", said("d"))
            die(manager)
        async with managing(store) as (manager, _):
            found = await manager.restore("chat")
    assert [message.text for message in found.snapshot.messages] == ["a", "b", "c", "d"]
