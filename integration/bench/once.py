"""One load or list in a process of its own: prints how long it took, without the imports."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import anyio.to_thread

from integration.bench.contenders import compressor, contender, ours, states
from integration.bench.sessions import turns
from snapshot_plugin.model import Message, SessionSnapshot

_AEAD = "cryptography.hazmat.primitives.ciphers.aead"
_BROUGHT_ALONG = {
    "SQLiteSession": ["agents"],
    "plain [fast]": ["isal.isal_zlib", "isal.igzip_lib"],
    "encrypted": [_AEAD],
    "encrypted [fast]": ["isal.isal_zlib", "isal.igzip_lib", _AEAD],
}
"""What others made and a kind needs: a program that uses it has it loaded."""


async def _action(kind: str, path: Path, action: str, at: int | None) -> int:
    if action == "list":
        return await ours(kind, path).list()
    if at is not None:
        return await ours(kind, path).load(at)
    return await contender(kind, path).load()


def warm_up() -> None:
    """Build the schemas of the model, which is part of importing it and only put off until they are used."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    SessionSnapshot(
        session_id="x", created_at=moment, updated_at=moment, messages=[Message(role="user", content="x")]
    )


async def _timed(kind: str, path: Path, action: str, at: int | None) -> dict[str, float]:
    await anyio.to_thread.run_sync(int)  # any program that gets here has its event loop and a thread running
    warm_up()
    gc.collect()
    gc.freeze()  # what was imported is not the store's to walk: openai-agents brings 60 ms of it
    start = time.perf_counter()
    count = await _action(kind, path, action, at)
    return {"seconds": time.perf_counter() - start, "count": count}


def main(kind: str, path: str, action: str, at: str) -> None:
    for module in _BROUGHT_ALONG.get(kind, ()):
        import_module(module)  # agents alone takes a second, and that is not the store's
    next(states(turns(1)))  # schemas are built on first use; a program that loads sessions has made some
    with compressor(kind):
        print(json.dumps(asyncio.run(_timed(kind, Path(path), action, int(at) if at else None))))


if __name__ == "__main__":
    main(*sys.argv[1:])
