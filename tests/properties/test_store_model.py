"""Whatever is done to a session, in whatever order: the store holds what a dict of plain snapshots holds."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import anyio
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from snapshot_plugin import Conflict, FilesystemStore, Message, RetentionPolicy, SessionSnapshot
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.codec.sources import KeySource, Passphrase
from snapshot_plugin.testing import make_message, make_snapshot
from tests.tries import tries

ABSENT = "(absent)"
GROUPS = ("memory", "metadata", "plugins")

texts = st.text(st.sampled_from('ab\n"é🦉\ud83d\\'), max_size=6)
long_texts = st.builds(lambda text, times: text * times, texts, st.sampled_from([1, 1, 1, 4000]))
places = st.integers(0, 30)
values = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), texts, st.lists(texts, max_size=2))


class Step(NamedTuple):
    """One thing that happens: a method of `Play`, and what it is given."""

    name: str
    args: tuple[Any, ...] = ()


def step(name: str, *args: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.just(name), st.tuples(*args))


steps = st.one_of(
    step("append", st.lists(long_texts, max_size=4)),
    step("append", st.lists(texts, min_size=1, max_size=2)),
    step("edit", places, texts),
    step("insert", places, texts),
    step("truncate", places),
    step("summarize", places, texts),
    step("entitle", st.one_of(st.none(), texts)),
    step("set_section", st.sampled_from(GROUPS), texts, st.one_of(st.just(ABSENT), values)),
    step("set_unknown", values),
    step("tag"),
    step("go_back", places),
    step("forget", st.integers(1, 4)),
    step("compact"),
    step("reopen"),
    step("look"),
    step("delete_and_undelete"),
    step("be_overtaken", texts),
)


class Play:
    """The store under test and, beside it, the model: every kept snapshot by its number."""

    def __init__(self, place: Path, key: KeySource | None, *, background: bool) -> None:
        self._place, self._key, self._background = place, key, background
        self.store = self._open()
        self.reader = FilesystemStore(place, key=key, background=False)
        self.now = make_snapshot()
        self.kept: dict[int, SessionSnapshot] = {}
        self.tagged: set[int] = set()

    def _open(self) -> FilesystemStore:
        return FilesystemStore(
            self._place, key=self._key, background=self._background, segment_frames=3, segment_bytes=3000
        )

    @property
    def head(self) -> int:
        return max(self.kept, default=0)

    async def run(self, story: list[Step]) -> None:
        try:
            await self._save()
            for each in story:
                await getattr(self, each.name)(*each.args)
                await self.compare()
        finally:
            await self.store.aclose()
            await self.reader.aclose()

    async def compare(self) -> None:
        """Through another store object: what the writer remembers must not help."""
        assert await self.reader.load("session", strict=True) == self.kept[self.head]
        assert [meta.seq for meta in await self.reader.history("session")] == sorted(self.kept, reverse=True)
        for seq, snapshot in self.kept.items():
            assert await self.reader.load("session", at=seq) == snapshot
        report = await self.reader.check()
        assert (report.ok, report.snapshots) == (True, len(self.kept))
        assert self._background or report.findings == ()  # in the background a file may just be in the making

    async def _save(self, *tags: str, base: int | None = None) -> None:
        ref = await self.store.save(self.now, tags=tags, base=base)
        changed = bool(tags) or self.now != self.kept.get(self.head)
        assert (ref.seq, ref.written) == (self.head + changed, changed)
        self.kept[ref.seq] = self.now
        if tags:
            self.tagged.add(ref.seq)

    async def _say(self, messages: list[Message]) -> None:
        self.now = self.now.evolve(messages=messages)
        await self._save()

    # What can happen -----------------------------------------------------------------------------------------

    async def append(self, said: list[str]) -> None:
        await self._say([*self.now.messages, *map(make_message, said)])

    async def edit(self, place: int, text: str) -> None:
        before, after = self.now.messages[:place], self.now.messages[place + 1 :]
        await self._say([*before, make_message(text), *after])

    async def insert(self, place: int, text: str) -> None:
        await self._say([*self.now.messages[:place], make_message(text), *self.now.messages[place:]])

    async def truncate(self, length: int) -> None:
        await self._say([*self.now.messages[:length]])

    async def summarize(self, count: int, text: str) -> None:
        await self._say([make_message(text, role="system"), *self.now.messages[count:]])

    async def entitle(self, title: str | None) -> None:
        self.now = self.now.evolve(title=title)
        await self._save()

    async def set_section(self, group: str, name: str, value: Any) -> None:
        section = {**getattr(self.now, group), name: value}
        if value == ABSENT:
            del section[name]
        self.now = self.now.evolve(**{group: section})
        await self._save()

    async def set_unknown(self, value: Any) -> None:
        self.now = self.now.with_stored({"from_the_future": value})
        await self._save()

    async def tag(self) -> None:
        await self._save("kept")

    async def go_back(self, place: int) -> None:
        """Continue from an older snapshot, as a user who undoes things does."""
        self.now = self.kept[sorted(self.kept)[place % len(self.kept)]]
        await self._save(base=self.head)

    async def forget(self, last: int) -> None:
        stay = {*sorted(self.kept)[-last:], *self.tagged}
        result = await self.store.forget("session", RetentionPolicy(keep_last=last, keep_tags=("kept",)))
        assert set(result.forgotten) == set(self.kept) - stay
        self.kept = {seq: snapshot for seq, snapshot in self.kept.items() if seq in stay}

    async def compact(self) -> None:
        await self.store.compact("session")

    async def reopen(self) -> None:
        await self.store.aclose()
        self.store = self._open()
        await self.look()

    async def look(self) -> None:
        """A loaded value is what the next save builds on."""
        loaded = await self.store.load("session")
        assert loaded == self.kept[self.head]
        self.now = loaded
        await self._save()

    async def delete_and_undelete(self) -> None:
        trashed = await self.store.delete("session")
        assert not await self.reader.list()
        assert await self.reader.undelete(trashed.token) == "session"
        await self.look()  # a store object that deleted a session knows nothing of it any more

    async def be_overtaken(self, text: str) -> None:
        mine = self.now
        async with self._open() as other:
            loaded = await other.load("session")
            theirs = loaded.evolve(messages=make_snapshot("of another writer", text).messages)
            if theirs == self.kept[self.head]:
                return
            ref = await other.save(theirs)
        self.kept[ref.seq] = theirs
        with pytest.raises(Conflict):
            await self.store.save(mine.evolve(title="late"))
        self.now = await self.store.load("session")
        assert self.now == theirs


async def play(story: list[Step], key: KeySource | None, *, background: bool) -> None:
    with anyio.fail_after(60):
        with TemporaryDirectory() as place:
            await Play(Path(place), key, background=background).run(story)


slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
stories = st.lists(steps, min_size=1, max_size=14)


@pytest.mark.requirement("STORE-MODEL")
@tries(100, suppress_health_check=slow)
@given(stories)
@example([Step("append", (["b" * 30_000],))] * 3 + [Step("truncate", (0,)), Step("reopen"), Step("forget", (1,))])
def test_plain_store_matches_the_model(story: list[Step]) -> None:
    anyio.run(lambda: play(story, None, background=False))


@pytest.mark.requirement("STORE-MODEL")
@tries(100, suppress_health_check=slow)
@given(stories)
def test_encrypted_store_matches_the_model(story: list[Step]) -> None:
    anyio.run(lambda: play(story, Passphrase(generate_key()), background=False), backend="trio")


@pytest.mark.requirement("STORE-MODEL", "FORMAT-ROOT-REWRITE")
@tries(30, suppress_health_check=slow)
@given(stories)
def test_background_compression_matches_the_model(story: list[Step]) -> None:
    anyio.run(lambda: play(story, None, background=True))
