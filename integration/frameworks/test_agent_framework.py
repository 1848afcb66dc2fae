"""`SnapshotHistoryProvider` beside agent-framework's own `FileHistoryProvider`, shared by threads, and killed."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from agent_framework import Content, FileHistoryProvider, Message

from integration.frameworks.pages import ROOT, run_page
from snapshot_plugin import FilesystemStore
from snapshot_plugin.errors import InvalidSnapshotVersion
from snapshot_plugin.frameworks.agent_framework import SnapshotHistoryProvider

MESSAGES = [
    Message("user", ["hi"], message_id="m1"),
    Message("user", ["again, without an id"]),
    Message(
        "assistant", [Content.from_text("x"), Content.from_function_call("c1", "f", arguments={"a": [1, None]})]
    ),
    Message("tool", [Content.from_function_result("c1", result="42")]),
    Message("assistant", [Content.from_text_reasoning(text="hm")], author_name="bot"),
    Message("user", [Content.from_uri("http://x/y.png", media_type="image/png")]),
    Message("assistant", []),
]


def raw(messages: list[Message]) -> list[dict[str, Any]]:
    return [message.to_dict() for message in messages]


@pytest.mark.parametrize("number", range(len(MESSAGES)))
@pytest.mark.parametrize("key", [None, "correct horse"])
def test_a_message_comes_back_as_from_a_file(tmp_path: Path, number: int, key: str | None) -> None:
    async def main() -> None:
        theirs = FileHistoryProvider(tmp_path / "theirs")
        for provider in (SnapshotHistoryProvider(tmp_path / "ours", key), theirs):
            await provider.save_messages("s", [MESSAGES[number]])
        again = SnapshotHistoryProvider(FilesystemStore(tmp_path / "ours", key=key))
        assert raw(await again.get_messages("s")) == raw(await theirs.get_messages("s"))

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(6))
def test_any_sequence_of_saves_behaves_as_with_files(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    async def main() -> None:
        providers = [SnapshotHistoryProvider(tmp_path / "ours"), FileHistoryProvider(tmp_path / "theirs")]
        for _ in range(15):
            name = chance.choice(["a", "b", None])
            given = chance.choices(MESSAGES, k=chance.randrange(4))
            if chance.random() < 0.3:  # the whole transcript again, as some agents do
                given = [*await providers[1].get_messages(name), *given]
            for provider in providers:
                await provider.save_messages(name, given)
            ours, theirs = [raw(await provider.get_messages(name)) for provider in providers]
            assert ours == theirs

    asyncio.run(main())


def test_threads_with_loops_of_their_own_lose_nothing(tmp_path: Path) -> None:
    def work(name: int) -> None:
        async def main() -> None:
            provider = SnapshotHistoryProvider(tmp_path if name % 2 else FilesystemStore(tmp_path))
            for number in range(5):
                await provider.save_messages("s", [Message("user", ["x"], message_id=f"{name}-{number}")])

        asyncio.run(main())

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    found = asyncio.run(SnapshotHistoryProvider(tmp_path).get_messages("s"))
    assert {each.message_id for each in found} == {f"{name}-{number}" for name in range(4) for number in range(5)}


def test_a_history_of_a_newer_adapter_is_refused(tmp_path: Path) -> None:
    provider = SnapshotHistoryProvider(tmp_path)
    asyncio.run(provider.save_messages("s", MESSAGES))
    store = FilesystemStore(tmp_path).sync
    found = store.load("s")
    assert (found.title, found.metrics.turns) == ("hi", 3)
    store.save(found.evolve(plugins={"agent-framework": 2}))
    with pytest.raises(InvalidSnapshotVersion, match="newer agent-framework adapter"):
        asyncio.run(provider.get_messages("s"))


def test_a_killed_agent_is_told_its_first_turn_again(tmp_path: Path) -> None:
    def agent(what: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "integration.frameworks.microsoft_agent", str(tmp_path / "store"), what]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)

    first = agent("first")
    assert first.returncode == -9, first.stderr
    second = agent("second")
    assert second.stdout.strip() == "told: Plan Oslo | told: Plan Oslo | And Bergen", second.stderr


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(run_page("agent-framework")["main"]())
