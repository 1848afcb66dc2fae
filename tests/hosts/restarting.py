"""For hosts that start the agent: the agent dies, and the client keeps its connection."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.acp_client import RpcError, allow
from tests.hosts.login import AUTH_REQUIRED, log_in, login_file
from tests.hosts.stage import (
    HostStage,
    answers,
    descendants,
    grade,
    is_alive,
    linux,
    load,
    stored,
    wait_until,
    words,
)

__all__ = ["Restarting"]

_UNABLE = ("--no-load", "--no-resume")


class Restarting(HostStage):
    """The agent dies, and the client keeps its connection."""

    @linux
    def test_the_interrupted_prompt_is_answered_before_the_agent_is_back(self, tmp_path: Path) -> None:
        hold = tmp_path / "hold"
        with self.start(tmp_path, *_UNABLE, "--hold", str(hold)) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say before")
            running = client.begin_prompt(session_id, "stream 400 5")
            client.wait_for_text("part-005.")
            hold.touch()
            self.kill_agent(client)
            error = client.answer_to(running)["error"]
            assert error["data"]["sessionId"] == session_id
            assert error["data"]["details"] == error["message"], "some clients show only this"
            hold.unlink()
            told = client.prompt(session_id, "echo-blocks")
            assert "before" in told
            assert "part-005." in told
            assert len(answers(client, running)) == 1

    def test_an_agent_that_dies_during_initialize_is_initialized_again(self, tmp_path: Path) -> None:
        flags = (*self.remembering(tmp_path), "--misbehave", "dies-at-first")
        with self.start(tmp_path, *flags, initialize=False) as client:
            assert client.initialize()["agentInfo"]["name"] == "scripted-agent"
            assert client.prompt(client.new_session(), "say one") == "one"

    def test_an_agent_that_dies_of_each_initialize_ends_in_one_clear_error(self, tmp_path: Path) -> None:
        flags = (*self.remembering(tmp_path), "--misbehave", "dies-at-first", "--misbehave", "dies-when-restarted")
        with self.start(tmp_path, *flags, initialize=False) as client:
            with pytest.raises(RpcError, match="the agent died"):
                client.initialize()
            assert client.exit_status() == 9

    @linux
    def test_a_prompt_that_never_reached_the_agent_is_not_reported_as_cut_off(self, tmp_path: Path) -> None:
        with self.start(tmp_path, *_UNABLE) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            agent = self.agent_pid(client)
            client.process.send_signal(signal.SIGSTOP)
            self.kill_agent(client)
            wait_until(lambda: not is_alive(agent), "the death of the agent")
            request_id = client.begin_prompt(session_id, "say never sent")
            client.process.send_signal(signal.SIGCONT)
            answer = client.answer_to(request_id)
            told = client.prompt(session_id, "echo-blocks")
            assert "cut off" not in told
            if "error" in answer:
                assert answer["error"]["data"]["asnap"]["sent"] is False
                assert "never sent" not in told
            else:  # the host noticed the death first and sent the prompt to the next process
                assert "never sent" in client.said(session_id)
        assert [m.text for m in stored(tmp_path, session_id).messages][2] == "say never sent"

    @linux
    @pytest.mark.parametrize("method", ["session/fork", "session/new", "session/load"])
    def test_a_request_that_meets_the_death_of_the_agent_is_answered_once_it_is_back(
        self, tmp_path: Path, method: str
    ) -> None:
        with self.start(tmp_path, *self.remembering(tmp_path)) as client:
            session_id, other = client.new_session(), client.new_session()
            client.prompt(session_id, "say one")
            client.prompt(other, "say two")
            client.request("session/close", {"sessionId": other})
            agent = self.agent_pid(client)
            client.process.send_signal(signal.SIGSTOP)
            self.kill_agent(client)
            wait_until(lambda: not is_alive(agent), "the death of the agent")
            named = {"session/fork": session_id, "session/load": other}.get(method, "")
            asked = client.begin(method, {"sessionId": named, "cwd": "/", "mcpServers": []})
            client.process.send_signal(signal.SIGCONT)
            assert client.answer_to(asked, timeout=30)
            assert client.prompt(session_id, "remember") == "earlier turns: 1; last prompt: say one"

    @linux
    @pytest.mark.parametrize("able", [_UNABLE, ()], ids=["no load", "load"])
    def test_a_session_begun_during_a_restart_may_get_the_id_that_another_one_had(
        self, tmp_path: Path, able: tuple[str, ...]
    ) -> None:
        hold = tmp_path / "hold"
        with self.start(tmp_path, *able, "--misbehave", "counts-sessions", "--hold", str(hold)) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            hold.touch()
            self.restart_agent(client)
            asked = [client.begin("session/new", {"cwd": "/", "mcpServers": []}) for _ in range(3)]
            hold.unlink()
            made = [client.answer_to(request_id)["result"]["sessionId"] for request_id in asked]
            assert len({session_id, *made}) == 4
            assert "Assistant: one" in client.prompt(session_id, "echo-blocks")
            for each in made:
                assert client.prompt(each, "say two") == "two"

    @linux
    def test_sessions_to_which_a_restarted_agent_gives_one_id_are_all_restored(self, tmp_path: Path) -> None:
        with self.start(tmp_path, *_UNABLE, "--misbehave", "repeats-ids") as client:
            one, two = client.new_session(), client.new_session()
            client.prompt(one, "say one")
            client.prompt(two, "say two")
            self.restart_agent(client)
            assert "Assistant: one" in client.prompt(one, "echo-blocks")
            assert "Assistant: two" in client.prompt(two, "echo-blocks")

    @linux
    def test_a_prompt_that_is_cancelled_while_the_agent_restarts_never_runs(self, tmp_path: Path) -> None:
        hold = tmp_path / "hold"
        with self.start(tmp_path, *_UNABLE, "--hold", str(hold)) as client:
            session_id = client.new_session()
            running = client.begin_prompt(session_id, "stream 400 5")
            client.wait_for_text("part-005.")
            hold.touch()
            self.kill_agent(client)
            client.answer_to(running)
            waiting = client.begin_prompt(session_id, "say never")
            client.notify("session/cancel", {"sessionId": session_id})
            assert client.answer_to(waiting)["result"] == {"stopReason": "cancelled"}
            hold.unlink()
            assert client.prompt(session_id, "say still here").endswith("still here")
            assert "never" not in client.said(session_id)
        assert "say never" in [message.text for message in stored(tmp_path, session_id).messages]

    @linux
    def test_the_death_of_an_agent_is_noticed_although_a_child_keeps_its_output_open(self, tmp_path: Path) -> None:
        with self.start(tmp_path, *_UNABLE) as client:
            session_id = client.new_session()
            running = client.begin_prompt(session_id, "leave-child\nslow-tool 60")
            client.wait_for_update("tool_call_update", status="in_progress")
            self.kill_agent(client)
            assert "error" in client.answer_to(running, timeout=20)
            assert client.prompt(session_id, "say still here").endswith("still here")

    @linux
    def test_a_stderr_that_cannot_be_written_costs_no_answer(self, tmp_path: Path) -> None:
        def full(command: Sequence[str]) -> Sequence[str]:
            return ["sh", "-c", f"exec {shlex.join(command)} 2>/dev/full"]

        with self.start(tmp_path, *_UNABLE, wrapped=full) as client:
            session_id = client.new_session()
            assert "error" in client.answer_to(client.begin_prompt(session_id, "crash 3"), timeout=20)
            assert client.prompt(session_id, "say still here", timeout=20).endswith("still here")

    def test_an_agent_that_closes_its_input_is_restarted(self, tmp_path: Path) -> None:
        flags = (*self.remembering(tmp_path), "--misbehave", "stops-reading")
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            assert client.prompt(session_id, "say one") == "one"
            error = client.answer_to(client.begin_prompt(session_id, "say lost"), timeout=20)["error"]
            assert error["data"]["asnap"]["sent"] is False
            wait_until(
                lambda: "result" in client.answer_to(client.begin_prompt(session_id, "remember")), "a restart"
            )
            assert client.said(session_id).endswith("earlier turns: 1; last prompt: say one")

    def test_the_death_of_an_agent_of_another_version_ends_the_connection(self, tmp_path: Path) -> None:
        flags = (*self.remembering(tmp_path), "--misbehave", "version-2")
        with self.start(tmp_path, *flags) as client:
            client.begin_prompt(client.new_session(), "crash 3")
            assert client.exit_status(timeout=20) == 9
            assert not [m for _, m in client.received if m and str(m.get("id")).startswith("asnap")]

    @linux
    def test_requests_around_the_death_of_the_agent_get_one_answer_each(self, tmp_path: Path) -> None:
        with self.start(tmp_path, *_UNABLE) as client:
            ids = [client.new_session() for _ in range(3)]
            asked = [client.begin_prompt(session_id, "crash 0") for session_id in ids]
            asked += [client.begin("session/list", {}) for _ in range(3)]
            asked += [client.begin("session/set_mode", {"sessionId": each, "modeId": "code"}) for each in ids]
            for request_id in asked:
                client.answer_to(request_id)
            for session_id in ids:
                assert client.prompt(session_id, "say still here").endswith("still here")
            assert [len(answers(client, request_id)) for request_id in asked] == [1] * len(asked)

    @linux
    def test_hanging_up_in_the_middle_of_a_restart_ends_host_and_agent(self, tmp_path: Path) -> None:
        hold = tmp_path / "hold"
        with self.start(tmp_path, *_UNABLE, "--hold", str(hold), "--misbehave", "outlives-stdin") as client:
            session_id = client.new_session()
            first = self.agent_pid(client)
            hold.touch()
            self.kill_agent(client)
            wait_until(lambda: self._agents(client) not in ([], [first]), "a restart")
            client.begin_prompt(session_id, "say never sent")
            pids = descendants(client.process.pid)
            client.hang_up()
            client.exit_status()
            wait_until(lambda: not any(is_alive(pid) for pid in pids), "the agent ends with the host")

    @linux
    def test_children_of_an_agent_do_not_outlive_a_killed_host(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            client.begin_prompt(client.new_session(), "leave-child\nslow-tool 60")
            client.wait_for_update("tool_call_update", status="in_progress")
            pids = descendants(client.process.pid)
            client.kill()
            wait_until(lambda: not any(is_alive(pid) for pid in pids), "the agent's children end with the host")

    def test_an_agent_that_crashes_on_load_is_restored_with_the_next_grade(self, tmp_path: Path) -> None:
        flags = (*self.remembering(tmp_path), "--no-resume", "--misbehave", "crash-on-load")
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        with self.start(tmp_path, *flags) as client:
            result, updates = load(client, session_id)
            assert grade(result) == "context"
            assert ("agent", "one") in words(updates)
            assert "Assistant: one" in client.prompt(session_id, "echo-blocks")

    @linux
    def test_a_crash_by_the_load_of_one_session_does_not_cost_another_its_native_memory(
        self, tmp_path: Path
    ) -> None:
        wrong = ("--misbehave", "crash-on-load-of-the-first", "--misbehave", "counts-sessions")
        with self.start(tmp_path, *self.remembering(tmp_path), "--no-resume", *wrong) as client:
            crashing, innocent = client.new_session(), client.new_session()
            client.prompt(crashing, "say one")
            client.prompt(innocent, "say two")
            self.restart_agent(client)
            assert client.prompt(innocent, "remember") == "earlier turns: 1; last prompt: say two"
            assert "Assistant: one" in client.prompt(crashing, "echo-blocks")

    @linux
    def test_the_sessions_of_a_restarted_agent_are_its_own_again(self, tmp_path: Path) -> None:
        with self.start(tmp_path, *self.remembering(tmp_path)) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            self.restart_agent(client)
            assert client.prompt(session_id, "remember") == "earlier turns: 1; last prompt: say one"
            listed = client.request("session/list", {})["sessions"]
            assert [info["sessionId"] for info in listed] == [session_id]

    @linux
    def test_a_tool_that_was_running_is_closed_for_the_client(self, tmp_path: Path) -> None:
        with self.start(tmp_path, *_UNABLE) as client:
            session_id = client.new_session()
            client.begin_prompt(session_id, "slow-tool 60")
            client.wait_for_update("tool_call_update", status="in_progress")
            mark = len(client.received)
            self.kill_agent(client)
            closing = client.wait_for_update("tool_call_update", since=mark)
            assert closing["status"] == "failed"
            assert "unknown" in str(closing["content"])

    @linux
    def test_an_agent_that_dies_while_it_waits_for_permission_leaves_a_live_connection(
        self, tmp_path: Path
    ) -> None:
        with self.start(tmp_path, *_UNABLE, "--misbehave", "dies-during-permission") as client:
            session_id = client.new_session()
            assert "error" in client.answer_to(client.begin_prompt(session_id, "ask"))
            _, updates = load(client, session_id)
            assert [u["status"] for u in updates if u["sessionUpdate"] == "tool_call"] == ["failed"]
            assert client.prompt(session_id, "say still here").endswith("still here")

    @linux
    def test_a_late_answer_to_a_dead_agent_permits_nothing_to_the_next(self, tmp_path: Path) -> None:
        with self.start(tmp_path, *_UNABLE) as client:
            client.answers["session/request_permission"] = lambda _params: None
            session_id = client.new_session()
            interrupted = client.begin_prompt(session_id, "ask")
            first = client.wait_for_request("session/request_permission")
            mark = len(client.received)
            self.restart_agent(client)
            client.answer_to(interrupted)
            running = client.begin_prompt(session_id, "ask")
            second = client.wait_for_request("session/request_permission", since=mark)
            client.respond(first, allow(first["params"]))
            client.respond(second, {"outcome": {"outcome": "cancelled"}})
            assert "result" in client.answer_to(running)
            assert client.said(session_id) == "It was not permitted."

    @linux
    def test_the_clients_own_login_is_repeated_for_a_restarted_agent(self, tmp_path: Path) -> None:
        flags = (*self.remembering(tmp_path), "--login", str(login_file(tmp_path)))
        with self.start(tmp_path, *flags) as client:
            log_in(client)
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            self.restart_agent(client)
            assert client.prompt(session_id, "say two") == "two"
        everything = b"".join(file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file())
        assert b"key-1" not in everything, "a login is never stored"

    @linux
    def test_a_login_that_is_not_accepted_any_more_is_asked_of_the_client(self, tmp_path: Path) -> None:
        flags = (*self.remembering(tmp_path), "--login", str(login_file(tmp_path)))
        with self.start(tmp_path, *flags) as client:
            log_in(client)
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            login_file(tmp_path, "key-2")
            self.restart_agent(client)
            for _ in range(2):
                with pytest.raises(RpcError) as refused:
                    client.prompt(session_id, "say two")
                assert refused.value.code == AUTH_REQUIRED
            assert [info["sessionId"] for info in client.request("session/list", {})["sessions"]] == [session_id]
            log_in(client, "key-2")
            assert client.prompt(session_id, "remember") == "earlier turns: 1; last prompt: say one"

    @linux
    def test_a_restarted_agent_that_refuses_is_asked_again_at_each_request(self, tmp_path: Path) -> None:
        refuse = tmp_path / "refuse"
        with self.start(tmp_path, *_UNABLE, "--refuse", str(refuse)) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            refuse.touch()
            self.restart_agent(client)
            for _ in range(2):
                with pytest.raises(RpcError, match="not today"):
                    client.prompt(session_id, "say two")
            assert words(load(client, session_id)[1]) == [("user", "say one"), ("agent", "one")]
            refuse.unlink()
            assert "Assistant: one" in client.prompt(session_id, "echo-blocks")
        assert stored(tmp_path, session_id).messages[0].text == "say one"

    @pytest.mark.parametrize("habit", ["dies-when-restarted", "refuses-when-restarted"])
    def test_an_agent_that_cannot_be_restarted_ends_in_one_clear_error(self, tmp_path: Path, habit: str) -> None:
        flags = (*self.remembering(tmp_path), "--misbehave", habit)
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            running = client.begin_prompt(session_id, "crash 3")
            assert "error" in client.answer_to(running)
            waiting = client.begin_prompt(session_id, "say never")
            assert "error" in client.answer_to(waiting)
            status = client.exit_status()
            assert status == 9, (status, client.stderr)
            assert session_id in client.stderr
