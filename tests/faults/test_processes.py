"""Real processes at work on one store at once: nothing is lost, doubled, or read wrong."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.faults.support import PLAIN_AND_ENCRYPTED, store_at
from tests.manager.processes import heard, python, tell

WRITER = """
    import sys
    from pathlib import Path
    import anyio
    from snapshot_plugin.errors import Conflict, SnapshotNotFound
    from snapshot_plugin.store.filesystem import FilesystemStore
    from snapshot_plugin.testing import make_message, make_snapshot

    async def main(path, key, name, count):
        async with FilesystemStore(path, key or None, segment_frames=5) as store:
            for number in range(int(count)):
                while True:
                    try:
                        now, base = await store.load("session"), None
                    except SnapshotNotFound:
                        now, base = make_snapshot(), 0
                    try:
                        ref = await store.save(now.append(make_message(f"{name} {number}")), base=base)
                    except Conflict:
                        continue
                    print(ref.seq, f"{name} {number}", flush=True)
                    break

    print("ready", flush=True)
    sys.stdin.readline()
    anyio.run(main, Path(sys.argv[1]), *sys.argv[2:])
"""


@pytest.mark.requirement("STORE-CONFLICT-PROCESSES", "STORE-SHARED")
@PLAIN_AND_ENCRYPTED
def test_two_processes_writing_one_session_lose_and_repeat_nothing(tmp_path: Path, key: str | None) -> None:
    with python(WRITER, tmp_path, key or "", "a", 40) as one, python(WRITER, tmp_path, key or "", "b", 40) as two:
        assert heard(one) == heard(two) == "ready"
        tell(one, "go")
        tell(two, "go")
        said = dict(line.split(" ", 1) for process in (one, two) for line in _lines(process, 40))
    acknowledged = {int(seq): text for seq, text in said.items()}
    assert sorted(acknowledged) == list(range(1, 81))
    texts = [acknowledged[seq] for seq in sorted(acknowledged)]
    assert [text for text in texts if text.startswith("a")] == [f"a {n}" for n in range(40)]
    assert [text for text in texts if text.startswith("b")] == [f"b {n}" for n in range(40)]
    anyio.run(_assert_history, tmp_path, key, texts)


def _lines(process: Any, count: int) -> list[str]:
    return [heard(process) for _ in range(count)]


async def _assert_history(path: Path, key: str | None, texts: list[str]) -> None:
    async with store_at(path, key) as store:
        assert [meta.seq for meta in await store.history("session")] == list(range(len(texts), 0, -1))
        for seq in range(1, len(texts) + 1):
            loaded = await store.load("session", at=seq)
            assert [message.text for message in loaded.messages] == texts[:seq]
        assert (await store.check()).ok


@pytest.mark.requirement("STORE-SHARED", "TERMINAL-TEST-CONCURRENT")
@PLAIN_AND_ENCRYPTED
def test_reads_during_saves_and_compaction_by_another_process_are_consistent(
    tmp_path: Path, key: str | None
) -> None:
    with python(WRITER, tmp_path, key or "", "a", 120) as process:
        assert heard(process) == "ready"
        tell(process, "go")
        first = heard(process)
        assert first == "1 a 0"
        lines = _LinesLater(process, 119)
        anyio.run(_read_until, tmp_path, key, lines)
        lines.join()
    assert lines.heard[-1] == "120 a 119"
    anyio.run(_assert_history, tmp_path, key, [f"a {n}" for n in range(120)])


class _LinesLater(threading.Thread):
    def __init__(self, process: Any, count: int) -> None:
        super().__init__(daemon=True)
        self.heard: list[str] = []
        self._process, self._count = process, count
        self.start()

    def run(self) -> None:
        for _ in range(self._count):
            self.heard.append(heard(self._process))


async def _read_until(path: Path, key: str | None, lines: _LinesLater) -> None:
    store, last = store_at(path, key), 1
    with anyio.fail_after(60):
        while lines.is_alive():
            at_least = 1 + len(lines.heard)
            found = await store.read("session", strict=True)
            assert found.ref.seq >= max(at_least, last)
            last = found.ref.seq
            assert [message.text for message in found.snapshot.messages] == [f"a {n}" for n in range(last)]
            [meta] = await store.list()
            assert (meta.state, meta.seq >= last) == ("ok", True)
            history = await store.history("session")
            assert [meta.seq for meta in history] == list(range(len(history), 0, -1))
            assert (await store.check()).ok


MAKER = """
    import sys
    import anyio
    from snapshot_plugin.store.filesystem import FilesystemStore
    from snapshot_plugin.testing import make_snapshot

    async def main(path, key, name):
        async with FilesystemStore(path, key or None) as store:
            await store.save(make_snapshot("hello", session_id=name))

    print("ready", flush=True)
    for path in sys.stdin:
        anyio.run(main, path.strip(), *sys.argv[1:])
        print("done", flush=True)
"""


@PLAIN_AND_ENCRYPTED
def test_processes_creating_a_store_at_once_share_one_store(tmp_path: Path, key: str | None) -> None:
    with python(MAKER, key or "", "a") as one, python(MAKER, key or "", "b") as two:
        assert heard(one) == heard(two) == "ready"
        for number in range(15):
            tell(one, str(tmp_path / str(number)))
            tell(two, str(tmp_path / str(number)))
            assert heard(one) == heard(two) == "done"
            anyio.run(_assert_both, tmp_path / str(number), key)


async def _assert_both(path: Path, key: str | None) -> None:
    async with store_at(path, key) as store:
        assert {meta.session_id: meta.state for meta in await store.list()} == {"a": "ok", "b": "ok"}
        assert (await store.check()).findings == ()
