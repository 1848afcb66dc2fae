"""A disk that fails under the proxy: one call at each k, random rates, a limit on file sizes.

A turn that was acknowledged to the client is on disk after a recovery, or the client was told in the protocol that
it is not: ``_meta.asnap.recorded`` or ``saved`` is false. What was only written to stderr does not count.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio

from integration.soak.program import Case, Program, Tally
from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.store.filesystem import FilesystemStore

__all__ = ["PROGRAM"]

_PATIENCE = 60.0
_TURNS = 6
_MOST_CALLS = 400
_STEP = 11
_AGENT = (sys.executable, "-m", "tests.acp_agent")
_ROOT = Path(__file__).resolve().parents[2]


class _Client:
    """Speaks ACP with the proxy, and keeps everything it was told."""

    def __init__(self, store: Path, fault: str | None) -> None:
        hooked = ("integration.soak.faulty", str(store), fault) if fault else ("snapshot_plugin",)
        line = [sys.executable, "-m", *hooked, "run", "--store", str(store), "--", *_AGENT]
        self.process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=_ROOT
        )
        self.unrecorded = False

    def ask(self, number: int, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """The answer; None if the proxy ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            self._note(message)
            if message.get("id") == number and "method" not in message:
                return dict(message)
        return None

    def _note(self, message: Any) -> None:
        """Remember whether the session is said to be recorded."""
        for found in _metas(message):
            if "recorded" in found or "saved" in found:
                self.unrecorded = not (found.get("recorded", True) and found.get("saved", True))

    def end(self) -> int:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            return self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def _metas(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        meta = value.get("_meta")
        if isinstance(meta, dict) and isinstance(meta.get("asnap"), dict):
            yield meta["asnap"]
        for each in value.values():
            yield from _metas(each)
    elif isinstance(value, list):
        for each in value:
            yield from _metas(each)


def _play(tally: Tally, fault: str | None, *, turns: int = _TURNS) -> bool:
    """One conversation on a disk that fails, then a recovery on a good one. Returns whether a call failed."""
    with tempfile.TemporaryDirectory(prefix="asnap-faults-") as folder:
        store = Path(folder) / "store"
        anyio.run(_make, store)
        acknowledged, told = _converse(tally, store, fault, turns)
        done = subprocess.run(
            [sys.executable, "-m", "snapshot_plugin", "recover", "--store", str(store)],
            capture_output=True,
            cwd=_ROOT,
            timeout=_PATIENCE,
            check=False,
        )
        if done.returncode:
            tally.fault(f"{fault}: recovery failed: {done.stderr.decode()[-200:]}")
        kept = anyio.run(_kept, store)
        tally.acknowledged += len(acknowledged)
        missing = [word for word in acknowledged if word not in kept]
        if missing and not told:
            tally.lose(len(missing), f"{fault}: {', '.join(missing)} were acknowledged and are gone")
        tally.other["told"] += bool(told)
        tally.other["told, and not on disk"] += len(missing) if told else 0
        return Path(f"{store}.failed").exists()


def _converse(tally: Tally, store: Path, fault: str | None, turns: int) -> tuple[list[str], bool]:
    client = _Client(store, fault)
    acknowledged: list[str] = []
    try:
        client.ask(0, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        begun = client.ask(1, "session/new", {"cwd": str(store.parent), "mcpServers": []})
        session_id = ((begun or {}).get("result") or {}).get("sessionId")
        for turn in range(turns) if session_id else ():
            word = f"turn-{turn}-{os.getpid()}"
            prompt = [{"type": "text", "text": word}]
            answer = client.ask(turn + 2, "session/prompt", {"sessionId": session_id, "prompt": prompt})
            if answer is None:
                tally.other["proxy ended"] += 1
                break
            if "result" in answer:
                acknowledged.append(word)
    finally:
        status = client.end()
    tally.other[f"exit {status}"] += 1
    return acknowledged, client.unrecorded


async def _make(place: Path) -> None:
    async with FilesystemStore(place, background=False) as store:
        await store.list()


async def _kept(place: Path) -> str:
    """Everything that is in the store, as one text."""
    found = []
    async with FilesystemStore(place, create=False, background=False) as store:
        for meta in await store.list():
            with contextlib.suppress(SnapshotError):
                found.append(json.dumps((await store.load(meta.session_id)).raw()))
    return "\n".join(found)


def _each_call(rounds: int) -> Tally:
    """Fail the k-th call, for each k until a run has fewer calls than that. The short form takes large steps."""
    tally = Tally()
    step = 1 if rounds == _MOST_CALLS else _STEP
    for k in range(1, rounds * step + 1, step):
        tally.rounds += 1
        if not _play(tally, f"call={k}"):
            return tally
        tally.other["calls that failed"] += 1
    if step == 1:
        tally.fault(f"a conversation makes more than {_MOST_CALLS} calls")
    return tally


def _random_rates(rounds: int) -> Tally:
    tally = Tally()
    for seed in range(rounds):
        tally.rounds += 1
        _play(tally, f"rate={1 / (3 + seed % 10):.3f},seed={seed}")
    return tally


def _file_sizes(rounds: int) -> Tally:
    tally = Tally()
    for number in range(rounds):
        tally.rounds += 1
        _play(tally, f"size={200 << (number % 8)}", turns=20)
    return tally


def _undisturbed(rounds: int) -> Tally:
    """Without a fault nothing is told, and all is there: the measure for the others."""
    tally = Tally()
    for _ in range(rounds):
        tally.rounds += 1
        _play(tally, None)
    if tally.other["told"]:
        tally.fault("the client was told of a problem that was none")
    return tally


PROGRAM = Program(
    "proxy_faults",
    "What the proxy acknowledged is on disk after a recovery, or the client was told in the protocol.",
    (
        Case("one failing call at each k", _each_call, rounds=_MOST_CALLS, quick=4),
        Case("random EIO, 1 in 3 to 1 in 12", _random_rates, rounds=40, quick=3),
        Case("a limit on file sizes", _file_sizes, rounds=16, quick=2),
        Case("no fault", _undisturbed, rounds=1, quick=1),
    ),
)
