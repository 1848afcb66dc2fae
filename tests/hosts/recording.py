"""What the store holds after everything was killed, and under which ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acp_client import RpcError, reject
from tests.hosts.stage import HostStage, linux, load, stored, words

__all__ = ["Recording"]


class Recording(HostStage):
    """The store holds everything that the client saw, even after everything was killed."""

    @linux
    def test_every_chunk_the_client_saw_survives_kill_9_of_everything(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say first answer")
            client.begin_prompt(session_id, "stream 400 2")
            client.wait_for_text("part-012.")
            self.kill_everything(client)
            seen = client.said(session_id).removeprefix("first answer")
        with self.start(tmp_path) as client:
            spoken = words(load(client, session_id)[1])
            assert spoken[:3] == [("user", "say first answer"), ("agent", "first answer"), ("user", "stream 400 2")]
            assert spoken[3][1].startswith(seen)
            assert seen in client.prompt(session_id, "echo-blocks"), "the model is told what the user saw"

    @linux
    def test_a_session_whose_id_is_too_long_for_a_file_name_survives_kill_9(self, tmp_path: Path) -> None:
        with self.start(tmp_path, "--misbehave", "long-names") as client:
            session_id = client.new_session()
            client.begin_prompt(session_id, "stream 400 2")
            client.wait_for_text("part-002.")
            self.kill_everything(client)
            seen = client.said(session_id)
        with self.start(tmp_path) as client:
            assert words(load(client, session_id)[1])[1][1].startswith(seen)
        assert stored(tmp_path, session_id).session_id == session_id

    def test_burst_of_chunks_arrives_chunk_by_chunk_also_in_a_restored_session(self, tmp_path: Path) -> None:
        parts = [f"part-{n:03}." for n in range(300)]
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            assert client.prompt(session_id, "stream 300") == "".join(parts)
        with self.start(tmp_path) as client:
            load(client, session_id)
            before = len(client.updates(session_id))
            client.prompt(session_id, "stream 300")
            chunks = [words([update]) for update in client.updates(session_id)[before:]]
            assert [text for chunk in chunks for who, text in chunk if who == "agent"] == parts
        assert [m.text for m in stored(tmp_path, session_id).messages if m.role == "assistant"] == [
            "".join(parts)
        ] * 2

    @linux
    def test_an_answer_that_was_received_as_finished_is_on_disk(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say kept for ever")
            self.kill_everything(client)
        with self.start(tmp_path) as client:
            assert ("agent", "kept for ever") in words(load(client, session_id)[1])

    def test_terminal_output_in_meta_accumulates_and_is_replayed(self, tmp_path: Path) -> None:
        def update(**fields: object) -> str:
            return "update " + json.dumps({"toolCallId": "t", **fields})

        def terminal(**fields: object) -> dict[str, object]:
            return {name: {"terminal_id": "term-1", **value} for name, value in fields.items()}  # type: ignore[dict-item]

        show = [{"type": "terminal", "terminalId": "term-1"}]
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            begun = update(sessionUpdate="tool_call", title="ls", status="in_progress", content=show)
            lines = [
                begun,
                update(sessionUpdate="tool_call_update", _meta=terminal(terminal_output_delta={"data": "one\n"})),
                update(sessionUpdate="tool_call_update", _meta=terminal(terminal_output={"data": "two\n"})),
                update(
                    sessionUpdate="tool_call_update",
                    status="completed",
                    _meta=terminal(terminal_exit={"exit_code": 0}),
                ),
            ]
            client.prompt(session_id, "\n".join(lines))
        with self.start(tmp_path) as client:
            _, updates = load(client, session_id)
            (call,) = [u for u in updates if u["sessionUpdate"] == "tool_call"]
            assert "one\ntwo\n" in json.dumps(call["content"]).encode().decode("unicode_escape")

    @pytest.mark.parametrize("habit", ["leaves-tools-pending", "hides-outcomes"])
    def test_a_tool_that_the_agent_left_pending_in_a_finished_turn_is_not_shown_as_interrupted(
        self, tmp_path: Path, habit: str
    ) -> None:
        with self.start(tmp_path, "--misbehave", habit) as client:
            session_id = client.new_session()
            client.prompt(session_id, "tool\nsay done")
        with self.start(tmp_path) as client:
            _, updates = load(client, session_id)
            (call,) = [u for u in updates if u["sessionUpdate"] == "tool_call"]
            assert call["status"] == "completed"
            assert "unknown" not in str(call)
            assert "outcome unknown" not in client.prompt(session_id, "echo-blocks"), "nor does the model hear so"

    def test_a_tool_that_the_user_did_not_permit_is_never_shown_as_completed(self, tmp_path: Path) -> None:
        with self.start(tmp_path, "--misbehave", "hides-outcomes") as client:
            client.answers["session/request_permission"] = reject
            session_id = client.new_session()
            client.prompt(session_id, "ask")
        with self.start(tmp_path) as client:
            _, updates = load(client, session_id)
            assert [u["status"] for u in updates if u["sessionUpdate"] == "tool_call"] == ["failed"]

    @pytest.mark.parametrize("params", [{"prompt": []}, {}], ids=["empty", "missing"])
    def test_an_empty_prompt_is_answered_and_neither_sent_nor_recorded(
        self, tmp_path: Path, params: dict[str, object]
    ) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            answer = client.request("session/prompt", {"sessionId": session_id, **params})
            assert answer == {"stopReason": "end_turn"}
            client.wait_for_text("empty")
            assert client.prompt(session_id, "remember") == "earlier turns: 1; last prompt: say one"
        asked = [message.text for message in stored(tmp_path, session_id).messages if message.role == "user"]
        assert asked == ["say one", "remember"]

    def test_a_new_session_never_takes_the_place_of_a_stored_one(self, tmp_path: Path) -> None:
        flags = ("--no-load", "--no-resume", "--no-list", "--misbehave", "counts-sessions")
        with self.start(tmp_path, *flags) as client:
            old = client.new_session()
            client.prompt(old, "say first")
        with self.start(tmp_path, *flags) as client:
            new = client.new_session()
            assert new != old
            assert client.prompt(new, "say second") == "second"
            assert words(load(client, old)[1]) == [("user", "say first"), ("agent", "first")]
            assert client.prompt(old, "say third").endswith("third")
            assert client.prompt(new, "remember") == "earlier turns: 1; last prompt: say second"
            listed = client.request("session/list", {})["sessions"]
            assert {info["sessionId"] for info in listed} == {old, new}

    def test_a_session_without_a_title_is_listed_with_its_first_prompt(self, tmp_path: Path) -> None:
        with self.start(tmp_path, "--no-list") as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            client.prompt(session_id, "say two")
        with self.start(tmp_path, "--no-list") as client:
            [listed] = client.request("session/list", {})["sessions"]
            assert (listed["sessionId"], listed["title"]) == (session_id, "say one")

    @pytest.mark.parametrize("more", [(), ("--no-delete",)], ids=["can delete", "cannot delete"])
    def test_the_agents_own_names_are_never_listed_beside_ours_and_deleted_with_them(
        self, tmp_path: Path, more: tuple[str, ...]
    ) -> None:
        flags = (*self.remembering(tmp_path), "--no-load", "--no-resume", *more)
        with self.start(tmp_path, *flags) as client:
            parent = client.new_session()
            client.prompt(parent, "say one")
            fork = {"sessionId": parent, "cwd": "/", "mcpServers": [], "_meta": {"asnap": {"at": 2}}}
            child = client.request("session/fork", fork)["sessionId"]
            client.prompt(child, "say two")
        with self.start(tmp_path, *flags) as client:
            load(client, parent)  # the agent has given it another id by now
            client.prompt(parent, "say three")
        with self.start(tmp_path, *flags) as client:
            listed = client.request("session/list", {})["sessions"]
            assert {info["sessionId"] for info in listed} == {parent, child}
            client.request("session/delete", {"sessionId": child})
            client.request("session/delete", {"sessionId": parent})
            assert client.request("session/list", {})["sessions"] == []
        with self.start(tmp_path, *flags) as client:
            assert client.request("session/list", {})["sessions"] == []

    def test_a_prompt_after_close_is_refused_and_the_session_can_be_loaded_again(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            assert client.request("session/close", {"sessionId": session_id}) == {}
            with pytest.raises(RpcError):
                client.prompt(session_id, "say lost")
            assert words(load(client, session_id)[1]) == [("user", "say one"), ("agent", "one")]
            assert client.prompt(session_id, "say two").endswith("two")
        assert [m.text for m in stored(tmp_path, session_id).messages][-1].endswith("two")

    def test_closing_cancels_the_turn_that_runs(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            running = client.begin_prompt(session_id, "stream 100000 5")
            client.wait_for_text("part-002.")
            client.request("session/close", {"sessionId": session_id})
            assert client.answer_to(running)["result"] == {"stopReason": "cancelled"}

    def test_the_running_entry_of_the_plan_is_the_current_task(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            client.prompt(session_id, "plan")
        task = stored(tmp_path, session_id).current_task
        assert task is not None
        assert "Leap" in str(task)
