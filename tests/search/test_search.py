from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import MemoryStore, Message
from snapshot_plugin.model import ImageBlock, PlanEntry, TextBlock, ThoughtBlock, ToolCallBlock
from snapshot_plugin.search.content import all_indexed, put, read_entry
from snapshot_plugin.search.database import heads
from snapshot_plugin.search.find import END, START
from snapshot_plugin.search.index import opened_index
from snapshot_plugin.testing import make_message, make_snapshot
from tests.one_loop import anyio_backend, both_loops  # noqa: F401 — pytest uses it
from tests.search.searching import Reads, found, index_file, places, stored

pytestmark = pytest.mark.anyio

SECRET = "AKIAIOSFODNN7EXAMPLZ"
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)

# What is found -----------------------------------------------------------------------------------------------


async def test_every_message_and_tool_call_is_found_at_its_position(tmp_path: Path) -> None:
    call = ToolCallBlock(
        tool_call_id="c", title="Run grep", kind="execute", raw_input={"command": "rg walrus"},
        content=[{"type": "content", "content": {"type": "text", "text": "a penguin"}}],
        locations=[{"path": "src/otter.py"}], raw_output={"deep": [{"er": "a seal"}]},
    )  # fmt: skip
    said = Message(role="assistant", content=(ThoughtBlock(text="a gull"), call, TextBlock(text="a tern")))
    session = make_snapshot("an orca", session_id="zoo", title="Whales", plan=(PlanEntry(content="feed dolphins"),))
    async with stored(tmp_path, session.append(said, current_task="clean krill", tags=("plankton",))) as store:
        for word in ("walrus", "penguin", "otter", "seal", "gull", "tern", "grep"):
            assert await places(store, tmp_path, word) == [("zoo", 2)], word
        assert await places(store, tmp_path, "orca") == [("zoo", 1)]
        for word in ("whales", "dolphins", "krill", "plankton"):
            assert await places(store, tmp_path, word) == [("zoo", 0)], word


async def test_tags_of_a_session_and_of_its_snapshots_are_found(tmp_path: Path) -> None:
    session = make_snapshot("ape", session_id="s", tags=("urgent",))
    async with stored(tmp_path) as store:
        await store.save(session, tags=["pre-deploy"])
        await store.save(session.append(make_message("more")))
        assert await places(store, tmp_path, "tag:urgent") == [("s", 0)]
        result, _ = await found(store, tmp_path, "tag:pre-deploy")
        assert [hit.snippet.replace(START, "").replace(END, "") for hit in result.hits] == [
            "tag:urgent\ntag:pre-deploy s@1"
        ]
        assert await places(store, tmp_path, "tag:ape") == []


async def test_log_with_a_match_in_every_line_is_shown_quickly(tmp_path: Path) -> None:
    log = "nothing\n" * 20_000 + "the walrus sleeps\n" * 100_000 + "at the zoo\n"
    async with stored(tmp_path, make_snapshot(log, session_id="s")) as store:
        begin = time.process_time()
        [hit] = (await found(store, tmp_path, "walrus"))[0].hits
        assert f"{START}walrus{END}" in hit.snippet
        [hit] = (await found(store, tmp_path, "nothing zoo"))[0].hits  # too far apart to be shown together
        assert hit.snippet.startswith("nothing")
        assert time.process_time() - begin < 20, "the square of the matches took minutes"


async def test_image_bytes_and_call_ids_are_not_indexed(tmp_path: Path) -> None:
    picture = ImageBlock(data="QUJDREVGRw", mime_type="image/png")
    call = ToolCallBlock(tool_call_id="callidentity", status="completed")
    message = Message(role="user", content=(picture, call, TextBlock(text="look")))
    async with stored(tmp_path, make_snapshot(session_id="s").append(message)) as store:
        assert await places(store, tmp_path, "look") == [("s", 1)]
        for word in ("QUJDREVGRw", "callidentity", "completed", "png"):
            assert await places(store, tmp_path, word) == []


async def test_most_recently_changed_session_comes_first_with_messages_in_order(tmp_path: Path) -> None:
    old, new = (make_snapshot("ape", "x", "ape", session_id=name, updated_at=NOON + timedelta(days=day))
                for name, day in (("old", 0), ("new", 1)))  # fmt: skip
    async with stored(tmp_path, new, old) as store:
        assert await places(store, tmp_path, "ape") == [("new", 1), ("new", 3), ("old", 1), ("old", 3)]
        result, _ = await found(store, tmp_path, "ape", each=1, limit=5)
        assert [(hit.session_id, hit.number) for hit in result.hits] == [("new", 1), ("old", 1)]
        assert result.counts == {"new": 2, "old": 2}
        assert await places(store, tmp_path, "ape", limit=3) == [("new", 1), ("new", 3), ("old", 1)]


async def test_snippet_marks_the_match_in_any_text(tmp_path: Path) -> None:
    text = f"before {START}{END}\x00 the NEEDLE after"
    async with stored(tmp_path, make_snapshot(text, session_id="s")) as store:
        result, _ = await found(store, tmp_path, "needle")
        assert f"the {START}NEEDLE{END} after" in result.hits[0].snippet
        assert result.hits[0].snippet.count(START) == 1


async def test_each_hit_of_a_long_session_shows_its_own_text(tmp_path: Path) -> None:
    async with stored(tmp_path, make_snapshot(*(f"ape w{n}x" for n in range(100)), session_id="s")) as store:
        result, _ = await found(store, tmp_path, "ape", limit=100, each=100)
        assert [hit.snippet for hit in result.hits] == [f"{START}ape{END} w{n}x" for n in range(100)]


async def test_scripts_without_spaces_are_shown_unchanged(tmp_path: Path) -> None:
    async with stored(tmp_path, make_snapshot("全文搜索很好", session_id="s")) as store:
        result, _ = await found(store, tmp_path, "搜索")
        assert result.hits[0].snippet.replace(START, "").replace(END, "") == "全文搜索很好"


async def test_date_filter_uses_message_times_or_the_sessions(tmp_path: Path) -> None:
    timed = [make_message("ape", timestamp=NOON + timedelta(days=day)) for day in (0, 2, 4)]
    session = make_snapshot(session_id="timed", updated_at=NOON + timedelta(days=9)).append(*timed)
    untimed = make_snapshot("ape", session_id="untimed", updated_at=NOON + timedelta(days=3))
    async with stored(tmp_path, session, untimed) as store:
        since = await places(store, tmp_path, "ape", since=NOON + timedelta(days=1))
        until = await places(store, tmp_path, "ape", until=NOON + timedelta(days=2))
        assert since == [("timed", 2), ("timed", 3), ("untimed", 1)]
        assert until == [("timed", 1), ("timed", 2)]


async def test_secrets_are_never_indexed(tmp_path: Path) -> None:
    call = ToolCallBlock(tool_call_id="c", raw_input={"password": "hunter2hunter"})
    message = Message(role="assistant", content=(TextBlock(text=f"key {SECRET} here"), call))
    session = make_snapshot(session_id="s", title=f"about {SECRET}").append(message)
    async with stored(tmp_path, session) as store:
        cache = tmp_path / "cache"
        assert await places(store, cache, "here") == [("s", 1)]
        for secret in (SECRET, "hunter2hunter"):
            assert await places(store, cache, secret) == []
        connection = sqlite3.connect(index_file(cache))
        connection.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', 'message', 'row')")
        words = {word for (word,) in connection.execute("SELECT term FROM temp.vocabulary")}
        texts = "".join(body for (body,) in connection.execute("SELECT body FROM message"))
        facts = connection.execute("SELECT facts FROM session").fetchone()[0]
        connection.close()
        assert "here" in words
        for secret in (SECRET, "hunter2hunter"):
            assert secret.lower() not in words
            assert secret.lower() not in texts.lower() + facts.lower()


# Following the store -----------------------------------------------------------------------------------------


async def test_only_sessions_that_changed_are_read_again(tmp_path: Path) -> None:
    sessions = [make_snapshot(f"word{n}", session_id=f"s{n}", title=f"s{n}") for n in range(4)]
    async with stored(tmp_path, *sessions) as store:
        first, second, third = Reads(), Reads(), Reads()
        await found(store, tmp_path, "word0", first)
        await found(store, tmp_path, "word0", second)
        await store.save(sessions[2].append(make_message("appended")))
        assert await places(store, tmp_path, "appended", only=None) == [("s2", 2)]
        await found(store, tmp_path, "word0", third)
        assert (sorted(first.names), second.names, third.names) == (["s0", "s1", "s2", "s3"], [], [])


class Interrupted(Reads):
    """Is cancelled when a third session is about to be read."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        super().__init__()
        self._scope = scope

    @contextmanager
    def __call__(self, total: int) -> Iterator[Callable[[str], None]]:
        def step(name: str) -> None:
            if len(self.names) == 2:
                self._scope.cancel()
            self.names.append(name)

        yield step


@pytest.mark.parametrize("key", [None, "k"])
@both_loops
async def test_interrupted_indexing_continues_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    monkeypatch.setattr("snapshot_plugin.search.index._BATCH", 0)
    sessions = [make_snapshot("ape", session_id=f"s{n}", title=f"s{n}") for n in range(5)]
    async with stored(tmp_path, *sessions, key=key) as store:
        with anyio.CancelScope() as scope:
            first = Interrupted(scope)
            await found(store, tmp_path / "cache", "ape", first)
        assert scope.cancelled_caught
        second = Reads()
        result, _ = await found(store, tmp_path / "cache", "ape", second)
        assert len(result.hits) == 5
        assert sorted([*first.names[:2], *second.names]) == [f"s{n}" for n in range(5)]


async def test_text_removed_from_a_session_is_no_longer_found(tmp_path: Path) -> None:
    words = [f"w{n}x" for n in range(100)]
    session = make_snapshot(*words, session_id="s")
    async with stored(tmp_path, session) as store:
        assert await places(store, tmp_path, "w70x") == [("s", 71)]
        shorter = session.evolve(messages=(*session.messages[:40], make_message("summary"), *session.messages[90:]))
        await store.save(shorter)

        reads = Reads()
        assert (await found(store, tmp_path, "w70x", reads))[0].hits == ()
        for word, number in (("summary", 41), ("w95x", 47), ("w5x", 6)):
            (hit,) = (await found(store, tmp_path, word, reads))[0].hits
            assert (hit.number, START + word + END in hit.snippet) == (number, True)
        assert len(reads.names) == 1  # it was changed where it was, not made anew


async def test_messages_with_changed_times_are_found_by_the_new_ones(tmp_path: Path) -> None:
    said = [make_message("ape", timestamp=NOON + timedelta(days=day)) for day in range(3)]
    session = make_snapshot(session_id="s").append(*said)
    async with stored(tmp_path, session) as store:
        await places(store, tmp_path, "ape")
        moved = [said[0], *(message.evolve(timestamp=NOON + timedelta(days=9)) for message in said[1:])]
        await store.save(session.evolve(messages=tuple(moved)))
        reads = Reads()
        result, _ = await found(store, tmp_path, "ape", reads, since=NOON + timedelta(days=5))
        assert ([hit.number for hit in result.hits], len(reads.names)) == ([2, 3], 1)


async def test_index_reads_and_writes_only_the_new_messages_of_a_session(tmp_path: Path) -> None:
    session = make_snapshot(*(f"w{n}x" for n in range(100)), session_id="s")
    async with stored(tmp_path, session) as store:
        await places(store, tmp_path / "cache", "w1x")
        await store.save(session.append(make_message("appended")))
        (meta,) = await store.list()
        with closing(sqlite3.connect(index_file(tmp_path / "cache"))) as connection:
            before = all_indexed(connection)["s"]
            entry = await read_entry(store, meta, before)
            assert [text.body for text in entry.texts[1:]] == ["appended"]
            connection.execute("UPDATE session SET digest = 'of another process'")
            assert not put(connection, entry)
        assert await places(store, tmp_path / "cache", "appended") == [("s", 101)]
        assert await places(store, tmp_path / "cache", "w99x") == [("s", 100)]


async def test_deleted_session_leaves_the_index_and_returns_when_restored(tmp_path: Path) -> None:
    async with stored(
        tmp_path, make_snapshot("ape", session_id="a"), make_snapshot("ape", session_id="b")
    ) as store:
        assert len(await places(store, tmp_path, "ape")) == 2
        trashed = await store.delete("a")
        assert await places(store, tmp_path, "ape") == [("b", 1)]
        with sqlite3.connect(index_file(tmp_path)) as connection:
            assert list(heads(connection)) == ["b"]
            assert connection.execute("SELECT count(*) FROM message").fetchone() == (2,)
        connection.close()
        await store.undelete(trashed.token)
        assert sorted(await places(store, tmp_path, "ape")) == [("a", 1), ("b", 1)]


async def test_query_about_one_session_reads_no_other(tmp_path: Path) -> None:
    sessions = [make_snapshot("ape", session_id=name, title=name) for name in ("a", "b", "c")]
    async with stored(tmp_path, *sessions) as store:
        reads = Reads()
        result, _ = await found(store, tmp_path, "ape", reads, sessions=["b"], only={"b"})
        assert (reads.names, list(result.counts)) == (["b"], ["b"])
        assert len(await places(store, tmp_path, "ape")) == 3


async def test_unreadable_session_is_named_and_no_longer_found(tmp_path: Path) -> None:
    async with stored(
        tmp_path, make_snapshot("ape", session_id="a"), make_snapshot("ape", session_id="b")
    ) as store:
        await places(store, tmp_path / "cache", "ape")
        (file,) = store.session_dir("a").glob("*.snap.gz")
        file.write_bytes(b"nonsense")
        result, unreadable = await found(store, tmp_path / "cache", "ape")
        assert (unreadable, list(result.counts)) == (("a",), ["b"])


async def test_store_without_files_can_be_searched(tmp_path: Path) -> None:
    async with MemoryStore() as store:
        await store.save(make_snapshot("ape", session_id="m"))
        assert await places(store, tmp_path, "ape") == [("m", 1)]


@both_loops
async def test_concurrent_searches_all_find_everything(tmp_path: Path) -> None:
    sessions = [make_snapshot("ape", f"only{n}", session_id=f"s{n}") for n in range(12)]
    async with stored(tmp_path, *sessions) as store:
        answers: list[int] = []

        async def one() -> None:
            answers.append(len(await places(store, tmp_path / "cache", "ape")))

        async with anyio.create_task_group() as together:
            for _ in range(6):
                together.start_soon(one)
        assert answers == [12] * 6
        assert await places(store, tmp_path / "cache", "only7") == [("s7", 2)]


# Facts -------------------------------------------------------------------------------------------------------


async def test_statistics_read_their_facts_from_the_index(tmp_path: Path) -> None:
    session = make_snapshot("fix the parser", "ok", "parser again", session_id="a", updated_at=NOON)
    async with stored(tmp_path, session.evolve(messages=session.messages[:1]), session) as store:
        async with opened_index(store, tmp_path / "cache", name="s") as index:
            facts, _ = await index.facts(await store.list(), Reads())

        assert facts["a"].topics[0] == "parser"
        assert sum(slot.messages for slot in facts["a"].slots) == 3
        assert 0 < facts["a"].plain_bytes < facts["a"].copies_bytes
