"""Agents written like the SDK's examples, as real processes, killed for real: the table of the proxy's promises."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acp.proxied import history, words
from tests.acp_client import Client, RpcError

Json = dict[str, Any]


def started(store: Path, agent: str) -> Client:
    command = (sys.executable, "-m", f"tests.acp_sdk.agents.{agent}")
    return Client(command, env={"ASNAP_STORE": str(store)})


def joined(updates: list[Json]) -> list[tuple[str, str]]:
    """Who said what, message by message."""
    said: list[tuple[str, str]] = []
    for role, text in words(updates):
        if said and said[-1][0] == role:
            said[-1] = (role, said[-1][1] + text)
        else:
            said.append((role, text))
    return said


TALKERS = ["echo", "remembering"]


@pytest.mark.parametrize("agent", TALKERS)
def test_kill_while_the_answer_is_read_loses_nothing(tmp_path: Path, agent: str) -> None:
    with started(tmp_path, agent) as client:
        client.initialize()
        session_id = client.new_session()
        seen = [("user", "one two"), ("agent", client.prompt(session_id, "one two"))]
        client.kill()
    with started(tmp_path, agent) as client:
        client.initialize()
        result, updates = history(client, session_id)
        assert joined(updates) == seen
        heard = client.prompt(session_id, "three")
        assert heard.count("one two") == (2 if agent == "echo" else 1)  # the echo is told both sides of it
        assert "three <restoration-note" in heard if agent == "echo" else heard.endswith("three ")
        assert result["_meta"]["asnap"]["restored"]["grade"] == ("context" if agent == "echo" else "native-load")


@pytest.mark.parametrize("agent", TALKERS)
def test_kill_in_mid_stream_replays_what_was_seen_and_tells_the_model_once(tmp_path: Path, agent: str) -> None:
    with started(tmp_path, agent) as client:
        client.initialize()
        session_id = client.new_session()
        client.prompt(session_id, "one")
        client.begin_prompt(session_id, "alpha beta gamma (wait) delta")
        client.wait_for_text("gamma")
        client.kill()
        seen = client.said(session_id)
    with started(tmp_path, agent) as client:
        client.initialize()
        _, updates = history(client, session_id)
        assert "".join(text for role, text in words(updates) if role == "agent") == seen
        assert [text for role, text in words(updates) if role == "user"] == ["one", "alpha beta gamma (wait) delta"]
        told = client.prompt(session_id, "next")
        assert told.count("alpha beta gamma") == 2  # the prompt, and as much of its answer as there was
        assert client.prompt(session_id, "last").count("alpha beta gamma") == (0 if agent == "echo" else 2)


def test_session_killed_before_its_first_prompt_is_listed(tmp_path: Path) -> None:
    with started(tmp_path, "echo") as client:
        client.initialize()
        session_id = client.new_session()
        client.kill()
    with started(tmp_path, "echo") as client:
        client.initialize()
        assert [info["sessionId"] for info in client.request("session/list", {})["sessions"]] == [session_id]
        assert history(client, session_id)[1] == []
        assert client.prompt(session_id, "one") == "one "


def test_kill_during_a_permission_request_shows_the_call_as_failed(tmp_path: Path) -> None:
    with started(tmp_path, "quick_start") as client:
        client.answers["session/request_permission"] = lambda _params: None
        client.initialize()
        session_id = client.new_session()
        client.begin_prompt(session_id, "use a tool")
        client.wait_for_request("session/request_permission")
        client.kill()
    with started(tmp_path, "quick_start") as client:
        client.initialize()
        _, updates = history(client, session_id)
        calls = [update for update in updates if update["sessionUpdate"] == "tool_call"]
        assert [(call["title"], call["kind"], call["status"]) for call in calls] == [
            ("Write a file", "edit", "failed")
        ]
        assert "outcome unknown" in client.prompt(session_id, "and now?")


def test_finished_call_keeps_its_name_kind_and_outcome(tmp_path: Path) -> None:
    with started(tmp_path, "quick_start") as client:
        client.initialize()
        session_id = client.new_session()
        client.prompt(session_id, "use a tool")
        client.kill()
    with started(tmp_path, "quick_start") as client:
        client.initialize()
        calls = [update for update in history(client, session_id)[1] if update["sessionUpdate"] == "tool_call"]
        assert [(call["title"], call["kind"], call["status"]) for call in calls] == [
            ("Write a file", "edit", "completed")
        ]


def test_two_sessions_are_restored_separately(tmp_path: Path) -> None:
    with started(tmp_path, "quick_start") as client:
        client.initialize()
        one, two = client.new_session(), client.new_session()
        client.prompt(one, "first")
        client.prompt(two, "second")
        client.request("session/set_mode", {"sessionId": two, "modeId": "code"})
        client.kill()
    with started(tmp_path, "quick_start") as client:
        client.initialize()
        third = client.new_session()
        assert third not in (one, two)
        assert joined(history(client, two)[1]) == [("user", "second"), ("agent", "[ask] you said: second")]
        assert joined(history(client, one)[1]) == [("user", "first"), ("agent", "[ask] you said: first")]
        assert client.prompt(two, "go on").startswith("[code] you said: go on")
        assert client.prompt(third, "new") == "[ask] you said: new"


def test_every_load_after_repeated_kills_shows_everything(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []
    session_id = ""
    for number in range(3):
        with started(tmp_path, "remembering") as client:
            client.initialize()
            if session_id:
                assert joined(history(client, session_id)[1]) == seen
                assert joined(history(client, session_id)[1]) == seen
            else:
                session_id = client.new_session()
            seen += [("user", f"turn {number}"), ("agent", client.prompt(session_id, f"turn {number}"))]
            client.kill()
    assert seen[-1] == ("agent", "turn 0 turn 1 turn 2 ")


def test_fork_list_and_delete_survive_a_restart(tmp_path: Path) -> None:
    with started(tmp_path, "remembering") as client:
        client.initialize()
        session_id = client.new_session()
        client.prompt(session_id, "one")
        client.kill()
    with started(tmp_path, "remembering") as client:
        client.initialize()
        params = {"sessionId": session_id, "cwd": "/", "mcpServers": []}
        fork = client.request("session/fork", params)["sessionId"]
        client.kill()
    with started(tmp_path, "remembering") as client:
        client.initialize()
        listed = {info["sessionId"] for info in client.request("session/list", {})["sessions"]}
        assert listed == {session_id, fork}
        assert joined(history(client, fork)[1]) == [("user", "one"), ("agent", "one ")]
        assert client.prompt(fork, "two") == "one two "
        assert client.request("session/delete", {"sessionId": fork}) == {}
        with pytest.raises(RpcError) as caught:
            history_or_error(client, fork)
        assert (caught.value.code, caught.value.data["sessionId"]) == (-32002, fork)


def history_or_error(client: Client, session_id: str) -> Any:
    return client.request("session/load", {"sessionId": session_id, "cwd": "/", "mcpServers": []})


def test_agent_exits_when_the_client_hangs_up_and_leaves_nothing_to_recover(tmp_path: Path) -> None:
    with started(tmp_path, "echo") as client:
        client.initialize()
        session_id = client.new_session()
        client.prompt(session_id, "one")
        client.hang_up()
        assert client.exit_status() == 0
        assert client.stderr == ""
    with started(tmp_path, "echo") as client:
        client.initialize()
        assert joined(history(client, session_id)[1]) == [("user", "one"), ("agent", "one ")]
        assert client.stderr == ""
