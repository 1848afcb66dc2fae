"""Arguments of a wrong type are refused by name, as `InvalidInput`; nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import FilesystemStore, InvalidInput, MemoryStore, open_store
from snapshot_plugin.store.sync import SyncStore
from snapshot_plugin.testing import make_snapshot
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

Call = Callable[[SyncStore, Any], object]

NO_NUMBERS = ["1", b"1", 1.5, True, ["1"], {}, datetime(2026, 11, 17)]  # noqa: DTZ001 — part of the case
NO_LISTS_OF_NUMBERS = ["12", 1, None, ["1"], [1.5], [[1]], [None]]
NO_LABELS = ["x", b"x", 7, ["x"], {"x"}, {"x": 1}, {1: "x"}, {"x": None}]
NO_LISTS_OF_TEXT = ["one", b"one", 1, None, [1], [b"one"], [None]]
NO_TEXT = [b"x", 1, None, ["x"], {}]
NO_TIMES = ["7d", 7, datetime(2026, 11, 17), {}]  # noqa: DTZ001 — as above


NUMBERS: dict[str, Call] = {
    "load at": lambda store, value: store.load("s", at=value),
    "read at": lambda store, value: store.read("s", at=value),
    "page at": lambda store, value: store.page("s", at=value),
    "page start": lambda store, value: store.page("s", start=value),
    "page count": lambda store, value: store.page("s", count=value),
    "lines at": lambda store, value: store.lines("s", at=value),
    "section at": lambda store, value: store.section("s", "metadata", at=value),
    "save base": lambda store, value: store.save(store.load("s"), base=value),
}
LISTS_OF_NUMBERS: dict[str, Call] = {
    "walk": lambda store, value: store.walk("s", value),
    "forget": lambda store, value: store.forget("s", seqs=value),
    "drop": lambda store, value: store.drop("s", value),
}
LABELS: dict[str, Call] = {
    "list labels": lambda store, value: store.list(labels=value),
    "history labels": lambda store, value: store.history("s", labels=value),
    "save labels": lambda store, value: store.save(store.load("s"), labels=value),
}
LISTS_OF_TEXT: dict[str, Call] = {"save tags": lambda store, value: store.save(store.load("s"), tags=value)}
TEXT: dict[str, Call] = {
    "load": lambda store, value: store.load(value),
    "section": lambda store, value: store.section("s", value),
    "save trigger": lambda store, value: store.save(store.load("s"), trigger=value),
    "save snapshot": lambda store, value: store.save(value),
    "policy": lambda store, value: store.forget("s", value),
    "undelete": lambda store, value: store.undelete(value),
}
TIMES: dict[str, Call] = {
    "older_than": lambda store, value: store.purge(older_than=value),
    "now": lambda store, value: store.purge(now=value),
}


@pytest.fixture
def store() -> SyncStore:
    store = MemoryStore().sync
    store.save(make_snapshot(session_id="s"))
    store.save(store.load("s").evolve(pinned=True))
    store.save(make_snapshot(session_id="deleted"))
    store.delete("deleted")
    return store


@pytest.mark.parametrize(
    ("call", "values"),
    [
        *((call, NO_NUMBERS) for call in NUMBERS.values()),
        *((call, NO_LISTS_OF_NUMBERS) for call in LISTS_OF_NUMBERS.values()),
        *((call, NO_LABELS) for call in LABELS.values()),
        *((call, NO_LISTS_OF_TEXT) for call in LISTS_OF_TEXT.values()),
        *((call, NO_TEXT) for call in TEXT.values()),
        *((call, NO_TIMES) for call in TIMES.values()),
    ],
    ids=[*NUMBERS, *LISTS_OF_NUMBERS, *LABELS, *LISTS_OF_TEXT, *TEXT, *TIMES],
)
def test_a_wrong_argument_is_refused_and_changes_nothing(
    store: SyncStore, call: Call, values: Sequence[Any]
) -> None:
    for value in values:
        with pytest.raises(InvalidInput):
            call(store, value)
    assert [meta.seq for meta in store.history("s")] == [2, 1]
    assert len(store.trash()) == 1


def test_the_error_names_the_argument_and_the_value(store: SyncStore) -> None:
    with pytest.raises(InvalidInput, match="at='1' is not a whole number"):
        store.load("s", at="1")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="labels='x' is not a mapping of text to text"):
        store.list(labels="x")  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_asynchronous_calls_refuse_wrong_arguments_too() -> None:
    async with MemoryStore() as store:
        await store.save(make_snapshot(session_id="s"))
        for call in (
            lambda: store.save({"session_id": "s"}),  # type: ignore[arg-type]
            lambda: store.walk("s", 1),  # type: ignore[arg-type]
            lambda: store.forget("s", seqs=1),  # type: ignore[arg-type]
            lambda: store.newest(None),  # type: ignore[arg-type]
            lambda: store.check(["s"]),  # type: ignore[arg-type]
            lambda: store.quarantined(0),  # type: ignore[arg-type]
        ):
            with pytest.raises(InvalidInput):
                await call()


@pytest.mark.parametrize("place", ["a\0b", b"store", "", None, 7, ["x"], "\udc80\ud800"])
def test_a_place_that_cannot_be_a_path_is_refused(place: Any) -> None:
    with pytest.raises(InvalidInput):
        open_store(place).sync.list()


@pytest.mark.parametrize("key", [b"secret", 7, ["x"]])
def test_a_key_of_a_wrong_type_is_refused(tmp_path: Path, key: Any) -> None:
    with pytest.raises(InvalidInput):
        open_store(tmp_path / "store", key=key).sync.list()


@pytest.mark.anyio
async def test_wrong_arguments_are_reported_with_the_name_of_the_public_class(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store:
        call: Any = store.load
        with pytest.raises(TypeError, match=r"^FilesystemStore\.load\(\) takes 2 positional arguments"):
            await call("s", 99)
        call = store.sync.forget
        with pytest.raises(TypeError, match=r"^FilesystemStore\.forget\(\) got an unexpected keyword argument"):
            call("s", keep=1)
