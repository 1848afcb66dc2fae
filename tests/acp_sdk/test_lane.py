"""What a lane gives back when the other side is gone: exactly what was not sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from snapshot_plugin.acp.hosts.tasks import Lane

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("fails", [True, False])
async def test_message_being_sent_is_given_back_if_sending_fails(fails: bool) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def send(_message: dict[str, Any]) -> None:
        begun.set()
        await go_on.wait()
        if fails:
            raise BrokenPipeError

    lane = Lane(send, "test")
    sent = [lane.put({"id": 1}), lane.put({"id": 2})]
    async with asyncio.timeout(60):
        await begun.wait()
        reclaimed = asyncio.create_task(lane.reclaim())
        await asyncio.sleep(0)
        go_on.set()
        given_back = [message["id"] for message in await reclaimed]
    lane.close()
    assert given_back == ([1, 2] if fails else [2])
    assert isinstance(sent[0].exception(), BrokenPipeError if fails else type(None))
    assert isinstance(sent[1].exception(), ConnectionResetError)
