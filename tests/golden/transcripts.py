"""Golden transcripts of the host suite: what the client of a host sent and received in each case.

A case has a file in ``answers/acp/`` if its transcript is the same in every run; what arrived before a process was
killed is not. ``GOLDEN_ANSWERS=write`` writes those again that there are; to begin a new one, create an empty file.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acp_client import Client
from tests.golden.answered import Scrubber
from tests.golden.test_golden_answers import ANSWERS, compare
from tests.hosts import HostStage

__all__ = ["TRANSCRIPTS", "Transcribed", "file_of"]

Json = dict[str, Any]
TRANSCRIPTS = ANSWERS / "acp"
_CHUNKS = ("agent_message_chunk", "agent_thought_chunk", "user_message_chunk")


def file_of(case: str) -> Path:
    """The file of a case, named by its test."""
    return TRANSCRIPTS / (re.sub(r"[^\w-]+", "-", case.removeprefix("test_")).strip("-") + ".txt")


class Transcribed(HostStage):
    """A stage that compares what its clients saw with the golden transcript, after each case that has one."""

    _clients: list[tuple[Client, list[Json]]]

    @pytest.fixture(autouse=True)
    def _compared(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
        self._clients = []
        failed = request.session.testsfailed
        yield
        file = file_of(request.node.name)
        if file.exists() and request.session.testsfailed == failed:
            lines = [line for number, seen in enumerate(self._clients, 1) for line in _transcript(number, *seen)]
            compare(str(file.relative_to(ANSWERS)), Scrubber(tmp_path)("\n".join(lines) + "\n"))

    def start(self, place: Path, *flags: str, **how: Any) -> Client:
        """See `HostStage`."""
        sent: list[Json] = []
        initialize = how.pop("initialize", True)
        client = super().start(place, *flags, initialize=False, **how)
        send = client.send

        def noted(message: Json) -> None:
            sent.append(message)
            send(message)

        client.send = noted  # type: ignore[method-assign]
        self._clients.append((client, sent))
        if initialize:
            client.initialize()
        return client


def _transcript(number: int, client: Client, sent: list[Json]) -> Iterator[str]:
    """One line for each message: first what was sent, then what was received, as these cross each other."""
    yield f"client {number}"
    yield from (f"sent {json.dumps(message, ensure_ascii=False)}" for message in sent)
    yield from (f"got  {json.dumps(message, ensure_ascii=False)}" for message in _joined(client))


def _joined(client: Client) -> list[Json]:
    """What the client received, without what depends on time.

    Chunks are joined; when the agent announces its commands is its own choice.
    """
    found: list[Json] = []
    for _, message in client.received:
        if message is None or "available_commands_update" in str(message):
            continue
        before, now = _chunk(found[-1]) if found else None, _chunk(message)
        if before and now and before[0] == now[0]:
            found[-1]["params"]["update"]["content"]["text"] += now[1]
        else:
            found.append(copy.deepcopy(message))
    return found


def _chunk(message: Json) -> tuple[object, str] | None:
    """The session and kind of a chunk of text, and the text; None for other messages."""
    params = message.get("params")
    update = params.get("update") if isinstance(params, dict) else None
    if not isinstance(params, dict) or not isinstance(update, dict) or update.get("sessionUpdate") not in _CHUNKS:
        return None
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    others = {name: value for name, value in update.items() if name != "content"}
    return ((params["sessionId"], others), text) if isinstance(text, str) else None
