"""One load or list in a process of its own: prints how long it took, without the imports."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from importlib import import_module
from pathlib import Path

import anyio.to_thread

from integration.bench.contenders import compressor, contender, ours


async def _action(kind: str, path: Path, action: str, at: int | None) -> int:
    if action == "list":
        return await ours(kind, path).list()
    if at is not None:
        return await ours(kind, path).load(at)
    return await contender(kind, path).load()


async def _timed(kind: str, path: Path, action: str, at: int | None) -> dict[str, float]:
    await anyio.to_thread.run_sync(int)  # any program that gets here has its event loop and a thread running
    gc.collect()
    gc.freeze()  # what was imported is not the store's to walk: openai-agents brings 60 ms of it
    start = time.perf_counter()
    count = await _action(kind, path, action, at)
    return {"seconds": time.perf_counter() - start, "count": count}


def main(kind: str, path: str, action: str, at: str) -> None:
    if kind == "SQLiteSession":
        import_module("agents")  # takes a second that is not the store's
    with compressor(kind):
        print(json.dumps(asyncio.run(_timed(kind, Path(path), action, int(at) if at else None))))


if __name__ == "__main__":
    main(*sys.argv[1:])
