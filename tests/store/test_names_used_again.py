"""A session is deleted, and another begun or brought back under its name, while somebody works on it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore as Objects

from snapshot_plugin import Conflict, FilesystemStore, RetentionPolicy
from snapshot_plugin.store.bucket import Bucket
from snapshot_plugin.store.engine import LogStore, StoreLimits
from snapshot_plugin.store.s3 import ObjectStore
from snapshot_plugin.testing import make_message, make_snapshot
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["disk", "bucket"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[LogStore, LogStore]:
    if request.param == "disk":
        return FilesystemStore(tmp_path), FilesystemStore(tmp_path)
    bucket = Bucket(Objects(), name="memory")
    return ObjectStore(bucket), ObjectStore(bucket)


def do(store: LogStore, work: Callable[..., Any], *args: Any) -> Any:
    return store.prepared(partial(work, *args))


async def test_forget_does_not_touch_a_new_session_of_the_same_id(
    stores: tuple[LogStore, LogStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = stores
    await store.save(make_snapshot("old"))
    await store.save(make_snapshot("old", "older"))
    exclusively, meanwhile = store.frames.exclusively, iter([True])

    def stalled(session_id: str) -> AbstractContextManager[None]:
        if next(meanwhile, False):
            do(other, other.core.delete, "session")
            do(other, other.core.save, make_snapshot("new"))
        return exclusively(session_id)

    monkeypatch.setattr(store.frames, "exclusively", stalled)
    await store.forget("session", RetentionPolicy(keep_last=1))

    assert await other.load("session", strict=True) == make_snapshot("new")


async def test_session_deleted_during_a_save_is_not_reported_as_damaged(
    stores: tuple[LogStore, LogStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = stores
    await other.save(make_snapshot("a"))
    tip = store.frames.tip
    tokens: list[str] = []

    def stalled(session_id: str) -> Any:
        found = tip(session_id)
        if not tokens:
            tokens.append(do(other, other.core.delete, session_id).token)
        return found

    monkeypatch.setattr(store.frames, "tip", stalled)
    with pytest.raises(Conflict):
        await store.save(make_snapshot("b"), base=0)
    await other.undelete(tokens[0])

    with pytest.raises(Conflict):
        await store.save(make_snapshot("b"), base=0)
    assert await other.load("session", strict=True) == make_snapshot("a")
    assert (await other.check()).ok


async def test_base_named_after_a_conflict_belongs_to_the_recreated_session(tmp_path: Path) -> None:
    ours, theirs = FilesystemStore(tmp_path), FilesystemStore(tmp_path)
    await ours.save(make_snapshot("old"))
    await theirs.delete("session")
    await theirs.save(make_snapshot("new"))
    with pytest.raises(Conflict):
        await ours.save(make_snapshot("old", "stale"), base=1)
    found = await ours.load("session")
    assert (await ours.save(found.append(make_message("more")), base=1)).seq == 2
    assert [message.text for message in (await theirs.load("session")).messages] == ["new", "more"]


async def test_base_of_a_session_that_was_recreated_with_the_same_number_is_refused_when_its_writer_is_gone(
    tmp_path: Path,
) -> None:
    ours, theirs = FilesystemStore(tmp_path, limits=StoreLimits(heads=1)), FilesystemStore(tmp_path)
    await ours.save(make_snapshot("old"))
    await ours.save(make_snapshot("x", session_id="other"))  # the only writer that is kept
    await theirs.delete("session")
    await theirs.save(make_snapshot("new"))
    with pytest.raises(Conflict):
        await ours.save(make_snapshot("old", "stale"), base=1)
    found = await ours.load("session")
    await ours.save(found.append(make_message("more")), base=1)
    assert [message.text for message in (await theirs.load("session")).messages] == ["new", "more"]
