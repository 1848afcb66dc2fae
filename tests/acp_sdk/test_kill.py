"""``kill -9`` of a recorded orchestrator: another process goes on, and nothing its user has seen is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import FilesystemStore
from snapshot_plugin.live.lease import lease_of
from tests.acp_client import Client
from tests.acp_sdk.orchestrator import AGENT, ROOT

Json = dict[str, Any]
UNABLE = ("--no-load", "--no-resume")
pytestmark = pytest.mark.timeout(60)


def orchestrator(*arguments: str) -> Any:
    command = [sys.executable, "-m", "tests.acp_sdk.killed", *arguments]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return Client.launch(command, **pipes, cwd=ROOT, env=os.environ)


def killed_when(done: Callable[[Json], bool], *arguments: str) -> list[Json]:
    """What the user was shown until it was killed."""
    seen: list[Json] = []
    with orchestrator(*arguments) as process:
        for line in process.stdout:
            seen.append(json.loads(line))
            if done(seen[-1]):
                process.kill()
                break
        seen += [json.loads(line) for line in process.stdout]  # what it still wrote before it was gone
    assert process.returncode in (-9, 0)  # a resumed one may have ended by itself before the signal arrived
    return seen


def resumed(*arguments: str) -> Json:
    with orchestrator(*arguments) as process:
        facts: Json = {}
        for line in process.stdout:
            facts |= json.loads(line)
        assert process.wait(30) == 0
    return facts


def words(updates: Iterator[Json] | list[Json], kind: str = "agent_message_chunk") -> str:
    return "".join(update["content"]["text"] for update in updates if update["sessionUpdate"] == kind)


def updates_of(seen: list[Json]) -> list[Json]:
    return [fact["update"] for fact in seen if "update" in fact]


@pytest.fixture(params=[(), UNABLE], ids=["an agent that remembers", "one that does not"])
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    return (*AGENT, "--state", str(tmp_path / "agent.json"), *request.param)


def test_kill_at_the_end_of_a_turn_loses_nothing(agent: tuple[str, ...], tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    seen = killed_when(lambda fact: fact == {"turn": "over"}, place, "say two\nstream 20", *agent)
    session_id = seen[0]["session"]
    assert lease_of(FilesystemStore(place).session_dir(session_id)).died is not None
    back = resumed(place, "--resume", session_id, *agent)
    assert back["grade"] == ("context" if "--no-load" in agent else "native-load")
    assert words(back["transcript"]) == words(updates_of(seen))
    assert words(back["transcript"], "user_message_chunk") == "say one\nthink\ntool\nplansay two\nstream 20"
    calls = [update for update in back["transcript"] if update["sessionUpdate"] == "tool_call"]
    assert [(call["toolCallId"], call["status"]) for call in calls] == [("call-1", "completed")]
    assert ("restoration-note" in back["heard"]) == ("--no-load" in agent)


def test_kill_in_the_middle_of_an_answer_keeps_every_word_the_user_saw(
    agent: tuple[str, ...], tmp_path: Path
) -> None:
    place = str(tmp_path / "store")
    seen = killed_when(lambda fact: "part-030." in json.dumps(fact), place, "stream 400 2", *agent)
    back = resumed(place, "--resume", seen[0]["session"], *agent)
    assert words(back["transcript"]).startswith(words(updates_of(seen)))
    assert "part-030." in back["note"]
    assert "part-030." in back["heard"]  # the model is told what the user saw and the agent lost
    assert "stream 400 2" in words(back["transcript"], "user_message_chunk")


def test_kill_during_a_permission_request_shows_the_tool_as_failed(agent: tuple[str, ...], tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    seen = killed_when(lambda fact: "asked" in fact, place, "ask", *agent)
    back = resumed(place, "--resume", seen[0]["session"], *agent)
    calls = [update for update in back["transcript"] if update["sessionUpdate"] == "tool_call"]
    assert [call["status"] for call in calls] == ["completed", "failed"]
    assert back["notices"]


def test_repeated_kills_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    place, agent = str(tmp_path / "store"), (*AGENT, "--state", str(tmp_path / "agent.json"))
    seen = killed_when(lambda fact: fact == {"turn": "over"}, place, "say two", *agent)
    session_id = seen[0]["session"]
    before: list[Json] = []
    for _ in range(2):
        shown = killed_when(lambda fact: "transcript" in fact, place, "--resume", session_id, *agent)
        transcript = next(fact["transcript"] for fact in shown if "transcript" in fact)
        assert words(transcript).startswith(words(before) or words(updates_of(seen)))
        assert words(transcript).count("two") == 1
        before = transcript
