"""session/load and session/resume of stored sessions, open sessions, and several at once."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from snapshot_plugin.acp.state import expected_grade
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.place import required_place
from snapshot_plugin.store.filesystem import FilesystemStore
from tests.acp_client import Client, RpcError
from tests.hosts.login import AUTH_REQUIRED, log_in, login_file
from tests.hosts.stage import (
    HostStage,
    brought_back,
    descendants,
    grade,
    is_alive,
    linux,
    load,
    stored,
    wait_until,
    words,
)

__all__ = ["Adopting", "Loading"]


class Loading(HostStage):
    """session/load and session/resume of stored and open sessions."""

    def test_an_idle_session_that_is_open_is_replayed_and_the_agent_is_left_alone(self, tmp_path: Path) -> None:
        with self.start(tmp_path, "--misbehave", "blank-load") as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            for _ in range(2):
                assert words(load(client, session_id)[1]) == [("user", "say one"), ("agent", "one")]
            assert client.prompt(session_id, "remember") == "earlier turns: 1; last prompt: say one"

    def test_a_session_is_loaded_in_mid_turn_and_no_chunk_is_missing(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            running = client.begin_prompt(session_id, "stream 300 2")
            client.wait_for_text("part-020.")
            mark = len(client.received)
            load(client, session_id)
            assert client.answer_to(running)["result"] == {"stopReason": "end_turn"}
            everything = "".join(f"part-{n:03}." for n in range(300))
            before = client.said(session_id)[
                : len(client.said(session_id)) - len(client.said(session_id, since=mark))
            ]
            shown_since = client.said(session_id, since=mark)
            replayed_from = shown_since.index("part-000.")
            assert before + shown_since[:replayed_from] == everything[: len(before) + replayed_from]
            assert shown_since[replayed_from:] == everything, "the replay and what followed it are the whole answer"
            assert words(load(client, session_id)[1])[1] == ("agent", everything)

    def test_two_sessions_loaded_at_once_keep_their_commands(self, tmp_path: Path) -> None:
        flags = self.remembering(tmp_path)
        with self.start(tmp_path, *flags) as client:
            ids = [client.new_session(), client.new_session()]
            for session_id in ids:
                client.prompt(session_id, f"say {session_id}")
        with self.start(tmp_path, *flags) as client:
            asked = [
                client.begin("session/load", {"sessionId": session_id, "cwd": "/", "mcpServers": []})
                for session_id in ids
            ]
            for request_id in asked:
                assert "result" in client.answer_to(request_id)
            for session_id in ids:
                client.prompt(session_id, "say fence")
                kinds = [update["sessionUpdate"] for update in client.updates(session_id)]
                assert "available_commands_update" in kinds
                assert f"say {session_id}" in client.said(session_id, kind="user_message_chunk")

    def test_a_refused_load_releases_the_session(self, tmp_path: Path) -> None:
        refuse = tmp_path / "refuse"
        with self.start(tmp_path, "--refuse", str(refuse)) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        refuse.touch()
        with self.start(tmp_path, "--refuse", str(refuse)) as client:
            with pytest.raises(RpcError):
                load_or_raise(client, session_id)
            refuse.unlink()
            with self.start(tmp_path) as other:
                assert ("agent", "one") in words(load(other, session_id)[1])

    def test_a_session_that_is_live_elsewhere_is_refused_with_its_owner(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as first:
            session_id = first.new_session()
            first.prompt(session_id, "say one")
            with self.start(tmp_path) as second:
                with pytest.raises(RpcError) as refused:
                    load_or_raise(second, session_id)
                assert refused.value.data["reason"] == "locked"
            assert first.prompt(session_id, "say two") == "two"

    def test_a_session_that_is_live_elsewhere_is_forked_with_its_spool(self, tmp_path: Path) -> None:
        said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "one"}}
        begun = {"provider_type": "acp", "agent": {"sessionId": "theirs"}, "new": {"cwd": "/"}}
        asked = {"prompt": [{"type": "text", "text": "say one"}]}
        place = required_place(FilesystemStore(tmp_path / "store"))
        with self.start(tmp_path) as client:
            client.new_session()
            elsewhere = place.take("live-elsewhere", Owner.this_process(since=datetime.now(UTC)))
            elsewhere.append([begun, asked, {"update": said}, {"stop": {"stopReason": "end_turn"}}])
            forked = client.request("session/fork", {"sessionId": "live-elsewhere", "cwd": "/", "mcpServers": []})
            assert words(load(client, forked["sessionId"])[1]) == [("user", "say one"), ("agent", "one")]
            assert place.owner("live-elsewhere") is not None
            assert len(place.records("live-elsewhere")) == 4  # its owner goes on undisturbed
            elsewhere.release()

    def test_an_unknown_session_is_not_found_under_the_protocols_own_code(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            for method in ("session/load", "session/resume", "session/fork"):
                asked = client.begin(method, {"sessionId": "never-was", "cwd": "/", "mcpServers": []})
                error = client.answer_to(asked)["error"]
                assert (error["code"], error["data"]["sessionId"]) == (-32002, "never-was")

    def test_resume_replays_nothing_and_the_conversation_is_known(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        with self.start(tmp_path) as client:
            client.request("session/resume", {"sessionId": session_id, "cwd": "/"})
            assert words(client.updates(session_id)) == []
            assert "say one" in client.prompt(session_id, "echo-blocks")

    @pytest.mark.parametrize("cannot", [(), ("--no-load",), ("--no-load", "--no-resume")], ids=len)
    def test_the_record_predicts_the_grade_of_the_restore(self, tmp_path: Path, cannot: tuple[str, ...]) -> None:
        flags = (*self.remembering(tmp_path), *cannot)
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        expected = expected_grade(stored(tmp_path, session_id))
        with self.start(tmp_path, *flags) as client:
            assert grade(load(client, session_id)[0]) == expected

    def test_everything_that_was_said_is_replayed_before_the_answer(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            client.prompt(session_id, "think hm\nplan\ntool\nsay one")
        with self.start(tmp_path) as client:
            result, updates = load(client, session_id)
            assert isinstance(result, dict)
            assert words(updates) == [("user", "think hm\nplan\ntool\nsay one"), ("agent", "one")]
            kinds = {update["sessionUpdate"] for update in updates}
            assert {"agent_thought_chunk", "tool_call", "plan"} <= kinds
            assert [u["status"] for u in updates if u["sessionUpdate"] == "tool_call"] == ["completed"]


class Adopting(HostStage):
    """For hosts that can be told to continue a stored session when the client opens its first one."""

    def test_the_stored_session_is_named_before_it_is_replayed(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        with self.start(tmp_path, session=session_id) as client:
            result, before = brought_back(client, "session/new", {"cwd": "/", "mcpServers": []})
            assert result["sessionId"] == session_id
            assert before == [], "a client drops updates of sessions it does not know"
            client.wait_for_text("one")
            assert words(client.updates(session_id)) == [("user", "say one"), ("agent", "one")]
            assert "say one" in client.prompt(session_id, "echo-blocks")
            assert client.new_session() != session_id, "later ones are new"

    def test_a_client_that_also_loads_the_stored_session_gets_it_twice_and_it_is_recorded(
        self, tmp_path: Path
    ) -> None:
        flags = self.remembering(tmp_path)
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        params = {"sessionId": session_id, "cwd": "/", "mcpServers": []}
        requests = [("session/new", {"cwd": "/", "mcpServers": []}), ("session/load", params)]
        for number, order in enumerate((requests, requests[::-1])):
            with self.start(tmp_path, *flags, session=session_id) as client:
                for asked in [client.begin(method, params) for method, params in order]:
                    assert "result" in client.answer_to(asked)
                assert client.prompt(session_id, f"say after {number}").endswith(f"after {number}")
            assert stored(tmp_path, session_id).messages[-1].text == f"after {number}"

    def test_it_waits_for_the_login_and_is_not_forgotten_meanwhile(self, tmp_path: Path) -> None:
        flags = (*self.remembering(tmp_path), "--login", str(login_file(tmp_path)))
        with self.start(tmp_path, *flags) as client:
            log_in(client)
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        with self.start(tmp_path, *flags, session=session_id) as client:
            for _ in range(2):
                with pytest.raises(RpcError) as refused:
                    client.new_session()
                assert refused.value.code == AUTH_REQUIRED
            log_in(client)
            assert client.new_session() == session_id
            client.prompt(session_id, "say two")
        assert [message.text for message in stored(tmp_path, session_id).messages][-1] == "two"

    @linux
    def test_an_unknown_session_is_refused_and_no_agent_is_left(self, tmp_path: Path) -> None:
        with self.start(tmp_path, "--misbehave", "outlives-stdin", session="nope", initialize=False) as client:
            if client.process.poll() is None:
                with suppress(OSError, AssertionError, RpcError):  # it may have ended by now
                    client.initialize()
                    client.new_session()
            pids = descendants(client.process.pid)
            with suppress(OSError):
                client.hang_up()
            client.exit_status()
            wait_until(lambda: not any(is_alive(pid) for pid in pids), "the agent ends with the host")
            assert "nope" in client.stderr


def load_or_raise(client: Client, session_id: str) -> None:
    """Load a session. Raises `RpcError` if the load is refused."""
    client.request("session/load", {"sessionId": session_id, "cwd": "/", "mcpServers": []})
