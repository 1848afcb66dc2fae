"""Each request of the client gets exactly one answer, and hanging up ends the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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

__all__ = ["Answers"]

_MALFORMED: list[Any] = [
    "text", ["list"], 5, {"at": "six"}, {"at": -1}, {"at": 99}, {"at": True}, {"title": 5}, {"title": "latest"}
]  # fmt: skip
"""What a client may not ask of a fork."""
_NONSENSE: list[tuple[str, Any]] = [
    ("session/load", {"sessionId": 5, "cwd": "/", "mcpServers": []}),
    ("session/load", {"sessionId": "no such/id", "cwd": "/", "mcpServers": []}),
    ("session/load", []),
    ("session/load", "text"),
    ("session/resume", {"sessionId": None}),
    ("session/list", {"cwd": 5, "cursor": 5}),
    ("session/list", {"cursor": "not a cursor"}),
    ("session/list", {"cwd": ["a"]}),
    ("session/fork", {"sessionId": ["a"]}),
    ("session/close", {"sessionId": {}}),
    ("session/delete", {"sessionId": 5}),
    ("session/prompt", {"sessionId": 5, "prompt": 5}),
    ("session/set_mode", {"sessionId": []}),
]
_ONE_SESSION = ("--misbehave", "repeats-ids", "--no-load", "--no-resume", "--no-fork")
_VERSION_2 = {"protocolVersion": 2, "info": {"name": "a client", "version": "2"}, "capabilities": {}}


class Answers(HostStage):
    """Each request gets exactly one answer, and hanging up ends the host."""

    def test_requests_with_params_of_the_wrong_type_get_one_answer_each(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            asked = [client.begin(method, params) for method, params in _NONSENSE]
            assert client.prompt(session_id, "say still here") == "still here"
            for request_id in asked:
                client.answer_to(request_id)
            client.request("session/list", {})
            assert [len(answers(client, request_id)) for request_id in asked] == [1] * len(asked)
            errors = [a["error"] for request_id in asked for a in answers(client, request_id) if "error" in a]
            assert all(type(error["code"]) is int and isinstance(error["message"], str) for error in errors)

    def test_a_fork_with_a_malformed_wish_is_refused(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            for wish in _MALFORMED:
                params = {"sessionId": session_id, "cwd": "/", "mcpServers": [], "_meta": {"asnap": wish}}
                asked = client.begin("session/fork", params)
                assert "error" in client.answer_to(asked), wish
                assert client.prompt(session_id, "say still here") == "still here"
                assert len(answers(client, asked)) == 1
                listed = client.request("session/list", {})["sessions"]
                assert [info["sessionId"] for info in listed] == [session_id], (
                    f"nothing is left of the fork: {wish}"
                )

    @pytest.mark.parametrize("habit", ["string-errors", "shapeless-errors", "empty-errors"])
    def test_malformed_errors_of_the_agent_reach_the_client_well_formed(self, tmp_path: Path, habit: str) -> None:
        with self.start(tmp_path, "--misbehave", habit) as client:
            asked = client.begin("session/load", {"sessionId": "never-was", "cwd": "/", "mcpServers": []})
            assert type(client.answer_to(asked)["error"]["code"]) is int
            session_id = client.new_session()
            failed = client.begin_prompt(session_id, "fail on purpose")
            error = client.answer_to(failed)["error"]
            assert type(error["code"]) is int
            assert isinstance(error["message"], str)
            assert client.prompt(session_id, "say still here") == "still here"
            assert len(answers(client, failed)) == 1

    def test_two_requests_in_flight_with_one_id_get_one_answer_each(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            client.answers["session/request_permission"] = lambda _params: None
            session_id = client.new_session()
            asked = client.begin_prompt(session_id, "ask")
            waiting = client.wait_for_request("session/request_permission")
            client.begin("_vendor/thing", {}, request_id=asked)
            assert client.answer_to(asked)["error"]["code"] == -32600
            client.respond(waiting, {"outcome": {"outcome": "cancelled"}})
            client.wait_for(lambda message: message.get("id") == asked and "result" in message)
            assert client.prompt(session_id, "say still here") == "still here"
            assert len(answers(client, asked)) == 2

    def test_sessions_to_which_the_agent_gives_one_id_are_all_usable_and_never_mixed(self, tmp_path: Path) -> None:
        new = {"cwd": "/", "mcpServers": []}
        with self.start(tmp_path, *_ONE_SESSION) as client:
            asked = [client.begin("session/new", new) for _ in range(2)]
            one, two = [client.answer_to(request_id)["result"]["sessionId"] for request_id in asked]
            assert client.prompt(one, "say one") == "one"
            assert client.prompt(two, "say two") == "two"
            running = client.begin_prompt(one, "stream 60 10")
            client.wait_for_text("part-002.")
            three, waiting = client.new_session(), client.begin_prompt(two, "say after it")
            client.notify("session/cancel", {"sessionId": three})
            assert client.answer_to(running)["result"] == {"stopReason": "end_turn"}
            assert client.answer_to(waiting)["result"] == {"stopReason": "end_turn"}
            fork = client.request("session/fork", {"sessionId": one, **new})["sessionId"]
            assert client.prompt(fork, "say four").endswith("four")
            client.request("session/close", {"sessionId": one})
            client.request("session/delete", {"sessionId": three})
            assert client.prompt(two, "say still here") == "still here"
            listed = [info["sessionId"] for info in client.request("session/list", {})["sessions"]]
            assert sorted(listed) == sorted([one, two, fork])
        parts = "".join(f"part-{number:03}." for number in range(60))
        first = ["say one", "one", "stream 60 10", parts]
        assert [message.text for message in stored(tmp_path, one).messages] == first
        assert [message.text for message in stored(tmp_path, fork).messages][:5] == [*first, "say four"]
        said = ["say two", "two", "say after it", "after it", "say still here", "still here"]
        assert [message.text for message in stored(tmp_path, two).messages] == said

    def test_a_permission_is_asked_for_the_session_that_prompted_among_those_with_one_id(
        self, tmp_path: Path
    ) -> None:
        with self.start(tmp_path, *_ONE_SESSION) as client:
            sessions = [client.new_session() for _ in range(3)]
            for session_id in sessions:
                client.prompt(session_id, "ask")
            assert [request["params"]["sessionId"] for request in client.asked] == sessions

    def test_a_stored_session_is_not_mixed_with_a_new_one_that_got_its_id(self, tmp_path: Path) -> None:
        flags = ("--misbehave", "counts-sessions")
        with self.start(tmp_path, *flags) as client:
            old = client.new_session()
            client.prompt(old, "say old")
        with self.start(tmp_path, *flags) as client:
            new = client.new_session()
            running = client.begin_prompt(new, "stream 60 10")
            client.wait_for_text("part-002.")
            result, updates = load(client, old)
            assert grade(result) == "context"
            assert words(updates) == [("user", "say old"), ("agent", "old")]
            client.answer_to(running)
            assert all(f"part-{number:03}." in client.said(new) for number in range(1, 60))
        assert "part-059." in stored(tmp_path, new).messages[1].text
        assert [message.text for message in stored(tmp_path, old).messages] == ["say old", "old"]

    def test_a_session_is_recorded_under_an_id_that_lists_do_not_hide(self, tmp_path: Path) -> None:
        with self.start(tmp_path, "--misbehave", "hidden-names") as client:
            session_id = client.new_session()
            assert not session_id.endswith("+memory")
            assert client.prompt(session_id, "say one") == "one"
        assert [message.text for message in stored(tmp_path, session_id).messages] == ["say one", "one"]

    def test_lines_that_are_no_messages_are_reported_a_few_times_only(self, tmp_path: Path) -> None:
        with self.start(tmp_path, "--misbehave", "floods-stdout") as client:
            assert client.prompt(client.new_session(), "say one") == "one"
        assert client.stderr.count("not ACP") <= 5

    def test_a_prompt_that_is_cancelled_while_it_waits_for_a_load_never_runs(self, tmp_path: Path) -> None:
        hold = tmp_path / "hold"
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        with self.start(tmp_path, "--hold", str(hold)) as client:
            hold.touch()
            params = {"sessionId": session_id, "cwd": "/", "mcpServers": []}
            loading = client.begin("session/load", params)
            waiting = client.begin_prompt(session_id, "say never")
            client.notify("session/cancel", {"sessionId": session_id})
            assert client.answer_to(waiting)["result"] == {"stopReason": "cancelled"}
            hold.unlink()
            assert "result" in client.answer_to(loading)
            assert client.prompt(session_id, "say two").endswith("two")
            assert "never" not in client.said(session_id)
            assert len(answers(client, waiting)) == 1

    def test_a_client_that_offers_version_2_gets_version_1_from_an_agent_that_speaks_both_and_is_recorded(
        self, tmp_path: Path
    ) -> None:
        with self.start(tmp_path, "--misbehave", "both-versions", initialize=False) as client:
            assert client.request("initialize", _VERSION_2)["protocolVersion"] == 1
            session_id = client.new_session()
            assert client.prompt(session_id, "say one") == "one"
        assert [message.text for message in stored(tmp_path, session_id).messages] == ["say one", "one"]

    @pytest.mark.parametrize("habit", ["version-2", "refuses-version-1"])
    def test_a_client_that_agrees_with_the_agent_on_version_2_is_told_that_nothing_is_recorded(
        self, tmp_path: Path, habit: str
    ) -> None:
        with self.start(tmp_path, "--misbehave", habit, initialize=False) as client:
            assert client.request("initialize", _VERSION_2)["protocolVersion"] == 2
            client.wait_for_stderr("NOT recorded")
            session_id = client.new_session()
            client.wait_for_text("not recorded")
            assert all(update["messageId"] for update in client.updates(session_id) if "content" in update)
            assert client.prompt(session_id, "say one") == "one"

    def test_an_unknown_method_is_answered_by_the_agent(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            asked = client.begin("_vendor/thing", {"b": 1})
            assert client.answer_to(asked)["error"]["code"] == -32601

    def test_notifications_are_never_answered(self, tmp_path: Path) -> None:
        with self.start(tmp_path) as client:
            session_id = client.new_session()
            mark = len(client.received)
            for method in ("session/cancel", "session/load", "session/list", "session/close", "_vendor/news"):
                client.notify(method, {"sessionId": "never-was", "cwd": "/", "mcpServers": []})
            fence = client.begin_prompt(session_id, "say fence")
            client.answer_to(fence)
            assert [m["id"] for _, m in client.received[mark:] if m and "method" not in m] == [fence]

    @linux
    def test_a_client_that_hangs_up_ends_host_and_agent(self, tmp_path: Path) -> None:
        with self.start(tmp_path, "--misbehave", "outlives-stdin") as client:
            client.begin_prompt(client.new_session(), "stream 100000 5")
            client.wait_for_text("part-002.")
            pids = descendants(client.process.pid)
            client.hang_up()
            assert client.exit_status() == 0
            wait_until(lambda: not any(is_alive(pid) for pid in pids), "the agent ends with the host")

    @linux
    def test_an_agent_does_not_outlive_a_killed_host(self, tmp_path: Path) -> None:
        with self.start(tmp_path, "--misbehave", "outlives-stdin") as client:
            client.begin_prompt(client.new_session(), "stream 100000 5")
            client.wait_for_text("part-002.")
            pids = descendants(client.process.pid)
            client.kill()
            wait_until(lambda: not any(is_alive(pid) for pid in pids), "the agent ends with the host")
