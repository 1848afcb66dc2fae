"""What callers pass that cannot be stored is refused by name; what is merely unusual is kept as it came."""

from __future__ import annotations

import gzip
import math
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import (
    FilesystemStore,
    InvalidInput,
    InvalidSessionId,
    InvalidSnapshot,
    Message,
    RetentionPolicy,
)
from snapshot_plugin.codec.document import message_line
from snapshot_plugin.model import ToolCallBlock
from snapshot_plugin.store.engine import StoreLimits
from snapshot_plugin.testing import FixedClock, make_message, make_snapshot
from tests.faults.support import PLAIN_AND_ENCRYPTED, names_in, segments_of, store_at, version
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it
from tests.unknown_fields import with_unknown

pytestmark = pytest.mark.anyio
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 — the mistake this is about
Operation = Callable[[FilesystemStore, str], Awaitable[Any]]

OPERATIONS: dict[str, Operation] = {
    "save": lambda store, session_id: store.save(make_snapshot(session_id=session_id)),
    "load": lambda store, session_id: store.load(session_id),
    "read": lambda store, session_id: store.read(session_id, at=1),
    "history": lambda store, session_id: store.history(session_id),
    "forget": lambda store, session_id: store.forget(session_id, RetentionPolicy(keep_last=1)),
    "compact": lambda store, session_id: store.compact(session_id),
    "delete": lambda store, session_id: store.delete(session_id),
}


# Ids -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("FORMAT-NAME-EMPTY", "FORMAT-NAME-DOTS", "FORMAT-NAME-CONTROL", "TERMINAL-SECURITY-IDS")
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "session_id",
    ["", ".", "..", "nul\0byte", "line\nbreak", "\x7f", "x" * 20_000, "é" * 3_400, "lone \ud800"],
    ids=["empty", "dot", "dots", "nul", "line", "delete", "20000 bytes", "long when encoded", "surrogate"],
)
async def test_invalid_id_is_refused_and_nothing_is_written(
    tmp_path: Path, operation: str, session_id: str
) -> None:
    store = store_at(tmp_path / "store")
    with pytest.raises(InvalidSessionId):
        await OPERATIONS[operation](store, session_id)
    assert names_in(tmp_path) == []


UNUSUAL = (
    "a/b", "../up", "/etc/passwd", "a\\b", "...", ".hidden", "%2e%2e", "a%2fb", "🦜", "ß", "ss", "A", "a", "Ab",
    "aB", "CON", " ", "~", "-rf", "x" * 200, "x" * 201, "x" * 202, "Ä" * 300, "c:d", "*",
)  # fmt: skip


@pytest.mark.requirement(
    "STORE-FAULT-EMOJI",
    "FORMAT-NAME-CASE",
    "FORMAT-NAME-DOT",
    "FORMAT-NAME-LONG",
    "TERMINAL-SECURITY-TRAVERSAL",
    "TERMINAL-SECURITY-NAMES",
)
async def test_ids_with_slashes_emoji_or_differing_case_are_separate_sessions(tmp_path: Path) -> None:
    async with store_at(tmp_path / "store") as store:
        for session_id in UNUSUAL:
            await store.save(make_snapshot(f"I am {session_id}", session_id=session_id), base=0)
        assert {meta.session_id for meta in await store.list()} == set(UNUSUAL)
    async with store_at(tmp_path / "store") as store:
        for session_id in UNUSUAL:
            assert await store.load(session_id) == make_snapshot(f"I am {session_id}", session_id=session_id)
    names = names_in(tmp_path / "store" / "sessions")
    assert len({name.casefold() for name in names}) == len(UNUSUAL)
    assert all(name.isascii() and not name.startswith(".") for name in names)
    assert max(map(len, names)) == 200
    assert names_in(tmp_path) == ["store"]


# Values ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("STORE-VALUE-NAN")
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda x: make_snapshot(metadata={"deep": [0, x]}), "metadata.deep[1]"),
        (lambda x: make_snapshot().evolve(memory={"notes": {"x": x}}), "memory.notes.x"),
        (lambda x: make_message("hello", metadata={"score": x}), "metadata.score"),
        (lambda x: ToolCallBlock(tool_call_id="1", raw_output=[x]), "raw_output[0]"),
        (lambda x: make_snapshot(metrics={"cost": x}), "metrics.cost"),
    ],
    ids=["section", "evolve", "message", "tool output", "number field"],
)
async def test_number_beyond_json_is_refused_on_entry(
    make: Callable[[float], object], place: str, number: float
) -> None:
    with pytest.raises(InvalidSnapshot) as refused:
        make(number)
    assert place in refused.value.message


@pytest.mark.requirement("STORE-VALUE-SURROGATE", "FORMAT-PAYLOAD-SURROGATE")
@PLAIN_AND_ENCRYPTED
async def test_lone_surrogates_are_kept_everywhere(tmp_path: Path, key: str | None) -> None:
    lone = "half \ud83d of a pair, é"
    call = ToolCallBlock(tool_call_id=lone, content=[{"text": lone}], raw_output={lone: lone})
    made = make_snapshot(lone, title=lone, tags=(lone,), current_task=lone, metadata={lone: lone, "é": lone})
    snapshot = with_unknown(made.append(Message(role="assistant", content=(call,))), other=lone)
    async with store_at(tmp_path, key) as store:
        await store.save(snapshot, tags=[lone], trigger=lone)
    async with store_at(tmp_path, key) as store:
        assert await store.load("session") == snapshot
        [meta] = await store.list()
        assert (meta.state, meta.title, meta.snapshot_tags, meta.trigger) == ("ok", lone, (lone,), lone)
        assert (await store.check()).findings == ()
    if key is None:
        [segment] = segments_of(tmp_path)
        lines = gzip.decompress(segment.read_bytes()).splitlines()
        broken = [line for line in lines if rb"\ud83d" in line]
        assert len(broken) >= 6
        assert all(line.isascii() for line in broken if b'"section"' not in line)


async def test_a_section_keeps_one_value_when_lone_surrogates_come_and_go(tmp_path: Path) -> None:
    values = ("first", "\ud800", "last", "\ud800")
    async with store_at(tmp_path) as store:
        for value in values:
            await store.save(make_snapshot(metadata={"é": value}))
        await store.save(make_snapshot())
    async with store_at(tmp_path) as store:
        for seq, value in enumerate(values, start=1):
            assert (await store.load("session", at=seq)).metadata == {"é": value}
        assert (await store.load("session")).metadata == {}
        assert (await store.check()).findings == ()


@pytest.mark.requirement("STORE-FAULT-20MB", "STORE-TOO-LARGE-NOTICE", "TERMINAL-LIMIT-MESSAGE")
@PLAIN_AND_ENCRYPTED
async def test_20_mb_of_tool_output_is_kept_whole_and_reported(tmp_path: Path, key: str | None) -> None:
    output = "".join(f"{n * n % 999983} lines of output\n" for n in range(900_000))
    assert len(output) > 20_000_000
    call = ToolCallBlock(tool_call_id="1", title="cat everything", status="completed", raw_output=output)
    snapshot = make_snapshot("show me").append(Message(role="assistant", content=(call,)))
    async with store_at(tmp_path, key) as store:
        ref = await store.save(snapshot)
        size = len(message_line(snapshot.messages[1]))
        assert ref.notices == (f"1 message over 1048576 bytes, the largest {size}",)
    async with store_at(tmp_path, key) as store:
        assert await store.load("session") == snapshot
        # It is mentioned when it is written, and not with every save after that.
        assert (await store.save(snapshot.append(make_message("thanks")))).notices == ()


@pytest.mark.requirement("STORE-TOO-LARGE-NOTICE", "TERMINAL-LIMIT-SESSION")
async def test_session_over_its_size_limit_is_reported_and_never_truncated(tmp_path: Path) -> None:
    async with store_at(tmp_path, limits=StoreLimits(session_bytes=1000)) as store:
        assert (await store.save(make_snapshot("x" * 700))).notices == ()
        large = make_snapshot("x" * 700, "y" * 700)
        [notice] = (await store.save(large)).notices
        assert "over 1000" in notice
        assert await store.load("session") == large


@pytest.mark.requirement("STORE-VALUE-NAIVE")
@pytest.mark.parametrize(
    "make",
    [
        lambda: make_snapshot(created_at=NAIVE),
        lambda: make_snapshot().evolve(updated_at=NAIVE),
        lambda: make_message("hello", timestamp=NAIVE),
    ],
    ids=["created", "evolve", "message"],
)
async def test_a_time_without_a_zone_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidSnapshot):
        make()


async def test_a_purge_by_a_time_without_a_zone_is_refused_and_removes_nothing(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.save(version(1))
        await store.delete("session")
        with pytest.raises(InvalidInput):
            await store.purge(now=NAIVE, older_than=timedelta(0))
        assert len(await store.trash()) == 1


@pytest.mark.requirement("STORE-ORDER-CLOCK", "FORMAT-ORDER-HI")
async def test_clock_running_backwards_changes_no_order(tmp_path: Path) -> None:
    clock = FixedClock()
    for number in range(1, 4):
        async with store_at(tmp_path, clock=clock) as store:
            aged = version(number).evolve(updated_at=clock())
            assert (await store.save(aged)).seq == number
        clock.advance(timedelta(days=-1))
    async with store_at(tmp_path, clock=clock) as store:
        assert (await store.load("session")).messages == version(3).messages
        history = await store.history("session")
        assert [meta.seq for meta in history] == [3, 2, 1]
        assert history[0].saved_at < history[1].saved_at < history[2].saved_at
        assert [meta.seq for meta in await store.list()] == [3]
        await store.forget("session", RetentionPolicy(keep_last=1))
        assert [meta.seq for meta in await store.history("session")] == [3]
        assert (await store.check()).findings == ()
