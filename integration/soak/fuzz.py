"""Made-up bytes and messages for everything that reads what others wrote: no crash, no hang, only our own errors.

Hypothesis makes them up, by the same seed each time, so a finding is found again. Real things are what is changed:
frames of a real store, lines of a real protocol, a real bundle.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import anyio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from integration.soak.mutations import (
    Mutation,
    nothing,
    sloppy_bundles,
    sloppy_frames,
    sloppy_lines,
    sloppy_updates,
)
from integration.soak.processes import apart
from integration.soak.program import Case, Program, Tally
from integration.soak.sessions import MODES, SESSION, save_version, store_at, version
from integration.soak.watched import in_one_thread
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.messages import parse
from snapshot_plugin.acp.methods import SessionMethods
from snapshot_plugin.acp.reducer import AcpReducer
from snapshot_plugin.acp.supervise import Supervision
from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.exchange.bundle import pack
from snapshot_plugin.exchange.carrying import as_copies
from snapshot_plugin.exchange.reading import read_sessions
from snapshot_plugin.system.lines import Lines
from snapshot_plugin.testing import make_snapshot

__all__ = ["PROGRAM"]

_LONGEST = 20
"""Seconds after which an example counts as a hang."""
_NOW = datetime(2026, 11, 16, tzinfo=UTC)


class Hang(Exception):
    """An example took too long."""


def _fuzz(strategy: st.SearchStrategy[Any], check: Callable[[Any], None], rounds: int) -> Tally:
    """Check *rounds* examples. What is raised that is no error of ours is a finding; the first one ends it."""
    tally = Tally()

    @settings(
        max_examples=rounds,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(example: Any) -> None:
        tally.rounds += 1
        with _bounded():
            try:
                check(example)
            except SnapshotError:
                tally.other["refused"] += 1
        tally.acknowledged += 1

    try:
        run()
    except Exception as error:  # noqa: BLE001 — this is what we are looking for
        tally.fault(f"{type(error).__name__}: {str(error)[:200]}")
    return tally


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise Hang(f"more than {_LONGEST} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(_LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# Changed bytes ----------------------------------------------------------------------------------------------------


class Edit(NamedTuple):
    """At a place (a share of the length), take out so many bytes and put these in."""

    where: float
    out: int
    put: bytes

    def on(self, data: bytes) -> bytes:
        """The changed bytes."""
        at = int(self.where * len(data))
        return data[:at] + self.put + data[at + self.out :]


_places = st.floats(0, 1, exclude_max=True)
_edit = st.builds(Edit, _places, st.integers(0, 4), st.binary(max_size=4)) | st.builds(
    Edit, _places, st.integers(0, 3000), st.binary(max_size=40)
)
_edits = st.lists(_edit, max_size=4)


def _edited(data: bytes, edits: list[Edit]) -> bytes:
    for edit in edits:
        data = edit.on(data)
    return data


def _frames(key: str | None, rounds: int) -> Tally:
    """A store whose segment was changed: read, list, history, check and save end well or with an error of ours."""

    async def fill(path: Path) -> None:
        async with store_at(path, key) as store:
            for number in range(1, 4):
                await store.save(version(number, largest=60))

    async def use(path: Path) -> None:
        async with store_at(path, key) as store:
            for work in (store.list, store.check, partial(store.history, SESSION), partial(store.read, SESSION)):
                with contextlib.suppress(SnapshotError):
                    await work()
            await save_version(store, 9)

    with tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder, in_one_thread():
        path = Path(folder) / "store"
        anyio.run(fill, path)
        segment = path / "sessions" / SESSION / "0000000001.snap.gz"
        whole = segment.read_bytes()

        def check(edits: list[Edit]) -> None:
            for other in segment.parent.glob("*.snap.gz"):
                other.unlink()
            segment.write_bytes(_edited(whole, edits))
            anyio.run(use, path)

        return _fuzz(_edits, check, rounds)


def _bundles(rounds: int) -> Tally:
    """The importer of bundles and of other tools' files."""
    copies = anyio.run(partial(as_copies, now=_NOW), version(3))
    whole = [
        pack([copies]),
        json.dumps(version(2).model_dump(mode="json")).encode(),
        b'{"type":"user","message":{"role":"user","content":"hi"},"uuid":"u","sessionId":"s"}\n',
        b'{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"s","cwd":"/"}}\n',
        b'{"info":{"id":"s","title":"t"},"messages":[{"info":{"role":"user"},"parts":[{"type":"text","text":"x"}]}]}',
    ]

    def check(example: tuple[int, list[Edit]]) -> None:
        data = _edited(whole[example[0]], example[1])
        anyio.run(partial(read_sessions, now=_NOW, limit=1 << 24), data)

    return _fuzz(st.tuples(st.integers(0, len(whole) - 1), _edits), check, rounds)


# Messages ---------------------------------------------------------------------------------------------------------


def _words(text: str) -> list[str]:
    return re.findall(r"\S+", text)


_NAMES = _words("""
    sessionUpdate content type text toolCallId status title kind rawInput rawOutput locations path line update
    prompt stop config modes currentModeId availableModes configOptions permission outcome n t new agent
    interrupted terminal terminalId output plan entries usage used size messageId label history restored cwd
    mcpServers error stopReason sessionId id method params result jsonrpc optionId options toolCall diff oldText
    newText resource uri _meta data
""")
_VALUES = _words("""
    agent_message_chunk user_message_chunk agent_thought_chunk tool_call tool_call_update plan
    current_mode_update config_option_update available_commands_update session_info_update usage_update text
    image resource diff pending completed failed end_turn session session/update session/prompt session/new
    session/load initialize session/cancel session/request_permission 2026-01-01T00:00:00Z call-1 2.0
""")
_numbers = st.booleans() | st.integers(-(2**70), 2**70) | st.floats()
_scalars = st.none() | _numbers | st.text(max_size=8) | st.sampled_from(_VALUES)
_json = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(_NAMES) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=12,
)
_events = st.lists(st.dictionaries(st.sampled_from(_NAMES), _json, min_size=1, max_size=4), max_size=6)


def _reducer(rounds: int) -> Tally:
    """The ACP reducer takes any events, and what it makes of them can be stored and taken up again."""

    def check(events: list[dict[str, Any]]) -> None:
        recording = AcpReducer(make_snapshot("hello", session_id=SESSION))
        for event in events:
            recording.apply(json.loads(json.dumps(event, allow_nan=False, default=str)))
            AcpReducer(recording.snapshot(_NOW)).snapshot(_NOW)

    finite = _events.filter(_is_json)
    return _fuzz(finite, check, rounds)


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _lines(rounds: int) -> Tally:
    """Lines cut anywhere are put together again, byte for byte, and any line is a message or none."""

    def check(chunks: list[bytes]) -> None:
        lines = Lines()
        out = [line for chunk in chunks for line in lines.feed(chunk)]
        if b"".join(out) + lines.rest() != b"".join(chunks) or any(line.count(b"\n") != 1 for line in out):
            raise AssertionError("bytes were lost, or a line was cut elsewhere than at its end")
        for line in out:
            parse(line)

    part = st.binary(max_size=12) | st.sampled_from(
        [b"\n", b"\r\n", b"\r", b'{"a":1}', b"\xff", b"[" * 2000, b"\x85"]
    )
    return _fuzz(st.lists(part, max_size=12), check, rounds)


def _relay(rounds: int) -> Tally:
    """The core takes any message of the client and of the agent, and the death of the agent; it never raises."""
    record = make_snapshot(session_id=SESSION, provider_type="acp")

    def check(messages: list[tuple[bool, Any]]) -> None:
        core = Core(view=lambda _id: record, methods=SessionMethods().by_name())
        core.sessions.open(SESSION)
        supervision = Supervision(core, restarts=True)
        for is_client, message in messages:
            if isinstance(message, dict):
                (core.from_client if is_client else core.from_agent)(message)
        supervision.agent_ended()
        supervision.agent_started()
        core.tick(core.now() + 1000)

    params = st.dictionaries(st.sampled_from(_NAMES), _json, max_size=4)
    message = st.fixed_dictionaries(
        {"jsonrpc": st.just("2.0")},
        optional={
            "id": _scalars,
            "method": _scalars,
            "params": params | _json,
            "result": _json,
            "error": _json,
        },
    )
    return _fuzz(st.lists(st.tuples(st.booleans(), message | _json), max_size=6), check, rounds)


# ------------------------------------------------------------------------------------------------------------------


def _apart(work: Callable[[int], Tally], mutate: Mutation, rounds: int) -> Tally:
    def run() -> Tally:
        logging.disable(logging.CRITICAL)
        mutate()
        return work(rounds)

    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", tempfile.gettempdir())
    return apart(run)


def _cases() -> Iterator[Case]:
    for mode, key in MODES.items():
        yield Case(f"frame reader, {mode}", partial(_apart, partial(_frames, key), nothing), 2000, 60)
    yield Case("bundle importer", partial(_apart, _bundles, nothing), 10000, 300)
    yield Case("ACP reducer", partial(_apart, _reducer, nothing), 4000, 120)
    yield Case("JSON-RPC lines", partial(_apart, _lines, nothing), 10000, 500)
    yield Case("JSON-RPC relay", partial(_apart, _relay, nothing), 3000, 80)
    for name, work, mutate, without in (
        ("frame reader", partial(_frames, None), sloppy_frames, "refusing an unreadable header"),
        ("bundle importer", _bundles, sloppy_bundles, "refusing what is no JSON"),
        ("ACP reducer", _reducer, sloppy_updates, "passing over what is no time"),
        ("JSON-RPC lines", _lines, sloppy_lines, "cutting at newlines only"),
    ):
        yield Case(name, partial(_apart, work, mutate), 5000, 5000, without=without)


PROGRAM = Program(
    "fuzzing",
    "Whatever is read, nothing crashes or hangs; what makes no sense is refused in our own words.",
    tuple(_cases()),
)
