"""The scripted agent does what its manual says: other tests stand on it."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acp_agent.options import CAPABILITIES
from tests.acp_client import AGENT, Client, RpcError, reject

Json = dict[str, Any]


def agent(*flags: str | Path, **how: Any) -> Client:
    client = Client((*AGENT, *map(str, flags)), **how)
    client.initialize()
    return client


def load(client: Client, session_id: str, method: str = "session/load") -> Any:
    return client.request(method, {"sessionId": session_id, "cwd": "/", "mcpServers": []})


def recorded(state: Path, *prompts: str) -> str:
    """A session with these turns, in a state file, of an agent that is gone."""
    with agent("--state", state) as client:
        session = client.new_session()
        for prompt in prompts:
            client.prompt(session, prompt)
        return session


def killed(state: Path, prompt: str, seen: str) -> str:
    """A session whose agent was killed once an update of the kind *seen* had come."""
    with agent("--state", state) as client:
        session = client.new_session()
        client.begin_prompt(session, prompt)
        client.wait_for_update(seen)
        client.kill()
        return session


def replayed(state: Path, session: str, *flags: str) -> list[Json]:
    """What a new run of the agent replays before it answers the load."""
    with agent("--state", state, *flags) as client:
        mark = len(client.received)
        load(client, session)
        answered = next(i for i, (_, m) in enumerate(client.received) if i >= mark and m and "result" in m)
        return client.updates(since=mark)[: answered - mark]


def test_every_capability_is_advertised_unless_a_flag_removes_it() -> None:
    with Client(AGENT) as able, Client((*AGENT, *(f"--no-{name}" for name in CAPABILITIES))) as unable:
        offered = able.initialize()["agentCapabilities"]
        assert offered["loadSession"] is True
        assert set(offered["sessionCapabilities"]) == set(CAPABILITIES) - {"load"}
        refused = unable.initialize()["agentCapabilities"]
        assert refused["loadSession"] is False
        assert refused["sessionCapabilities"] == {}
        session = unable.new_session()
        for name in CAPABILITIES:
            with pytest.raises(RpcError) as caught:
                load(unable, session, f"session/{name}")
            assert caught.value.code == -32601


def test_turn_follows_the_prompts_directives_line_by_line() -> None:
    with agent() as client:
        session = client.new_session()
        said = client.prompt(session, "think hm\nplan\nsay hello\nstream 3\nand then?")
        assert said == "hellopart-000.part-001.part-002.You said: and then?"
        assert client.said(session, kind="agent_thought_chunk") == "hm"
        client.wait_for_update("plan")


def test_a_tool_goes_from_pending_to_completed_with_a_diff() -> None:
    with agent() as client:
        client.prompt(client.new_session(), "tool")
        calls = [update for update in client.updates() if "toolCallId" in update]
        assert [call["status"] for call in calls] == ["pending", "in_progress", "completed"]
        assert calls[0]["rawInput"]
        assert calls[-1]["rawOutput"]
        assert calls[-1]["content"][0]["type"] == "diff"


def test_tool_that_needs_permission_follows_the_answer() -> None:
    with agent() as client:
        session = client.new_session()
        client.prompt(session, "ask")
        client.wait_for_update("tool_call_update", status="completed")
        client.answers["session/request_permission"] = reject
        mark = len(client.received)
        assert client.prompt(session, "ask") == "It was not permitted."
        client.wait_for_update("tool_call_update", since=mark, status="failed")


def test_terminal_is_created_shown_read_and_released() -> None:
    answers = {
        "terminal/create": lambda _params: {"terminalId": "t1"},
        "terminal/wait_for_exit": lambda _params: {"exitCode": 0},
        "terminal/output": lambda _params: {"output": "hi\n", "truncated": False},
        "terminal/release": lambda _params: {},
    }
    with agent(answers=answers) as client:
        client.prompt(client.new_session(), "terminal echo hi")
        assert [request["method"] for request in client.asked] == list(answers)
        client.wait_for_update("tool_call_update", content=[{"type": "terminal", "terminalId": "t1"}])


def test_client_can_be_sent_any_request_or_notification() -> None:
    with agent(answers={"_x/ping": lambda params: {"got": params["n"]}}) as client:
        session = client.new_session()
        assert json.loads(client.prompt(session, 'call _x/ping {"n": 1}')) == {"got": 1}
        client.prompt(session, 'update {"sessionUpdate": "weather", "sunny": true}')
        client.wait_for_update("weather", sunny=True)


@pytest.mark.parametrize("prompt", ["stream 1000 20", "slow-tool 60", "ask"])
def test_a_cancelled_turn_ends_as_cancelled(prompt: str) -> None:
    with agent(answers={"session/request_permission": lambda _params: None}) as client:
        session = client.new_session()
        mark = len(client.received)
        turn = client.begin_prompt(session, prompt)
        client.wait_for(lambda message: "method" in message, since=mark)
        client.notify("session/cancel", {"sessionId": session})
        assert client.answer_to(turn)["result"] == {"stopReason": "cancelled"}


def test_turn_can_stop_fail_or_return_nonsense() -> None:
    with agent() as client:
        session = client.new_session()
        assert client.answer_to(client.begin_prompt(session, "stop refusal"))["result"]["stopReason"] == "refusal"
        assert client.answer_to(client.begin_prompt(session, "fail"))["error"]["code"] == -32603
        assert client.answer_to(client.begin_prompt(session, "stream many"))["error"]["code"] == -32603


def test_agent_repeats_its_context_and_ignores_directives_in_a_note() -> None:
    with agent() as client:
        session = client.new_session()
        blocks = [{"type": "text", "text": "<note>say no</note>"}, {"type": "text", "text": "echo-blocks"}]
        client.request("session/prompt", {"sessionId": session, "prompt": blocks})
        assert json.loads(client.said(session)) == blocks
        assert client.prompt(session, "remember") == "earlier turns: 1; last prompt: echo-blocks"


def test_a_stored_session_is_replayed_and_remembered_by_the_next_run(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    session = recorded(state, "say one", "tool")
    with agent("--state", state) as client:
        with pytest.raises(RpcError) as caught:
            client.prompt(session, "remember")
        assert (caught.value.code, caught.value.data) == (-32002, {"sessionId": session})
        assert load(client, session)["modes"]["currentModeId"] == "ask"
        assert client.said(kind="user_message_chunk") == "say onetool"
        client.wait_for_update("tool_call", status="completed")
        assert client.prompt(session, "remember") == "earlier turns: 2; last prompt: tool"


def test_list_pages_fork_copies_close_closes_and_delete_deletes() -> None:
    with agent() as client:
        sessions = [client.new_session() for _ in range(11)]
        first = client.request("session/list", {"cwd": "/"})
        second = client.request("session/list", {"cwd": "/", "cursor": first["nextCursor"]})
        assert [info["sessionId"] for info in first["sessions"] + second["sessions"]] == sessions
        client.prompt(sessions[0], "say hi")
        fork = load(client, sessions[0], "session/fork")["sessionId"]
        assert client.prompt(fork, "remember").startswith("earlier turns: 1;")
        client.request("session/close", {"sessionId": fork})
        with pytest.raises(RpcError):
            client.prompt(fork, "say hi")
        load(client, fork, "session/resume")
        client.request("session/delete", {"sessionId": fork})
        with pytest.raises(RpcError):
            load(client, fork)


def test_mode_and_model_can_be_set_and_are_lost_on_restart(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    with agent("--state", state) as client:
        session = client.new_session()
        client.request("session/set_mode", {"sessionId": session, "modeId": "code"})
        chosen = {"sessionId": session, "configId": "model", "value": "large"}
        assert client.request("session/set_config_option", chosen)["configOptions"][0]["currentValue"] == "large"
    with agent("--state", state) as client:
        assert load(client, session)["configOptions"][0]["currentValue"] == "small"


def test_crash_happens_after_the_chunks_and_loses_them_but_not_the_prompt(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    with agent("--state", state) as client:
        session = client.new_session()
        client.begin_prompt(session, "crash 2")
        assert client.exit_status() == -signal.SIGKILL
        assert client.said() == "part-000.part-001."
    kinds = [update["sessionUpdate"] for update in replayed(state, session)]
    assert kinds == ["user_message_chunk"]


def test_agent_exits_at_stdin_eof_in_mid_turn() -> None:
    with agent() as client:
        client.begin_prompt(client.new_session(), "slow-tool 60")
        client.wait_for_update("tool_call_update", status="in_progress")
        client.hang_up()
        assert client.exit_status() == 0


# Misbehaviour ---------------------------------------------------------------------------------------------


def test_blank_load_replays_nothing_and_remembers_nothing(tmp_path: Path) -> None:
    session = recorded(tmp_path / "s", "say one")
    with agent("--state", tmp_path / "s", "--misbehave", "blank-load") as client:
        load(client, session)
        assert client.prompt(session, "remember").startswith("earlier turns: 0;")
        assert client.said(kind="user_message_chunk") == ""


def test_partial_load_omits_the_newest_finished_turn(tmp_path: Path) -> None:
    session = recorded(tmp_path / "s", "say one", "say two")
    updates = replayed(tmp_path / "s", session, "--misbehave", "partial-load")
    assert [update["content"]["text"] for update in updates] == ["say one", "one"]


def test_late_replay_arrives_after_the_response(tmp_path: Path) -> None:
    session = recorded(tmp_path / "s", "say one")
    assert replayed(tmp_path / "s", session, "--misbehave", "late-replay") == []
    with agent("--state", tmp_path / "s", "--misbehave", "late-replay") as client:
        load(client, session)
        client.wait_for_text("one")


def test_replayed_tools_can_have_wrong_ids_and_outcomes(tmp_path: Path) -> None:
    session = killed(tmp_path / "s", "slow-tool 60", "tool_call_update")
    honest, lying = (
        replayed(tmp_path / "s", session, *flags)[-1]
        for flags in ((), ("--misbehave", "changed-tool-ids", "--misbehave", "false-completed"))
    )
    assert (honest["toolCallId"], honest["status"]) == ("call-1", "in_progress")
    assert (lying["toolCallId"], lying["status"]) == ("again:call-1", "completed")


def test_echo_flag_repeats_prompts() -> None:
    with agent("--misbehave", "echo-prompts") as client:
        client.prompt(client.new_session(), "say hi")
        assert client.said(kind="user_message_chunk") == "say hi"


def test_load_can_hang_or_crash(tmp_path: Path) -> None:
    session = recorded(tmp_path / "s", "say one")
    with agent("--state", tmp_path / "s", "--misbehave", "load-hangs") as client:
        waiting = client.begin("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        client.new_session()  # answered, so the load was read before it
        assert not any(message and message.get("id") == waiting for _, message in client.received)
    with agent("--state", tmp_path / "s", "--misbehave", "crash-on-load") as client:
        client.begin("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        assert client.exit_status() == -signal.SIGKILL


def test_garbage_and_an_endless_line_appear_between_messages() -> None:
    with agent("--misbehave", "garbage-stdout", "--misbehave", "long-line-no-newline") as client:
        said = client.prompt(client.new_session(), "say hi")
        assert said == "x" * (1 << 20) + "hi"
        assert sum(message is None for _, message in client.received) == 3


def test_agent_can_die_while_a_permission_request_is_open() -> None:
    with agent("--misbehave", "dies-during-permission") as client:
        client.begin_prompt(client.new_session(), "ask")
        client.wait_for_request("session/request_permission")
        assert client.exit_status() == -signal.SIGKILL


def test_fake_load_is_not_advertised_and_always_succeeds() -> None:
    with Client((*AGENT, "--misbehave", "fake-load")) as client:
        assert client.initialize()["agentCapabilities"]["loadSession"] is False
        assert load(client, "nobody") == {}


def test_resume_can_replay_against_the_protocol(tmp_path: Path) -> None:
    session = recorded(tmp_path / "s", "say one")
    for flags, said in (((), ""), (("--misbehave", "resume-replays"), "one")):
        with agent("--state", tmp_path / "s", *flags) as client:
            load(client, session, "session/resume")
            assert client.said() == said


def test_acknowledged_answer_can_be_forgotten(tmp_path: Path) -> None:
    session = recorded(tmp_path / "s", "say one", "say two")
    updates = replayed(tmp_path / "s", session, "--misbehave", "acknowledged-loss")
    assert [update["content"]["text"] for update in updates] == ["say one", "one", "say two"]


@pytest.mark.parametrize("flags", [["--wrong"], ["--misbehave", "well"], ["--no-prompt"]])
def test_wrong_flag_is_answered_with_all_flags(flags: list[str]) -> None:
    done = subprocess.run([*AGENT, *flags], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "--state" in done.stderr
    assert "--misbehave blank-load" in done.stderr
