"""The proxy between a real client process side and a real agent process, killed for real."""

from __future__ import annotations

import gzip
import os
import signal
import sys
from pathlib import Path

import pytest

from tests import forkserver
from tests.acp.proxied import history, proxied, words
from tests.acp_client import AGENT, Client, RpcError


def agent_pid(client: Client) -> int:
    children = Path(f"/proc/{client.process.pid}/task/{client.process.pid}/children").read_text().split()
    return int(children[0])


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds the agent through /proc")


class TestRelay:
    def test_unknown_messages_are_forwarded_byte_for_byte(self, tmp_path: Path) -> None:
        with proxied(tmp_path) as client:
            client.initialize()
            line = b'{"id":"x-1" , "jsonrpc":"2.0","method":"_vendor/thing","params":{"b":1,"a":[ ]}}\n'
            client.write(line)
            answer = client.wait_for(lambda m: m.get("id") == "x-1")
            assert answer["error"]["code"] == -32601

    def test_initialize_result_is_the_agents_plus_our_capabilities(self, tmp_path: Path) -> None:
        flags = ("--no-load", "--no-resume", "--no-list", "--no-fork", "--no-close", "--no-delete")
        with Client((*AGENT, *flags)) as bare:
            plain = bare.initialize()
        with proxied(tmp_path, *flags) as client:
            offered = client.initialize()
        assert offered["agentCapabilities"]["loadSession"] is True
        assert {"list", "resume", "fork", "close", "delete"} <= offered["agentCapabilities"][
            "sessionCapabilities"
        ].keys()
        del offered["agentCapabilities"], plain["agentCapabilities"]
        assert offered == plain

    def test_message_of_many_megabytes_is_forwarded(self, tmp_path: Path) -> None:
        with proxied(tmp_path) as client:
            client.initialize()
            session_id = client.new_session()
            text = "say " + "x" * 5_000_000
            assert client.prompt(session_id, text) == text[4:]

    def test_messages_of_the_agent_beyond_the_limit_are_left_out_and_the_connection_lives(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ASNAP_MAX_MESSAGE_BYTES", str(1 << 20))
        with proxied(tmp_path) as client:
            client.initialize()
            session_id = client.new_session()
            assert len(client.prompt(session_id, f"long {1_000_000}")) == 1_000_000
            told = client.prompt(session_id, f"say before\nlong {3 << 20}\nsay after")
            assert told.startswith("before")
            assert "more than 1 MB" in told
            assert told.endswith("after")
            client.wait_for_stderr("more than 1 MB")
            with pytest.raises(RpcError, match="more than 1 MB"):
                client.prompt(session_id, f"long-answer {3 << 20}")
            client.answers["fs/write_text_file"] = lambda params: {"keys": sorted(params)}
            assert client.prompt(session_id, f"long-request {3 << 20}") == '{"keys": ["sessionId"]}'
            with pytest.raises(RpcError, match="the client sent a message of more than 1 MB"):
                client.prompt(session_id, f"say {'x' * (3 << 20)}")
            assert client.prompt(session_id, "say still here") == "still here"
        with proxied(tmp_path) as client:
            client.initialize()
            assert "more than 1 MB" in str(words(history(client, session_id)[1])), "the record says so, too"

    def test_require_refuses_an_agent_whose_version_of_the_protocol_is_not_recorded(self, tmp_path: Path) -> None:
        with proxied(tmp_path, "--misbehave", "version-2", run=("--require", "context")) as client:
            with pytest.raises(RpcError, match="version 2 of ACP") as refused:
                client.request("initialize", {"protocolVersion": 2, "info": {"name": "c", "version": "1"}})
            assert refused.value.code == -32022
            assert client.exit_status() == 9
            assert "--require" in client.stderr

    def test_doctor_names_an_agent_that_was_not_recorded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        doctor = [sys.executable, "-m", "snapshot_plugin", "doctor", "--store", str(tmp_path / "store")]
        with proxied(tmp_path / "store", "--misbehave", "version-2") as client:
            client.initialize()
            client.new_session()
            client.wait_for_text("not recorded")
        told = forkserver.run(doctor, timeout=60).stdout.decode()
        assert "acp_agent --misbehave version-2 were not recorded" in told

    def test_the_option_learn_of_earlier_releases_is_ignored_with_a_warning(self, tmp_path: Path) -> None:
        with proxied(tmp_path, run=("--learn",)) as client:
            client.initialize()
            assert client.prompt(client.new_session(), "say one") == "one"
            assert "--learn does nothing any more" in client.stderr

    def test_session_that_cannot_be_recorded_continues_with_a_warning(self, tmp_path: Path) -> None:
        with proxied(tmp_path) as client:
            client.initialize()
            recorded = client.new_session()
            (tmp_path / "sessions").rename(tmp_path / "moved")
            (tmp_path / "sessions").write_text("no directory")
            session_id = client.new_session()
            client.wait_for_stderr(f"{session_id} is NOT recorded")
            assert client.prompt(session_id, "say hello") == "hello"
            assert client.prompt(recorded, "say on") == "on"
        assert (tmp_path / "sessions").read_text() == "no directory"

    def test_agents_session_id_writes_no_colours_and_no_lines_of_its_own_to_stderr(self, tmp_path: Path) -> None:
        (tmp_path / "sessions").write_text("no directory")  # so that the proxy has to name the session
        with proxied(tmp_path, "--misbehave", "control-names") as client:
            client.initialize()
            session_id = client.new_session()
            assert session_id.isprintable(), "the client gets an id of ours for one that no terminal should get"
            assert client.prompt(session_id, "say hello") == "hello"
            client.wait_for_stderr("is NOT recorded")
        assert all(char.isprintable() or char == "\n" for char in client.stderr)

    def test_invalid_output_of_the_agent_never_reaches_the_client(self, tmp_path: Path) -> None:
        with proxied(tmp_path, "--misbehave", "garbage-stdout") as client:
            client.initialize()
            assert client.prompt(client.new_session(), "say hello") == "hello"
            assert all(message is not None for _, message in client.received)

    def test_proxy_exits_when_the_client_hangs_up(self, tmp_path: Path) -> None:
        with proxied(tmp_path) as client:
            client.initialize()
            client.hang_up()
            assert client.exit_status() == 0

    @linux
    def test_signal_is_forwarded_to_the_agent_and_ends_both(self, tmp_path: Path) -> None:
        with proxied(tmp_path) as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say kept")
            agent = agent_pid(client)
            client.process.send_signal(signal.SIGTERM)
            assert client.exit_status() == 128 + signal.SIGTERM
            assert not Path(f"/proc/{agent}").exists()
        with proxied(tmp_path) as client:
            client.initialize()
            assert ("agent", "kept") in words(history(client, session_id)[1])

    @pytest.mark.requirement("ORBIT-SECURITY-ENVIRONMENT", "ONERING-CARE-CREDENTIALS")
    def test_environment_values_of_servers_never_reach_the_disk(self, tmp_path: Path) -> None:
        server = {
            "name": "db",
            "command": "x",
            "args": ["--token", "ARGSECRET"],
            "env": [{"name": "K", "value": "ENVSECRET"}],
        }
        with proxied(tmp_path) as client:
            client.initialize()
            session_id = client.request("session/new", {"cwd": "/", "mcpServers": [server]})["sessionId"]
            client.prompt(session_id, "say hi")
            spooled = b"".join(file.read_bytes() for file in tmp_path.rglob("live*"))
            assert b'"db"' in spooled, "the spool holds the session, a moment before the snapshot"
            assert b"SECRET" not in spooled
            client.hang_up()
            client.exit_status()
        everything = b"".join(
            gzip.decompress(file.read_bytes()) if file.name.endswith(".gz") else file.read_bytes()
            for file in tmp_path.rglob("*")
            if file.is_file()
        )
        assert b"db" in everything
        assert b"SECRET" not in everything


class TestKilled:
    @pytest.mark.requirement("ORBIT-USE-CRASH", "ORBIT-USE-LITTLE-LOST")
    @pytest.mark.parametrize("flags", [("--no-load", "--no-resume"), ()], ids=["no load", "with load"])
    def test_every_chunk_the_client_saw_survives_kill_9_of_everything(
        self, tmp_path: Path, flags: tuple[str, ...]
    ) -> None:
        state = ("--state", str(tmp_path / "state.json"), *flags)
        with proxied(tmp_path / "store", *state) as client:
            client.initialize()
            session_id = client.new_session()
            assert client.prompt(session_id, "say first answer") == "first answer"
            client.begin_prompt(session_id, "stream 400 2")
            client.wait_for(lambda m: "part-012." in str(m))
            pid = agent_pid(client) if sys.platform.startswith("linux") else None
            client.kill()
            if pid is not None:
                with_agent_too(pid)
            seen = client.said(session_id).removeprefix("first answer")
        assert seen.startswith("part-000.")
        with proxied(tmp_path / "store", *state) as client:
            client.initialize()
            result, updates = history(client, session_id)
            spoken = words(updates)
            assert spoken[:3] == [("user", "say first answer"), ("agent", "first answer"), ("user", "stream 400 2")]
            assert spoken[3][1].startswith(seen)
            assert result["_meta"]["asnap"]["restored"]["grade"] in ("native-load", "native-resume", "context")
            told = client.prompt(session_id, "echo-blocks")
            assert seen in told, "the model is told what the user saw and it forgot"
            assert "restoration-note" in told
            assert "restoration-note" not in client.prompt(session_id, "echo-blocks"), "and it is told once"

    @pytest.mark.requirement("ORBIT-USE-AGENT-CRASH")
    @linux
    def test_client_keeps_its_connection_when_the_agent_dies(self, tmp_path: Path) -> None:
        with proxied(tmp_path / "store", "--no-load", "--no-resume") as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say before")
            running = client.begin_prompt(session_id, "stream 400 2")
            client.wait_for(lambda m: "part-005." in str(m))
            os.kill(agent_pid(client), signal.SIGKILL)
            answer = client.answer_to(running)
            assert answer["error"]["data"]["asnap"]["interrupted"] is True
            told = client.prompt(session_id, "echo-blocks")
            assert "before" in told
            assert "part-005." in told
            assert not any(b"_asnap/" in incoming.line for incoming in client.received), "editors do not know it"

    @linux
    def test_client_that_asks_for_it_gets_the_grade_of_the_restore(self, tmp_path: Path) -> None:
        with proxied(tmp_path / "store", "--no-load", "--no-resume") as client:
            client.initialize(_meta={"asnap": {"restored": True}})
            session_id = client.new_session()
            client.prompt(session_id, "say before")
            os.kill(agent_pid(client), signal.SIGKILL)
            told = client.wait_for(lambda m: m.get("method") == "_asnap/restored")["params"]
            assert (told["sessionId"], told["grade"], told["messages"]) == (session_id, "context", 2)

    @linux
    def test_interrupted_tool_is_shown_as_failed_with_an_unknown_outcome(self, tmp_path: Path) -> None:
        with proxied(tmp_path / "store", "--no-load", "--no-resume") as client:
            client.initialize()
            session_id = client.new_session()
            client.begin_prompt(session_id, "slow-tool 60")
            client.wait_for(lambda m: "in_progress" in str(m))
            mark = len(client.received)
            os.kill(agent_pid(client), signal.SIGKILL)
            closing = client.wait_for(lambda m: "tool_call_update" in str(m), since=mark)
            assert closing["params"]["update"]["status"] == "failed"
            _, updates = history(client, session_id)
            calls = [u for u in updates if u["sessionUpdate"] == "tool_call"]
            assert [call["status"] for call in calls] == ["failed"]
            assert "unknown" in str(calls[0]["content"])

    def test_agent_death_during_a_permission_request_leaves_a_failed_call_and_a_live_connection(
        self, tmp_path: Path
    ) -> None:
        flags = ("--no-load", "--no-resume", "--misbehave", "dies-during-permission")
        with proxied(tmp_path, *flags) as client:
            client.initialize()
            session_id = client.new_session()
            answer = client.answer_to(client.begin_prompt(session_id, "ask"))
            assert answer["error"]["data"]["asnap"]["interrupted"] is True
            _, updates = history(client, session_id)
            assert [u["status"] for u in updates if u["sessionUpdate"] == "tool_call"] == ["failed"]
            assert client.prompt(session_id, "say still here").endswith("still here")

    def test_number_beyond_json_loses_no_message(self, tmp_path: Path) -> None:
        with proxied(tmp_path) as client:
            client.initialize()
            session_id = client.new_session()
            block = b'{"type":"text","text":"say uno\\nslow-tool 60","annotations":{"priority":1e999}}'
            params = b'{"sessionId":"%s","prompt":[%s]}' % (session_id.encode(), block)
            client.write(b'{"jsonrpc":"2.0","id":"p","method":"session/prompt","params":%s}\n' % params)
            client.wait_for(lambda m: "uno" in str(m.get("params", {}).get("update")))
            client.kill()
        with proxied(tmp_path) as client:
            client.initialize()
            assert [who for who, _ in words(history(client, session_id)[1])] == ["user", "agent"]

    def test_an_answer_received_as_finished_is_on_disk(self, tmp_path: Path) -> None:
        flags = ("--state", str(tmp_path / "state.json"), "--misbehave", "acknowledged-loss")
        with proxied(tmp_path / "store", *flags) as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say kept for ever")
            client.kill()
        with proxied(tmp_path / "store", *flags) as client:
            client.initialize()
            result, updates = history(client, session_id)
            assert ("agent", "kept for ever") in words(updates)
            assert result["_meta"]["asnap"]["restored"]["tried"] == ["load: partial, 1 message told"]


def with_agent_too(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


MISBEHAVIOURS = {
    "blank-load": "context",
    "partial-load": "native-load",
    "late-replay": "native-load",
    "changed-tool-ids": "native-load",
    "false-completed": "native-load",
    "echo-prompts": "native-load",
    "load-hangs": "native-resume",
    "garbage-stdout": "native-load",
    "long-line-no-newline": "native-load",
}


class TestRestore:
    @pytest.mark.requirement("ORBIT-TEST-COMPATIBILITY")
    @pytest.mark.parametrize(("habit", "grade"), MISBEHAVIOURS.items())
    def test_misbehaving_agent_is_detected_and_graded_accordingly(
        self, tmp_path: Path, habit: str, grade: str
    ) -> None:
        flags = ("--state", str(tmp_path / "state.json"), "--misbehave", habit)
        with proxied(tmp_path / "store", *flags) as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            client.prompt(session_id, "tool")
            client.prompt(session_id, "say two")
        patience = ("--patience", "2") if habit == "load-hangs" else ()
        with proxied(tmp_path / "store", *flags, run=patience) as client:
            client.initialize()
            result, updates = history(client, session_id)
            assert result["_meta"]["asnap"]["restored"]["grade"] == grade
            assert words(updates)[0] == ("user", "say one")
            assert words(updates)[-1][1].endswith("two")
            assert [w for w in words(updates) if w == ("user", "say one")] == [("user", "say one")], "shown once"
            assert [u["status"] for u in updates if u["sessionUpdate"] == "tool_call"] == ["completed"]
            mark = len(client.received)
            assert client.prompt(session_id, "say three").endswith("three")
            later = client.updates(session_id, since=mark)
            said = [text for who, text in words(later) if who == "agent"]
            assert said[-1] == "three", "the turn is there"
            assert not any("two" in text for text in said), "and nothing of the replay leaks into it"

    @pytest.mark.requirement("ORBIT-PROTOCOL-FALLBACK")
    def test_unadvertised_load_that_succeeds_is_not_trusted(self, tmp_path: Path) -> None:
        flags = ("--no-load", "--no-resume", "--misbehave", "fake-load")
        with proxied(tmp_path, *flags) as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        with proxied(tmp_path, *flags) as client:
            client.initialize()
            result, updates = history(client, session_id)
            assert result["_meta"]["asnap"]["restored"]["grade"] == "context"
            assert ("agent", "one") in words(updates)

    def test_restore_below_the_required_fidelity_is_refused_and_loses_nothing(self, tmp_path: Path) -> None:
        flags = ("--no-load", "--no-resume")
        with proxied(tmp_path, *flags) as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        params = {"sessionId": session_id, "cwd": "/", "mcpServers": []}
        with proxied(tmp_path, *flags, run=("--require", "history")) as client:
            client.initialize()
            with pytest.raises(RpcError) as refused:
                client.request("session/load", params)
            assert refused.value.data["reason"] == "fidelity_not_met"
        with proxied(tmp_path, *flags) as client:
            client.initialize()
            assert ("agent", "one") in words(history(client, session_id)[1])

    def test_client_hanging_up_in_mid_turn_does_not_lower_fidelity(self, tmp_path: Path) -> None:
        flags = ("--state", str(tmp_path / "state.json"))
        with proxied(tmp_path / "store", *flags) as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            client.begin_prompt(session_id, "stream 400 2")
            client.wait_for(lambda m: "part-004." in str(m))
        with proxied(tmp_path / "store", *flags) as client:
            client.initialize()
            result, updates = history(client, session_id)
            assert result["_meta"]["asnap"]["restored"]["grade"] == "native-load"
            assert "part-004." in words(updates)[-1][1]

    def test_restoration_note_is_never_shown_as_user_text(self, tmp_path: Path) -> None:
        flags = ("--no-load", "--no-resume", "--misbehave", "echo-prompts")
        with proxied(tmp_path, *flags) as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        with proxied(tmp_path, *flags) as client:
            client.initialize()
            history(client, session_id)
            assert client.prompt(session_id, "say two") == "two"
            assert "restoration-note" not in str(client.updates(session_id))

    def test_session_that_the_agent_loads_by_itself_is_recorded_further(self, tmp_path: Path) -> None:
        flags = ("--state", str(tmp_path / "agent.json"))
        with proxied(tmp_path, *flags) as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        for number in range(2):
            with proxied(tmp_path, *flags, run=("--resume", "off")) as client:
                client.initialize()
                _, updates = history(client, session_id)
                assert words(updates)[:2] == [("user", "say one"), ("agent", "one")]
                assert words(history(client, session_id)[1])[:2] == [("user", "say one"), ("agent", "one")]
                assert client.prompt(session_id, f"say more {number}") == f"more {number}"
        with proxied(tmp_path, *flags) as client:
            client.initialize()
            said = [text for who, text in words(history(client, session_id)[1]) if who == "agent"]
            assert said == ["one", "more 0", "more 1"]

    def test_session_that_only_the_agent_has_is_recorded_once_it_loads_it_by_itself(self, tmp_path: Path) -> None:
        flags = ("--state", str(tmp_path / "agent.json"))
        with proxied(tmp_path / "elsewhere", *flags) as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        with proxied(tmp_path / "here", *flags, run=("--resume", "off")) as client:
            client.initialize()
            history(client, session_id)
            client.prompt(session_id, "say two")
        with proxied(tmp_path / "here", *flags) as client:
            client.initialize()
            assert [text for _, text in words(history(client, session_id)[1])] == [
                "say one",
                "one",
                "say two",
                "two",
            ]

    def test_require_stored_sessions_refuses_to_start_an_empty_one(self, tmp_path: Path) -> None:
        with proxied(tmp_path, run=("--resume", "required")) as client:
            client.initialize()
            with pytest.raises(RpcError) as refused:
                client.new_session()
            assert refused.value.code == -32602

    def test_resume_replays_nothing(self, tmp_path: Path) -> None:
        with proxied(tmp_path, "--no-load", "--no-resume") as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        with proxied(tmp_path, "--no-load", "--no-resume") as client:
            client.initialize()
            client.request("session/resume", {"sessionId": session_id, "cwd": "/"})
            assert words(client.updates(session_id)) == []
            assert "say one" in client.prompt(session_id, "echo-blocks")

    def test_a_session_moves_to_another_agent(self, tmp_path: Path) -> None:
        with proxied(tmp_path, "--name", "first") as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        with proxied(tmp_path, "--name", "second", run=("--session", session_id)) as client:
            client.initialize()
            made = client.request("session/new", {"cwd": "/", "mcpServers": []})
            assert made["sessionId"] == session_id
            assert made["_meta"]["asnap"]["restored"]["grade"] == "context"
            client.wait_for_text("one")
            assert ("agent", "one") in words(client.updates(session_id))
            assert "say one" in client.prompt(session_id, "echo-blocks")

    @pytest.mark.parametrize("ref", ["latest", "the beginning of its id"])
    def test_session_to_resume_is_named_by_any_reference(self, tmp_path: Path, ref: str) -> None:
        with proxied(tmp_path) as client:
            client.initialize()
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        with proxied(tmp_path, run=("--session", ref if ref == "latest" else session_id[:8])) as client:
            client.initialize()
            assert client.request("session/new", {"cwd": "/", "mcpServers": []})["sessionId"] == session_id

    def test_unknown_session_to_resume_is_refused_before_a_session_is_opened(self, tmp_path: Path) -> None:
        line = [sys.executable, "-m", "snapshot_plugin", "run", "--store", str(tmp_path), "--session", "nope"]

        done = forkserver.run([*line, "--", "cat"], timeout=60)

        assert done.returncode == 4

    def test_second_proxy_gets_an_error_that_names_the_owner(self, tmp_path: Path) -> None:
        with proxied(tmp_path) as first:
            first.initialize()
            session_id = first.new_session()
            first.prompt(session_id, "say one")
            with proxied(tmp_path) as second:
                second.initialize()
                with pytest.raises(RpcError) as refused:
                    second.request("session/load", {"sessionId": session_id, "cwd": "/", "mcpServers": []})
                assert refused.value.data["reason"] == "locked"
