"""The agent's own memory: when it is used, and what the model is told when it is not.

The rule is in docs/explanation/fidelity.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_plugin.model.content import ToolCallBlock
from tests.hosts.stage import HostStage, grade, linux, load, stored, words

__all__ = ["AgentMemory", "Notes"]

_NOTE = "restoration-note"
HABITS = {
    "blank-load": "context",
    "foreign-turns": "context",
    "late-replay": "native-load",
    "changed-tool-ids": "native-load",
    "false-completed": "native-load",
    "echo-prompts": "native-load",
    "load-hangs": "native-resume",
    "session-active": "native-load",
    "garbage-stdout": "native-load",
    "long-line-no-newline": "native-load",
}


class AgentMemory(HostStage):
    """For hosts that have the agent load a session itself, and verify what it remembers."""

    @pytest.mark.parametrize(("habit", "expected"), HABITS.items(), ids=HABITS)
    def test_a_habit_of_real_agents_leads_to_the_right_grade(
        self, tmp_path: Path, habit: str, expected: str
    ) -> None:
        flags = (*self.remembering(tmp_path), "--misbehave", habit)
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            client.prompt(session_id, "tool")
            client.prompt(session_id, "say two")
        with self.start(tmp_path, *flags, patience=2) as client:
            result, updates = load(client, session_id)
            assert grade(result) == expected
            assert [w for w in words(updates) if w == ("user", "say one")] == [("user", "say one")], "shown once"
            assert words(updates)[-1][1].endswith("two")
            mark = len(client.received)
            assert client.prompt(session_id, "say three").endswith("three")
            said = [text for who, text in words(client.updates(session_id, since=mark)) if who == "agent"]
            assert not any("two" in text for text in said), "nothing of the replay leaks into the next turn"

    @pytest.mark.parametrize(
        "script",
        ["notice Info: the model is not known.\nsay one", "/usage", "/help\nsay help is on its way"],
        ids=["notice", "slash command", "answer of a slash command"],
    )
    def test_what_an_agent_leaves_out_of_its_replay_does_not_cost_its_memory(
        self, tmp_path: Path, script: str
    ) -> None:
        flags = self.remembering(tmp_path)
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say zero")
            client.prompt(session_id, script)
            client.prompt(session_id, "say two")
        with self.start(tmp_path, *flags) as client:
            result, updates = load(client, session_id)
            assert grade(result) == "native-load"
            assert ("user", script) in words(updates), "the client sees all of it again"
            assert _NOTE not in client.prompt(session_id, "echo-blocks"), "there is nothing to tell"
            assert "earlier turns: " in client.prompt(session_id, "remember")

    @pytest.mark.parametrize("habit", ["changed-tool-ids", "late-replay"])
    def test_the_outcome_of_a_tool_that_only_the_agents_replay_has_is_recorded_and_shown(
        self, tmp_path: Path, habit: str
    ) -> None:
        flags = (*self.remembering(tmp_path), "--misbehave", "hides-outcomes", "--misbehave", habit)
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.prompt(session_id, "tool\nsay one")
            client.prompt(session_id, "tool\nsay two")
        with self.start(tmp_path, *flags) as client:
            result, updates = load(client, session_id)
            assert grade(result) == "native-load"
            calls = [update for update in updates if update["sessionUpdate"] == "tool_call"]
            assert [(call["toolCallId"], call["status"]) for call in calls] == [
                ("call-1", "completed"),
                ("call-2", "completed"),
            ]
            for call in calls:
                assert call["content"][0]["type"] == "diff"
                assert call["rawOutput"] == {"written": 3}
        for message in stored(tmp_path, session_id).messages[1::2]:
            (kept,) = [block for block in message.content if isinstance(block, ToolCallBlock)]
            assert kept.raw_output == {"written": 3}

    def test_a_late_replay_is_awaited_as_long_as_it_continues(self, tmp_path: Path) -> None:
        flags = (*self.remembering(tmp_path), "--misbehave", "slow-replay")
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            for n in range(12):
                client.prompt(session_id, f"say number {n}")
        with self.start(tmp_path, *flags) as client:
            assert grade(load(client, session_id)[0]) == "native-load"
            assert _NOTE not in client.prompt(session_id, "echo-blocks"), "the agent remembers every turn"

    def test_a_compaction_does_not_cost_the_agents_memory(self, tmp_path: Path) -> None:
        flags = self.remembering(tmp_path)
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            for n in range(5):
                client.prompt(session_id, f"say number {n}")
            client.prompt(session_id, "/compact")
            client.prompt(session_id, "say after")
        with self.start(tmp_path, *flags) as client:
            result, updates = load(client, session_id)
            assert grade(result) == "native-load"
            assert ("agent", "number 0") in words(updates)
            told = client.prompt(session_id, "echo-blocks")
            assert "number 0" not in told, "the agent has a summary of what came before"

    @pytest.mark.parametrize("habit", ["partial-load", "acknowledged-loss"])
    def test_an_acknowledged_turn_that_the_agent_lost_is_sent_and_its_memory_kept(
        self, tmp_path: Path, habit: str
    ) -> None:
        flags = (*self.remembering(tmp_path), "--misbehave", habit)
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            client.prompt(session_id, "say two")
        with self.start(tmp_path, *flags) as client:
            result, updates = load(client, session_id)
            assert grade(result) == "native-load"
            assert words(updates)[-1] == ("agent", "two")
            told = client.prompt(session_id, "echo-blocks")
            assert "Assistant: two" in told
            assert "Assistant: one" not in told
            assert _NOTE not in client.prompt(session_id, "echo-blocks"), "it is told once"

    @pytest.mark.parametrize("cannot", [(), ("--no-load",)], ids=["load", "resume"])
    def test_a_conversation_that_was_never_told_is_told_after_the_next_load(
        self, tmp_path: Path, cannot: tuple[str, ...]
    ) -> None:
        flags = (*self.remembering(tmp_path), *cannot)
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        Path(flags[flags.index("--state") + 1]).unlink()
        for _ in range(2):  # the agent has an empty session then, because no prompt carries the note
            with self.start(tmp_path, *flags) as client:
                assert grade(load(client, session_id)[0]) == "context"
                assert grade(load(client, session_id)[0]) == "context"
        with self.start(tmp_path, *flags) as client:
            load(client, session_id)
            assert "Assistant: one" in client.prompt(session_id, "echo-blocks")

    @linux
    @pytest.mark.parametrize("habit", ["shows-cut-off", "echo-prompts"])
    def test_a_cut_off_turn_is_reported_even_if_the_agent_replays_it(self, tmp_path: Path, habit: str) -> None:
        flags = (*self.remembering(tmp_path), "--misbehave", habit)
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            client.begin_prompt(session_id, "stream 500 5")
            client.wait_for_text("part-010.")
            self.kill_everything(client)
        with self.start(tmp_path, *flags) as client:
            result, updates = load(client, session_id)
            assert grade(result) == "native-load"
            assert "part-010." in "".join(text for _, text in words(updates))
            told = client.prompt(session_id, "echo-blocks")
            assert "part-010." in told
            assert "cut off" in told

    @linux
    def test_words_an_agent_says_during_a_load_are_recorded_and_shown(self, tmp_path: Path) -> None:
        flags = (*self.remembering(tmp_path), "--misbehave", "finishes-on-load")
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.begin_prompt(session_id, "stream 500 5")
            client.wait_for_text("part-010.")
            self.kill_everything(client)
        with self.start(tmp_path, *flags) as client:
            load(client, session_id)
            client.wait_for_text("Finished by itself.")
        with self.start(tmp_path, *flags) as client:
            assert "Finished by itself." in "".join(text for _, text in words(load(client, session_id)[1]))

    def test_words_an_agent_says_unprompted_after_a_load_are_recorded_and_shown(self, tmp_path: Path) -> None:
        flags = (*self.remembering(tmp_path), "--misbehave", "goes-on")
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one\ntool")
        with self.start(tmp_path, *flags) as client:
            load(client, session_id)
            mark = len(client.received)
            client.request("session/set_mode", {"sessionId": session_id, "modeId": "plan"})
            client.wait_for_text(" more", since=mark)
            assert client.said(session_id, since=mark) == "one and more", "the record begins with the same word"
            client.wait_for_update("tool_call", since=mark, title="Edit notes.txt")
        with self.start(tmp_path, *flags) as client:
            assert words(load(client, session_id)[1])[-1][1].endswith("one and more")

    def test_after_a_context_restore_the_next_load_is_native_again(self, tmp_path: Path) -> None:
        flags = self.remembering(tmp_path)
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one " + "x" * 2000)
        (tmp_path / "agent.json").unlink()
        with self.start(tmp_path, *flags) as client:
            assert grade(load(client, session_id)[0]) == "context"
            client.prompt(session_id, "say two")
        with self.start(tmp_path, *flags) as client:
            result, updates = load(client, session_id)
            assert grade(result) == "native-load"
            assert [who for who, _ in words(updates)] == ["user", "agent"] * 2
            assert "earlier turns: 1" in client.prompt(session_id, "remember")
            assert client.prompt(session_id, "echo-blocks").count(_NOTE) == 0

    def test_a_fork_is_the_agents_own_where_it_can(self, tmp_path: Path) -> None:
        flags = self.remembering(tmp_path)
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            result = client.request("session/fork", {"sessionId": session_id, "cwd": "/", "mcpServers": []})
            child = result["sessionId"]
            assert grade(result).startswith("native")
            assert client.prompt(child, "remember") == "earlier turns: 1; last prompt: say one"
            assert client.prompt(session_id, "say two") == "two"
            assert words(load(client, child)[1])[:2] == [("user", "say one"), ("agent", "one")]
        with self.start(tmp_path, *flags) as client:
            assert grade(load(client, child)[0]) == "native-load"

    @pytest.mark.parametrize("wrong", [(), ("--misbehave", "null-results")], ids=["{}", "null"])
    def test_settings_are_set_again(self, tmp_path: Path, wrong: tuple[str, ...]) -> None:
        flags = (*self.remembering(tmp_path), *wrong)
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
            client.request("session/set_mode", {"sessionId": session_id, "modeId": "code"})
            client.request("session/set_model", {"sessionId": session_id, "modelId": "deep"})
        with self.start(tmp_path, *flags) as client:
            result, _ = load(client, session_id)
            assert result["modes"]["currentModeId"] == "code"
            assert result["models"]["currentModelId"] == "deep"

    def test_requests_of_the_agent_during_a_load_name_the_session_as_the_client_does(self, tmp_path: Path) -> None:
        flags = self.remembering(tmp_path)
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        (tmp_path / "agent.json").unlink()
        with self.start(tmp_path, *flags) as client:
            load(client, session_id)  # the agent has another id for it now
            client.prompt(session_id, "say two")
        with self.start(tmp_path, *flags, "--misbehave", "asks-on-load") as client:
            client.answers["fs/read_text_file"] = lambda _params: {"content": ""}
            assert grade(load(client, session_id)[0]) == "native-load"
            assert [request["params"]["sessionId"] for request in client.asked] == [session_id]

    @pytest.mark.parametrize("failing", ["fail", "stop refusal"])
    def test_a_conversation_is_told_after_the_next_resume_if_the_prompt_with_it_failed(
        self, tmp_path: Path, failing: str
    ) -> None:
        flags = (*self.remembering(tmp_path), "--no-load")
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        (tmp_path / "agent.json").unlink()
        with self.start(tmp_path, *flags) as client:
            assert grade(load(client, session_id)[0]) == "context"
            client.answer_to(client.begin_prompt(session_id, failing))
        with self.start(tmp_path, *flags) as client:
            load(client, session_id)
            assert "Assistant: one" in client.prompt(session_id, "echo-blocks")


class Notes(HostStage):
    """What the model is told about a session it does not remember."""

    @pytest.mark.parametrize("failing", ["fail", "stop refusal"])
    def test_the_conversation_is_sent_again_if_the_prompt_with_it_failed(
        self, tmp_path: Path, failing: str
    ) -> None:
        with self.start(tmp_path, "--no-load", "--no-resume") as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        with self.start(tmp_path, "--no-load", "--no-resume") as client:
            load(client, session_id)
            client.answer_to(client.begin_prompt(session_id, failing))
            assert "Assistant: one" in client.prompt(session_id, "echo-blocks")
            assert _NOTE not in client.prompt(session_id, "echo-blocks")

    def test_the_conversation_is_sent_once_and_not_shown_to_the_user(self, tmp_path: Path) -> None:
        with self.start(tmp_path, "--no-load", "--no-resume", "--misbehave", "echo-prompts") as client:
            session_id = client.new_session()
            client.prompt(session_id, "say one")
        with self.start(tmp_path, "--no-load", "--no-resume", "--misbehave", "echo-prompts") as client:
            assert grade(load(client, session_id)[0]) == "context"
            told = client.prompt(session_id, "echo-blocks")
            assert "Assistant: one" in told
            assert _NOTE not in client.prompt(session_id, "echo-blocks")
            assert _NOTE not in client.said(session_id, kind="user_message_chunk")
        texts = [message.text for message in stored(tmp_path, session_id).messages if message.role == "user"]
        assert texts == ["say one", "echo-blocks", "echo-blocks"]

    def test_the_note_is_never_a_title(self, tmp_path: Path) -> None:
        flags = ("--no-load", "--no-resume", "--misbehave", "titles-from-prompt")
        with self.start(tmp_path, *flags) as client:
            session_id = client.new_session()
        with self.start(tmp_path, *flags) as client:
            load(client, session_id)
            client.prompt(session_id, "say one")
            fork = client.request("session/fork", {"sessionId": session_id, "cwd": "/", "mcpServers": []})
            client.prompt(fork["sessionId"], "say two")
            titles = [info.get("title") for info in client.request("session/list", {})["sessions"]]
            assert sorted(titles) == ["say one", "say two"]
            assert _NOTE not in str(client.updates())

    def test_it_carries_what_tools_were_given_and_gave_the_newest_first(self, tmp_path: Path) -> None:
        begin = 'update {"sessionUpdate":"tool_call","toolCallId":"%s","title":"Read","status":"completed",'
        big = f'{begin}"rawInput":{{"path":"%s"}},"rawOutput":{{"text":"%s"}}}}'
        with self.start(tmp_path, "--no-load", "--no-resume") as client:
            session_id = client.new_session()
            for n in range(4):
                client.prompt(session_id, big % (f"t-{n}", f"file-{n}.txt", f"output-{n} " + "x" * 25_000))
            client.prompt(session_id, "tool")
        with self.start(tmp_path, "--no-load", "--no-resume") as client:
            load(client, session_id)
            told = client.prompt(session_id, "echo-blocks")
            assert "written" in told, "what a tool gave"
            assert "file-3.txt" in told
            assert "output-3" in told
            assert "output-0" not in told, "the budget is spent on what is recent"
            assert len(told) < 120_000

    @linux
    def test_a_tool_with_an_unknown_outcome_is_not_reported_as_failed(self, tmp_path: Path) -> None:
        with self.start(tmp_path, "--no-load", "--no-resume") as client:
            session_id = client.new_session()
            client.begin_prompt(session_id, "slow-tool 60")
            client.wait_for_update("tool_call_update", status="in_progress")
            self.kill_everything(client)
        with self.start(tmp_path, "--no-load", "--no-resume") as client:
            _, updates = load(client, session_id)
            assert "unknown" in str([u for u in updates if u["sessionUpdate"] == "tool_call"])
            told = client.prompt(session_id, "echo-blocks")
            assert "outcome unknown" in told
            assert "failed" not in told
