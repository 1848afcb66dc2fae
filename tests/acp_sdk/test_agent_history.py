"""What the agent remembers by itself, and what its model is told: each thing once."""

# mypy: disable-error-code="abstract"
# The SDK's agents leave methods out.
from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import InvalidSnapshot, Message, SessionSnapshot
from snapshot_plugin.acp.hosts.sdk_agent import Kept, kept_history, note_about, storable
from snapshot_plugin.acp.reducer import AcpReducer, reduce_events
from tests.acp_sdk.agents.scripted import RememberingAgent, ScriptedAgent
from tests.acp_sdk.connected import connected, words

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 11, 16, tzinfo=UTC)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the SDK knows no other


def turn(text: str, **end: Any) -> list[dict[str, Any]]:
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": f"answer {text}"}}
    return [{"prompt": [{"type": "text", "text": text}]}, {"update": chunk}, end or {"stop": {}}]


def record(*events: dict[str, Any]) -> SessionSnapshot:
    blank = SessionSnapshot(session_id="s", created_at=NOW, updated_at=NOW)
    agent = {"agent": {"sessionId": "0", "info": {"name": "scripted"}}}
    return reduce_events(blank, [agent, *events], NOW)


class TestPure:
    def test_history_covers_the_conversation_at_the_time_it_was_taken(self) -> None:
        events = [*turn("one", stop={}, history={"a": [1]}), *turn("two", interrupted="killed")]
        assert kept_history(record(*events), "scripted") == Kept({"a": [1]}, 2)

    def test_recording_resumed_from_a_snapshot_has_the_same_history(self) -> None:
        events = [*turn("one", stop={}, history={"a": 1}), *turn("two")]
        for cut in range(len(events)):
            recording = AcpReducer(record(*events[:cut]))
            for event in events[cut:]:
                recording.apply(event)
            assert recording.snapshot(NOW).plugins == record(*events).plugins

    def test_history_of_another_agent_is_ignored(self) -> None:
        assert kept_history(record(*turn("one", stop={}, history={"a": 1})), "another") is None

    def test_history_longer_than_the_record_is_ignored(self) -> None:
        whole = record(*turn("one"), *turn("two", stop={}, history={"a": 1}))
        assert kept_history(whole.evolve(messages=whole.messages[:2]), "scripted") is None

    @pytest.mark.parametrize(
        "section", [None, [], {"value": 1}, {"value": {}, "messages": "2", "agent": "scripted"}]
    )
    def test_damaged_history_is_ignored(self, section: Any) -> None:
        assert kept_history(record().evolve(plugins={"acp-history": section}), "scripted") is None

    def test_model_is_sent_only_what_the_agent_does_not_remember(self) -> None:
        kept = record(*turn("one"), *turn("two", interrupted="killed"))
        note = note_about(kept, remembered=2) or ""
        assert "answer two" in note
        assert "one" not in note

    def test_agent_without_memory_is_sent_the_whole_conversation(self) -> None:
        note = note_about(record(*turn("one"), *turn("two")), remembered=0) or ""
        assert note.index("answer one") < note.index("answer two")

    def test_agent_that_remembers_everything_is_sent_nothing(self) -> None:
        assert note_about(record(), remembered=0) is None
        assert note_about(record(*turn("one")), remembered=2) is None

    def test_refused_turn_is_left_out_of_the_note(self) -> None:
        refused = turn("secret", stop={"stopReason": "refusal"})
        assert "secret" not in (note_about(record(*turn("one"), *refused), remembered=0) or "")
        assert note_about(record(*turn("one"), *refused), remembered=2) is None

    def test_stored_history_is_a_copy_of_the_authors_object(self) -> None:
        memory = {"heard": ["one"]}
        stored = storable(memory)
        memory["heard"].append("two")
        assert stored == {"heard": ["one"]}

    @pytest.mark.parametrize("value", [[1], "text", {"a": object()}, {"a": float("nan")}, {1: 2}])
    def test_history_that_is_not_a_json_object_is_refused(self, value: Any) -> None:
        with pytest.raises(InvalidSnapshot):
            storable(value)

    def test_history_that_would_not_round_trip_is_refused(self) -> None:
        deep: dict[str, Any] = {}
        for _ in range(150):
            deep = {"deep": deep}
        with pytest.raises(InvalidSnapshot):
            storable(deep)


async def lived(agent: ScriptedAgent, *prompts: str, hang: str | None = None) -> str:
    """A session of *agent*; with *hang* the client goes away in the middle of that turn."""
    async with connected(agent) as peer:
        await peer.initialize()
        session_id = await peer.new_session()
        for prompt in prompts:
            await peer.prompt(session_id, prompt)
        if hang:
            await peer.begin_prompt(session_id, hang)
            await peer.wait_for(lambda message: f"heard {hang}" in str(message))
        return session_id


async def next_prompts(agent: ScriptedAgent, session_id: str, *prompts: str) -> dict[str, Any]:
    """Load and go on; how it came back."""
    async with connected(agent) as peer:
        await peer.initialize()
        result, _ = await peer.load(session_id)
        for prompt in prompts:
            await peer.prompt(session_id, prompt)
        report: dict[str, Any] = result["_meta"]["asnap"]["restored"]
        return report


class TestAgent:
    async def test_agent_without_memory_gets_the_conversation_once(self, tmp_path: Path) -> None:
        session_id = await lived(ScriptedAgent(tmp_path), "one", hang="wait")
        agent = ScriptedAgent(tmp_path)
        report = await next_prompts(agent, session_id, "two", "three")
        (*rest, note), second = agent.heard()
        assert (report["grade"], rest, second) == ("context", ["two"], ["three"])
        assert all(said in note for said in ("one", "heard one", "wait", "heard wait"))

    async def test_agent_with_memory_gets_its_history_back_and_no_note(self, tmp_path: Path) -> None:
        session_id = await lived(RememberingAgent(tmp_path), "one", "two")
        agent = RememberingAgent(tmp_path)
        report = await next_prompts(agent, session_id, "three")
        [(given_to, history, transcript)] = agent.given
        assert (given_to, history["heard"]) == ("0", ["one", "two", "three"])
        assert [message.text for message in transcript] == ["one", "heard one", "two", "heard two"]
        assert (report["grade"], agent.heard()) == ("native-load", [["three"]])

    async def test_note_repeats_what_the_user_saw_of_an_interrupted_turn(self, tmp_path: Path) -> None:
        session_id = await lived(RememberingAgent(tmp_path), "one", hang="wait")
        agent = RememberingAgent(tmp_path)
        await next_prompts(agent, session_id, "two", "three")
        (*rest, note), second = agent.heard()
        assert (rest, second) == (["two"], ["three"])
        assert "heard wait" in note
        assert "heard one" not in note

    async def test_agent_killed_in_its_first_turn_gets_no_history_back(self, tmp_path: Path) -> None:
        session_id = await lived(RememberingAgent(tmp_path), hang="wait")
        agent = RememberingAgent(tmp_path)
        report = await next_prompts(agent, session_id, "two")
        assert (report["grade"], agent.given) == ("context", [])
        assert "heard wait" in agent.heard()[0][-1]

    async def test_agent_without_a_history_object_can_take_the_transcript(self, tmp_path: Path) -> None:
        class Listening(ScriptedAgent):
            taken: Sequence[Message] = ()

            def take_back(self, session_id: str, history: Any, transcript: Sequence[Message]) -> None:
                assert history is None
                self.taken = transcript

        session_id = await lived(Listening(tmp_path), "one", hang="wait")
        agent = Listening(tmp_path)
        report = await next_prompts(agent, session_id, "two")
        assert [message.text for message in agent.taken] == ["one", "heard one", "wait", "heard wait"]
        assert (report["grade"], agent.heard()) == ("native-load", [["two"]])

    async def test_history_that_cannot_be_stored_keeps_the_previous_one(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Unstorable(RememberingAgent):
            async def history(self, session_id: str) -> Any:
                memory = self.memories[session_id]
                return memory if len(memory["heard"]) == 1 else {"socket": object()}

        session_id = await lived(Unstorable(tmp_path), "one", "two")
        assert [entry.levelno for entry in caplog.records] == [logging.WARNING]
        agent = RememberingAgent(tmp_path, name="scripted")
        await next_prompts(agent, session_id, "three")
        assert agent.memories["0"]["heard"] == ["one", "three"]
        assert "heard two" in agent.heard()[0][-1]
        assert "heard one" not in agent.heard()[0][-1]

    async def test_agent_that_ignores_its_history_is_sent_everything(self, tmp_path: Path) -> None:
        class Broken(ScriptedAgent):
            def history(self, session_id: str) -> Any:
                return {}

            def take_back(self, session_id: str, history: Any, transcript: Sequence[Message]) -> None:
                raise KeyError("heard")

        session_id = await lived(Broken(tmp_path), "one")
        agent = Broken(tmp_path)
        report = await next_prompts(agent, session_id, "two")
        assert report["grade"] == "context"
        assert "heard one" in agent.heard()[0][-1]

    async def test_failed_turn_is_described_as_interrupted(self, tmp_path: Path) -> None:
        async with connected(ScriptedAgent(tmp_path)) as peer:
            await peer.initialize()
            session_id = await peer.new_session()
            await peer.answer_to(await peer.begin_prompt(session_id, "fail"))
        agent = ScriptedAgent(tmp_path)
        await next_prompts(agent, session_id, "two")
        assert "cut off" in agent.heard()[0][-1]

    async def test_echoing_agent_does_not_show_the_note_to_the_user(self, tmp_path: Path) -> None:
        session_id = await lived(ScriptedAgent(tmp_path), "one")
        agent = ScriptedAgent(tmp_path)
        agent.echoes = True
        async with connected(agent) as peer:
            await peer.initialize()
            await peer.about("session/resume", session_id)
            await peer.prompt(session_id, "two")
            assert [text for role, text in words(peer.updates(session_id)) if role == "user"] == ["two"]
