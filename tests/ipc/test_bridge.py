"""A front end asks, the bridge answers: over the same code that serves a pipe, in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import FilesystemStore, MemoryStore, SnapshotConfig, SnapshotManager, StoreUnavailable
from snapshot_plugin.ipc.bridge import Bridge, ClientState
from snapshot_plugin.ipc.requests import REQUESTS
from snapshot_plugin.ipc.serve import serve
from snapshot_plugin.model import ToolCallBlock
from snapshot_plugin.store.base import SnapshotStore, Trashed
from snapshot_plugin.testing import make_message, make_snapshot

pytestmark = pytest.mark.anyio

EMPTY = {"session_id": None, "is_restored": False, "message_count": 0}
SETTINGS = SnapshotConfig(snapshot_on_signal=False)


class FrontEnd:
    """What is on the other end of the pipe."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge

    async def ask(self, type_: str, **fields: Any) -> Any:
        return (await self.send(json.dumps({"type": type_, **fields}).encode() + b"\n"))[0]

    async def send(self, *chunks: bytes, limit: int = 1 << 20) -> list[Any]:
        async def arriving() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

        answers: list[bytes] = []
        await serve(self.bridge, arriving(), answers.append, limit=limit)
        assert all(answer.count(b"\n") == 1 for answer in answers)
        return [json.loads(answer) for answer in answers]

    async def say(self, *texts: str, **fields: Any) -> Any:
        return await self.ask(
            "session_message", messages=[{"role": "user", "content": text, **fields} for text in texts]
        )


@asynccontextmanager
async def front_end(store: SnapshotStore | None = None, **options: Any) -> AsyncIterator[FrontEnd]:
    async with store or MemoryStore() as place, SnapshotManager(place, SETTINGS) as manager:
        yield FrontEnd(Bridge(manager, **options))


# The current session -----------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "TERMINAL-IPC-CREATE", "TERMINAL-MANAGER-CREATE", "TERMINAL-IPC-TAGGED", "TERMINAL-TEST-IPC"
)
async def test_a_session_is_created_with_a_title_or_without() -> None:
    async with front_end() as ui:
        named = await ui.ask("session_create", title="Fix auth")
        nameless = await ui.ask("session_create")

        assert named["type"] == nameless["type"] == "session_created"
        assert named["session_id"] != nameless["session_id"]
        listed = (await ui.ask("session_list"))["sessions"]
        assert {each["session_id"]: each["title"] for each in listed} == {
            named["session_id"]: "Fix auth",
            nameless["session_id"]: None,
        }


@pytest.mark.requirement("TERMINAL-IPC-SAVE", "TERMINAL-MANAGER-SAVE", "TERMINAL-MANAGER-CURRENT")
async def test_save_stores_the_current_session_and_confirms() -> None:
    async with front_end() as ui:
        created = await ui.ask("session_create")
        await ui.say("hello")
        saved = await ui.ask("session_save")

        assert (saved["type"], saved["success"], saved["session_id"]) == (
            "session_saved",
            True,
            created["session_id"],
        )


@pytest.mark.requirement("TERMINAL-MANAGER-SAVE-NONE")
async def test_save_without_a_session_is_refused() -> None:
    async with front_end() as ui:
        saved = await ui.ask("session_save")

        assert (saved["type"], saved["success"], saved["code"]) == ("session_saved", False, "invalid_input")
        assert (await ui.ask("session_state"))["type"] == "session_state"


@pytest.mark.requirement("TERMINAL-MANAGER-SAVE", "TERMINAL-FEATURE-SAVE-ERRORS")
async def test_message_whose_save_fails_gets_an_error_and_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    async with front_end(store) as ui:
        await ui.say("hello")

        def refuse(*_args: object, **_options: object) -> None:
            raise StoreUnavailable("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(store.sync, "save", refuse)
            refused = await ui.say("lost?")
        again = await ui.say("not lost")

        assert (refused["type"], refused["code"], refused["retryable"]) == ("error", "store_unavailable", True)
        assert refused["state"]["message_count"] == 1
        assert again["message_count"] == 2


@pytest.mark.requirement("TERMINAL-IPC-LOAD", "TERMINAL-MANAGER-LOAD")
async def test_loaded_session_becomes_the_current_one() -> None:
    async with front_end() as ui:
        first = (await ui.say("one", "two"))["session_id"]
        await ui.ask("session_create")
        loaded = await ui.ask("session_load", session_id=first)

        assert (loaded["type"], loaded["session_id"], loaded["message_count"]) == ("session_loaded", first, 2)
        assert [message["content"][0]["text"] for message in loaded["messages"]] == ["one", "two"]
        added = await ui.say("three")
        assert (added["session_id"], added["message_count"]) == (first, 3)


async def test_failed_explicit_save_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async with front_end() as ui:
        await ui.say("hello")

        async def refuse(*_args: object, **_options: object) -> None:
            raise StoreUnavailable("the disk is full")

        monkeypatch.setattr(SnapshotManager, "snapshot", refuse)
        saved = await ui.ask("session_save")

        assert (saved["type"], saved["success"], saved["code"]) == ("session_saved", False, "store_unavailable")


async def test_message_over_a_megabyte_is_stored_whole_and_reported() -> None:
    async with front_end() as ui:
        (added,) = await ui.send(
            json.dumps(
                {"type": "session_message", "messages": [{"role": "user", "content": "x" * 2_000_000}]}
            ).encode(),
            limit=4_000_000,
        )
        loaded = await ui.ask("session_load", session_id=added["session_id"])

        assert len(added["notices"]) == 1
        assert len(loaded["messages"][0]["content"][0]["text"]) == 2_000_000
        assert (await ui.say("small"))["notices"] == []


async def test_messages_are_paged() -> None:
    async with front_end() as ui:
        session_id = (await ui.say(*map(str, range(10))))["session_id"]
        page = await ui.ask("session_load", session_id=session_id, offset=4, limit=2)
        none = await ui.ask("session_load", session_id=session_id, limit=0)

        assert [message["content"][0]["text"] for message in page["messages"]] == ["4", "5"]
        assert (none["messages"], none["message_count"]) == ([], 10)


@pytest.mark.requirement("TERMINAL-FEATURE-AUTO-CREATE")
async def test_first_message_starts_a_session() -> None:
    async with front_end() as ui:
        added = await ui.say("hello")

        assert added["type"] == "session_message_added"
        assert added["state"] == {"session_id": added["session_id"], "is_restored": False, "message_count": 1}
        assert len((await ui.ask("session_list"))["sessions"]) == 1


@pytest.mark.requirement("TERMINAL-SESSION-ADD", "TERMINAL-SESSION-ADD-TOKENS", "TERMINAL-BRIDGE-TOKENS")
async def test_adding_a_message_updates_count_time_and_tokens() -> None:
    store = MemoryStore()
    async with front_end(store) as ui:
        session_id = (await ui.ask("session_create"))["session_id"]
        (before,) = (await ui.ask("session_list"))["sessions"]
        await ui.say("question", token_count=12)
        answer = {"role": "assistant", "content": "answer", "token_count": 156}
        added = await ui.ask("session_message", messages=[answer])
        (after,) = (await ui.ask("session_list"))["sessions"]

        assert (before["message_count"], before["total_tokens"]) == (0, 0)
        assert (after["message_count"], after["total_tokens"], added["total_tokens"]) == (2, 168, 168)
        assert after["updated_at"] > before["updated_at"]
        stored = await store.load(session_id)
        assert stored.messages[1].token_count == 156
        assert (stored.metrics.output_tokens, stored.metrics.input_tokens, stored.metrics.turns) == (156, 12, 1)


async def test_tool_calls_of_different_requests_have_different_ids() -> None:
    store = MemoryStore()
    async with front_end(store) as ui:
        call = {"role": "assistant", "content": "", "tool_calls": [{"tool": "read_file", "args": {"path": "/x"}}]}
        await ui.ask("session_message", messages=[call])
        session_id = (await ui.ask("session_message", messages=[call]))["session_id"]
        blocks = [block for message in (await store.load(session_id)).messages for block in message.content]

        assert [block.tool_call_id for block in blocks if isinstance(block, ToolCallBlock)] == [
            "call-0-0",
            "call-1-0",
        ]


async def test_context_accumulates_over_restarts(tmp_path: Path) -> None:
    session_id = ""
    for day in range(3):
        async with front_end(FilesystemStore(tmp_path)) as ui:
            if session_id:
                loaded = await ui.ask("session_load", session_id=session_id)
                assert loaded["message_count"] == day
            session_id = (await ui.say(f"day {day}"))["session_id"]
    async with front_end(FilesystemStore(tmp_path)) as ui:
        loaded = await ui.ask("session_load", session_id=session_id)
        assert [message["content"][0]["text"] for message in loaded["messages"]] == ["day 0", "day 1", "day 2"]


# State -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("TERMINAL-STATE-DEFAULT")
async def test_initial_state_is_empty() -> None:
    async with front_end() as ui:
        assert (await ui.ask("session_state"))["state"] == EMPTY
    assert ClientState() == ClientState(session_id=None, is_restored=False, message_count=0)


@pytest.mark.requirement("TERMINAL-STATE-START")
async def test_start_sets_the_id_and_resets_the_rest() -> None:
    async with front_end() as ui:
        first = (await ui.say("a", "b"))["session_id"]
        await ui.ask("session_load", session_id=first)
        created = await ui.ask("session_create")

        assert created["state"] == {"session_id": created["session_id"], "is_restored": False, "message_count": 0}


@pytest.mark.requirement("TERMINAL-STATE-RESTORE")
async def test_restore_sets_id_flag_and_count() -> None:
    async with front_end() as ui:
        first = (await ui.say("a", "b"))["session_id"]
        await ui.ask("session_clear")
        loaded = await ui.ask("session_load", session_id=first)

        assert loaded["state"] == {"session_id": first, "is_restored": True, "message_count": 2}


@pytest.mark.requirement("TERMINAL-STATE-INCREMENT")
async def test_each_message_increments_the_count() -> None:
    async with front_end() as ui:
        counts = [(await ui.say("x"))["state"]["message_count"] for _ in range(3)]
        more = (await ui.say("y", "z"))["state"]["message_count"]

        assert [*counts, more] == [1, 2, 3, 5]


@pytest.mark.requirement("TERMINAL-STATE-CLEAR")
async def test_clear_restores_the_initial_state() -> None:
    async with front_end() as ui:
        await ui.say("x")
        cleared = await ui.ask("session_clear")

        assert (cleared["type"], cleared["state"]) == ("session_cleared", EMPTY)
        assert not (await ui.ask("session_save"))["success"]


# All sessions ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("TERMINAL-IPC-LIST", "TERMINAL-IPC-INFO")
async def test_sessions_are_listed_newest_first_and_can_be_limited() -> None:
    store = MemoryStore()
    async with front_end(store) as ui:
        await store.save(make_snapshot(session_id="01+memory", memory={"a": 1}))
        await store.save(make_snapshot("x", session_id="01", title="Old", tags=("t",)))
        newest = (await ui.say("hello", token_count=3))["session_id"]
        answer = await ui.ask("session_list")

        assert answer["type"] == "session_list_result"
        assert [each["session_id"] for each in answer["sessions"]] == [newest, "01"]
        assert answer["sessions"][1] == {
            "session_id": "01",
            "title": "Old",
            "created_at": "2026-01-01T00:00:00.000000Z",
            "updated_at": "2026-01-01T00:00:00.000000Z",
            "message_count": 1,
            "total_tokens": 0,
            "tags": ["t"],
            "state": "ok",
        }
        assert [each["session_id"] for each in (await ui.ask("session_list", limit=1))["sessions"]] == [newest]


@pytest.mark.requirement("TERMINAL-MANAGER-INDEX")
async def test_list_needs_no_index_file(tmp_path: Path) -> None:
    async with front_end(FilesystemStore(tmp_path)) as ui:
        assert (await ui.ask("session_list"))["sessions"] == []
        session_id = (await ui.say("hello"))["session_id"]
    async with front_end(FilesystemStore(tmp_path)) as ui:
        assert [each["session_id"] for each in (await ui.ask("session_list"))["sessions"]] == [session_id]


@pytest.mark.requirement("TERMINAL-IPC-DELETE")
async def test_deleted_session_goes_to_the_trash() -> None:
    store = MemoryStore()
    told: list[Trashed] = []

    async def tell(trashed: Sequence[Trashed]) -> None:
        told.extend(trashed)

    async with front_end(store, deleted=tell) as ui:
        session_id = (await ui.say("x"))["session_id"]
        deleted = await ui.ask("session_delete", session_id=session_id)

        assert (deleted["type"], deleted["success"], deleted["state"]) == ("session_deleted", True, EMPTY)
        assert (await ui.ask("session_list"))["sessions"] == []
        again = await ui.ask("session_delete", session_id=session_id)
        assert (again["type"], again["success"], again["code"]) == ("session_deleted", False, "snapshot_not_found")
        assert await store.undelete(told[0].token) == session_id


async def test_companions_of_a_session_are_not_listed_and_are_deleted_with_it() -> None:
    store = MemoryStore()
    async with front_end(store) as ui:
        await store.save(make_snapshot("x", session_id="s"))
        await store.save(make_snapshot(session_id="s+memory", memory={"a": 1}))
        await store.save(make_snapshot("inner", session_id="s+subgraphs"))
        assert [each["session_id"] for each in (await ui.ask("session_list"))["sessions"]] == ["s"]
        await ui.ask("session_delete", session_id="s")

        assert await store.list() == []


@pytest.mark.requirement("TERMINAL-IPC-EXPORT", "TERMINAL-MANAGER-CURRENT")
async def test_a_session_is_exported_by_id_or_the_current_one() -> None:
    async with front_end() as ui:
        first = (await ui.say("first words"))["session_id"]
        await ui.ask("session_create", title="Second")
        named = await ui.ask("session_export", session_id=first, format="markdown")
        current = await ui.ask("session_export", format="html")
        document = await ui.ask("session_export", session_id=first, format="json")

        assert named["type"] == "session_exported"
        assert "first words" in named["content"]
        assert current["content"].startswith("<!DOCTYPE html>")
        assert "Second" in current["content"]
        assert json.loads(document["content"])["session_id"] == first


@pytest.mark.requirement("TERMINAL-EXPORT-NONE")
async def test_export_without_a_session_returns_nothing() -> None:
    async with front_end() as ui:
        exported = await ui.ask("session_export")
        assert (exported["type"], exported["content"]) == ("session_exported", "")


# What goes wrong ---------------------------------------------------------------------------------------------


BAD: list[tuple[bytes, str]] = [
    (b"nonsense", "invalid_input"),
    (b"[]", "invalid_input"),
    (b"null", "invalid_input"),
    (b"\xff\xfe", "invalid_input"),
    (b"[" * 50_000, "invalid_input"),
    (b'{"type":"nope"}', "invalid_input"),
    (b'{"type":["session_list"]}', "invalid_input"),
    (b"{}", "invalid_input"),
    (b'{"type":"session_create","title":7}', "invalid_input"),
    (b'{"type":"session_create","titel":"x"}', "invalid_input"),
    (b'{"type":"session_load"}', "invalid_input"),
    (b'{"type":"session_load","session_id":".."}', "invalid_session_id"),
    (b'{"type":"session_load","session_id":"nobody"}', "snapshot_not_found"),
    (b'{"type":"session_delete","session_id":"a\\u0000b"}', "invalid_session_id"),
    (b'{"type":"session_list","limit":0}', "invalid_input"),
    (b'{"type":"session_list","limit":"5"}', "invalid_input"),
    (b'{"type":"session_list","limit":NaN}', "invalid_input"),
    (b'{"type":"session_export","format":"pdf"}', "invalid_input"),
    (b'{"type":"session_export","session_id":"nobody"}', "snapshot_not_found"),
    (b'{"type":"session_message","messages":[]}', "invalid_input"),
    (b'{"type":"session_message","messages":["x"]}', "invalid_input"),
    (b'{"type":"session_message","messages":[{"role":"robot","content":"x"}]}', "invalid_snapshot"),
    (b'{"type":"session_message","messages":[{"role":"user","content":7}]}', "invalid_snapshot"),
    (
        b'{"type":"session_message","messages":[{"role":"user","content":"x","timestamp":"noon"}]}',
        "invalid_snapshot",
    ),
    (
        b'{"type":"session_message","messages":[{"role":"user","content":"x","token_count":"many"}]}',
        "invalid_snapshot",
    ),
]


@pytest.mark.parametrize(("line", "code"), BAD, ids=range(len(BAD)))
async def test_a_bad_request_is_refused_and_the_next_one_is_served(line: bytes, code: str) -> None:
    async with front_end() as ui:
        refused, served = await ui.send(line + b"\n" + b'{"type":"session_list"}\n')

        assert (refused["type"], refused["code"], refused["state"]) == ("error", code, EMPTY)
        assert refused["message"]
        assert served["sessions"] == []


@pytest.mark.parametrize("depth", [100, 300, 450, 480, 490, 495, 600, 900, 990, 5_000])
async def test_deep_nesting_is_stored_or_refused_and_never_a_crash(depth: int) -> None:
    message = '{"role":"user","content":"x","metadata":' + '{"a":' * depth + "1" + "}" * (depth + 1)
    async with front_end() as ui:
        (answer,) = await ui.send(f'{{"type":"session_message","messages":[{message}]}}'.encode())
        assert answer["type"] == ("session_message_added" if depth < 400 else answer["type"])
        assert answer.get("code") in (None, "invalid_snapshot", "invalid_input")
        for form in ("markdown", "html", "json"):
            assert (await ui.ask("session_export", format=form))["type"] in ("session_exported", "error")
        if answer["type"] == "session_message_added":
            assert (await ui.ask("session_load", session_id=answer["session_id"]))["message_count"] == 1


async def test_refused_message_leaves_nothing_behind() -> None:
    async with front_end() as ui:
        good, bad = {"role": "user", "content": "good"}, {"role": "robot", "content": "bad"}
        await ui.say("first")
        await ui.ask("session_message", messages=[good, bad])

        assert (await ui.ask("session_save"))["state"]["message_count"] == 1


@pytest.mark.parametrize("correlation", ["a", 7, 0])
async def test_response_repeats_the_request_id(correlation: Any) -> None:
    async with front_end() as ui:
        assert (await ui.ask("session_list", id=correlation))["id"] == correlation
        assert (await ui.ask("nope", id=correlation))["id"] == correlation
        assert "id" not in await ui.ask("session_list")


async def test_overlong_line_is_refused_without_buffering_it() -> None:
    async with front_end() as ui:
        chunks = [b'{"type":"session_create","title":"', *[b"x" * 1000] * 50, b'"}\n{"type":"session_list"}\n']
        refused, served = await ui.send(*chunks, limit=2000)

        assert (refused["type"], refused["code"]) == ("error", "limit_exceeded")
        assert served["sessions"] == []


async def test_lines_may_arrive_in_arbitrary_pieces() -> None:
    message = b'{"type":"session_message","messages":[{"role":"user","content":"\xc3\xa4"}]}'
    stream = b'\n{"type":"session_create"}\r\n\n' + message
    async with front_end() as ui:
        answers = await ui.send(*[stream[at : at + 1] for at in range(len(stream))])

        assert [answer["type"] for answer in answers] == ["session_created", "session_message_added"]


async def test_session_owned_by_another_process_is_refused_and_the_current_one_kept(tmp_path: Path) -> None:
    async with front_end(FilesystemStore(tmp_path)) as one, front_end(FilesystemStore(tmp_path)) as other:
        theirs = (await one.say("mine"))["session_id"]
        ours = (await other.say("ours"))["session_id"]
        for request in ("session_load", "session_delete"):
            refused = await other.ask(request, session_id=theirs)
            assert (refused["code"], refused["retryable"], refused["state"]["session_id"]) == ("locked", True, ours)
        assert (await other.say("still"))["message_count"] == 2
        await one.ask("session_clear")
        assert (await other.ask("session_load", session_id=theirs))["message_count"] == 1


async def test_damaged_session_is_reported_as_damaged(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store:
        await store.save(make_snapshot("x", session_id="s"))
    spoil(tmp_path)
    async with front_end(FilesystemStore(tmp_path)) as ui:
        assert (await ui.ask("session_list"))["sessions"][0]["state"] == "damaged"
        assert (await ui.ask("session_load", session_id="s"))["code"] == "corrupted"


def spoil(store: Path) -> None:
    (file,) = store.glob("sessions/s/*.snap.gz")
    file.write_bytes(file.read_bytes()[:-9] + b"?" * 9)


async def test_load_includes_messages_added_by_another_program() -> None:
    store = MemoryStore()
    async with front_end(store) as ui:
        session_id = (await ui.say("one"))["session_id"]
        await ui.ask("session_clear")
        await store.save((await store.load(session_id)).append(make_message("two")))
        assert (await ui.ask("session_load", session_id=session_id))["message_count"] == 2


def test_every_request_is_on_the_reference_page() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/ipc.md").read_text("utf-8")
    for model in REQUESTS:
        name = model.model_fields["type"].annotation
        assert f"`{name.__args__[0]}`" in page  # type: ignore[union-attr]
        for field in model.model_fields.keys() - {"type"}:
            assert f"`{field}`" in page
