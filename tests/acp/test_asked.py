"""Other processes ask a running proxy: save before a deploy, give the session a name."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore, SessionSnapshot, SnapshotManager, SnapshotMeta
from snapshot_plugin.live.outcome import Outcome
from snapshot_plugin.manager.labels import Labelled, label
from tests.acp.events import recorded, update
from tests.acp.proxied import proxied


def save_all(place: Path, tag: str) -> list[Outcome]:
    async def ask() -> list[Outcome]:
        async with FilesystemStore(place) as store, SnapshotManager(store) as manager:
            return list((await manager.snapshot_all(tag=tag)).outcomes)

    return anyio.run(ask)


def rename(place: Path, session_id: str, title: str) -> Labelled:
    async def ask() -> Labelled:
        async with FilesystemStore(place) as store:
            return await label(store, session_id, lambda _: {"title": title})

    return anyio.run(ask)


def newest(place: Path, session_id: str) -> tuple[SessionSnapshot, SnapshotMeta]:
    async def read() -> tuple[SessionSnapshot, SnapshotMeta]:
        async with FilesystemStore(place) as store:
            stored = await store.read(session_id)
            return stored.snapshot, stored.meta

    return anyio.run(read)


def test_proxied_session_is_saved_under_the_tag_in_mid_turn(tmp_path: Path) -> None:
    with proxied(tmp_path) as client:
        client.initialize()
        session_id = client.new_session()
        client.begin(
            "session/prompt",
            {"sessionId": session_id, "prompt": [{"type": "text", "text": "say uno\nslow-tool 60"}]},
        )
        client.wait_for(lambda m: "uno" in str(m.get("params")))

        (outcome,) = save_all(tmp_path, "pre-deploy")

        assert (outcome.session_id, outcome.status) == (session_id, "saved")
        assert outcome.owner is not None
        assert outcome.owner.pid == client.process.pid
        snapshot, meta = newest(tmp_path, session_id)
        assert meta.snapshot_tags == ("pre-deploy",)
        assert snapshot.messages[-1].text == "uno"
        client.kill()


@pytest.mark.parametrize("how", ["finished", "killed"])
def test_name_given_by_another_process_survives_later_saves(tmp_path: Path, how: str) -> None:
    with proxied(tmp_path) as client:
        client.initialize()
        session_id = client.new_session()
        client.prompt(session_id, "say one")
        save_all(tmp_path, "now")  # a session that is younger than a moment is not in the store yet
        named = rename(tmp_path, session_id, "fix auth")
        assert named.owner is not None
        client.prompt(session_id, "say two")
        if how == "killed":
            os.kill(client.process.pid, signal.SIGKILL)

    with proxied(tmp_path) as client:  # recovers what was left
        client.initialize()

    snapshot, _ = newest(tmp_path, session_id)
    assert snapshot.title == "fix auth"
    assert snapshot.messages[-1].text == "two"


def test_the_agents_title_does_not_replace_a_name_that_people_gave() -> None:
    titled = recorded(update("session_info_update", title="Agent's"))
    named = recorded({"label": {"title": "fix auth"}}, base=titled)

    assert recorded(update("session_info_update", title="Agent's new"), base=named).title == "fix auth"
    unnamed = recorded({"label": {"title": None}}, base=named)
    assert recorded(update("session_info_update", title="Agent's new"), base=unnamed).title == "Agent's new"


def test_malformed_label_changes_nothing() -> None:
    titled = recorded({"label": {"title": "fix auth"}})

    assert recorded({"label": {"title": 5}}, {"label": "x"}, base=titled).title == "fix auth"
