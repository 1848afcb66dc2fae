"""What stands in for `anyio.open_process` behaves as anyio does, whenever it is closed."""

from __future__ import annotations

import os

import anyio
import pytest

from tests.forked_process import _Reader

pytestmark = pytest.mark.anyio


async def test_stream_closed_once_data_came_reads_no_other_file(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = os.pipe()
    os.write(ours, b"too late")
    reader = _Reader(os.fdopen(theirs, "rb", buffering=0))

    async def closed_meanwhile(_fd: int) -> None:
        await reader.aclose()

    monkeypatch.setattr(anyio, "wait_readable", closed_meanwhile)
    with pytest.raises(anyio.ClosedResourceError):
        await reader.receive()
    os.close(ours)
